#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "calibrate/device/imports.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "model/units/quantity.hpp"
#include "planner/shared/threads.hpp"
#include "planner/tables/comparison_tables.hpp"
#include "sim/files/result_file.hpp"
#include "sim/run/run_answer.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

bool is_file(const std::string& text) {
  if (text == kStandardInput) return true;
  std::error_code ignored;
  return text.find('=') == std::string::npos || std::filesystem::exists(text, ignored);
}

ComparedLayout forecast_job(const std::string& name, const LoadedJob& loaded) {
  Forecast answer = forecast(JobOptions::read(loaded), read_file);
  add_run(answer, WithOptions::kNo);
  std::string document = write_result(answer);
  return {name, std::move(answer.result), std::move(document)};
}

std::optional<ComparedLayout> saved_layout(const JobOptions& job, const std::string& file) {
  std::string text = job.disk().read(file);
  std::optional<Result> saved = read_result(text, file);
  if (!saved) return std::nullopt;
  return ComparedLayout{file, std::move(*saved), std::move(text)};
}

ComparedLayout compared(const JobOptions& job, const std::string& layout) {
  if (is_file(layout)) {
    std::optional<ComparedLayout> saved = saved_layout(job, layout);
    return saved ? std::move(*saved) : forecast_job(layout, load_job({layout}, {}, job.disk()));
  }
  const std::vector<FlagValue> values = parse_layout_text(layout);
  LoadedJob loaded = job.load_with(values);
  // Another tp or pp leaves over another dp, unless the layout says which.
  const auto sets_dp = [](const FlagValue& value) { return value.key->field == "layout.dp"; };
  if (std::none_of(values.begin(), values.end(), sets_dp)) loaded.leave_dp_over();
  return forecast_job(layout, loaded);
}

// A saved result as it is, unless flags change its job.
ComparedLayout first_of(const JobOptions& job) {
  if (job.file() && job.given().empty()) {
    if (std::optional<ComparedLayout> saved = saved_layout(job, *job.file())) return std::move(*saved);
  }
  return forecast_job("job", job.load_with({}));
}

// Of --measured. Throws ConfigError when it is no time above zero.
MeasuredStep measured_step(const std::string& text) {
  const ParsedQuantity parsed = parse_quantity(text, Dimension::kTime);
  if (parsed.value && *parsed.value > 0.0) return {*parsed.value, 0, *parsed.value, *parsed.value};
  throw ConfigError({"--measured", fmt::format("\"{}\" {}", text, parsed.value ? "is no step time" : parsed.problem),
                     "", "such as 14.2s"});
}

// Of a Megatron-LM log: its steps behind the warm-up with the job's global batch size. Throws ConfigError when there is
// none, or when the log's ranks are not the job's devices.
MeasuredStep logged_step(const std::string& text, const std::string& file, const Job& job) {
  const TrainingLog log = read_training_log(text, file);
  const int devices = job.cluster.devices();
  if (log.ranks && *log.ranks != devices) {
    throw ConfigError({"--log", fmt::format("the run had {} ranks, the job has {} devices", *log.ranks, devices), file,
                       "give the cluster that the log is of"});
  }
  std::vector<double> seconds;
  std::set<int> batches;
  for (const LoggedStep& step : log.steps) {
    batches.insert(step.global_batch_size);
    const bool alike = step.global_batch_size == job.layout.global_batch_size;
    if (alike && !step.warm_up && step.skipped == 0) seconds.push_back(step.seconds);
  }
  if (batches.count(job.layout.global_batch_size) == 0) {
    throw ConfigError(
        {"--log", fmt::format("holds no step with the job's global batch size of {}", job.layout.global_batch_size),
         file, fmt::format("the log has --gbs {}", fmt::join(batches, ", "))});
  }
  if (seconds.empty()) throw ConfigError({"--log", "holds no step behind the warm-up", file, "log more iterations"});
  constexpr double kLow = 0.05;
  constexpr double kMiddle = 0.5;
  constexpr double kHigh = 0.95;
  return {percentile(seconds, kMiddle), static_cast<int>(seconds.size()), percentile(seconds, kLow),
          percentile(seconds, kHigh)};
}

void answer_why(const JobOptions& job, const std::optional<std::string>& measured,
                const std::optional<std::string>& log, const OutputOptions& output) {
  const ComparedLayout first = first_of(job);
  const MeasuredStep step =
      measured ? measured_step(*measured) : logged_step(read_file(*log), *log, JobOptions::read(job.load_with({})));
  output.write({.tables = [&] { return std::vector<Table>{gap_table(first.result, step)}; },
                .json = [&] { return write_gap(first.result, step); }},
               output.format_of_file());
}

}  // namespace

int run_compare(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "compare", "flopcast compare [JOB] LAYOUT… [options]",
      "Layouts side by side, the difference in step time split term by term. LAYOUT is tp=8,pp=4,… over JOB, a job "
      "file, "
      "a plan or a result.",
      {"flopcast compare job.json tp=4,pp=8 tp=2,pp=16,vpp=2",
       "flopcast compare --model llama2-70b --cluster 8xdgx-a100-80g --gbs 64 tp=8,pp=8 tp=4,pp=8,zero=1",
       "flopcast compare job.json --strategies", "flopcast compare job.json --optimizations",
       "flopcast compare job.json --measured 14.2s"});
  JobOptions job;
  OutputOptions output;
  bool show_strategies = false;
  bool show_optimizations = false;
  std::optional<std::string> measured;
  std::optional<std::string> log;
  job.add_to(command_line);
  job.add_layouts(command_line);
  command_line.begin_group("Comparison");
  command_line.add_flag("--strategies", show_strategies, "DP, PP, TP, DP+PP, DP+TP and DP+PP+TP for this job");
  command_line.add_flag("--optimizations", show_optimizations, "what each trick of gradient exchange buys on this job");
  command_line.add_option("--measured", measured, "TIME",
                          "a measured step: where the gap to the forecast may come from");
  command_line.add_option("--log", log, "FILE", "the same, from a Megatron-LM training log");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  job.sort_out_layouts();
  job.refuse_show_config("compare");
  const Format format = output.format_of_file();
  if (show_strategies + show_optimizations + measured.has_value() + log.has_value() > 1) {
    throw ConfigError(
        {"compare", "--strategies, --optimizations, --measured and --log are four questions", "", "ask one"});
  }
  const bool asks_why = measured || log;
  if ((show_strategies || show_optimizations || asks_why) && !job.layouts().empty()) {
    throw ConfigError({job.layouts().front(),
                       "--strategies, --optimizations, --measured and --log ask about one job, not about layouts", "",
                       "leave one of the two out"});
  }
  if (show_strategies || show_optimizations) {
    const LoadedJob loaded = job.load_with({});
    if (show_strategies) require_named_cluster(loaded);
    output.write({show_strategies ? strategies_table(loaded.root, loaded.origins, read_file, threaded_for(0))
                                  : optimizations_table(JobOptions::read(loaded), read_file)},
                 format);
    return 0;
  }
  if (asks_why) {
    answer_why(job, measured, log, output);
    return 0;
  }
  std::vector<ComparedLayout> layouts;
  // A single change is compared with the job itself.
  const bool has_files = std::any_of(job.layouts().begin(), job.layouts().end(), is_file);
  if (job.file() || (job.layouts().size() == 1 && !has_files)) layouts.push_back(first_of(job));
  for (const std::string& layout : job.layouts()) layouts.push_back(compared(job, layout));
  if (layouts.size() < 2) {
    throw ConfigError({"compare", "needs two layouts", "", "such as: flopcast compare job.json tp=4,pp=8"});
  }
  output.write(
      {.tables = [&] { return comparison_tables(layouts); }, .json = [&] { return write_comparison(layouts); }},
      format);
  return 0;
}

}  // namespace flopcast
