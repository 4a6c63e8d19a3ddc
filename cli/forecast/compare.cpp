#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/forecast/compare_gap.hpp"
#include "cli/options/files_on_disk.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/layout_text.hpp"
#include "cli/options/output.hpp"
#include "planner/shared/threads.hpp"
#include "planner/tables/comparison_tables.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/result_json.hpp"

namespace flopcast {

namespace {

bool is_file(const std::string& text) {
  std::error_code ignored;
  return text.find('=') == std::string::npos || std::filesystem::exists(text, ignored);
}

ComparedLayout forecast_job(const std::string& name, const LoadedJob& loaded) {
  Forecast answer = forecast(JobOptions::read(loaded), read_file);
  nlohmann::ordered_json json = result_json(answer);
  return {name, std::move(answer.result), std::move(json)};
}

std::optional<ComparedLayout> saved_layout(const std::string& file) {
  const std::string text = read_file(file);
  std::optional<Result> saved = read_result(text, file);
  if (!saved) return std::nullopt;
  return ComparedLayout{file, std::move(*saved), nlohmann::ordered_json::parse(text)};
}

ComparedLayout compared(const JobOptions& job, const std::string& layout) {
  if (is_file(layout)) {
    std::optional<ComparedLayout> saved = saved_layout(layout);
    return saved ? std::move(*saved) : forecast_job(layout, load_job({layout}, {}, files_on_disk()));
  }
  const std::vector<FlagValue> values = parse_layout_text(layout);
  LoadedJob loaded = job.load_with(values);
  // Another tp or pp leaves over another dp, unless the layout says which.
  const auto sets_dp = [](const FlagValue& value) { return value.key->field == "layout.dp"; };
  if (std::none_of(values.begin(), values.end(), sets_dp) && loaded.root.contains("layout")) {
    loaded.root["layout"].erase("dp");
  }
  return forecast_job(layout, loaded);
}

// A saved result as it is, unless flags change its job.
ComparedLayout first_of(const JobOptions& job) {
  if (job.file() && job.given().empty()) {
    if (std::optional<ComparedLayout> saved = saved_layout(*job.file())) return std::move(*saved);
  }
  return forecast_job("job", job.load_with({}));
}

void answer_why(const JobOptions& job, const std::optional<std::string>& measured,
                const std::optional<std::string>& log, const OutputOptions& output) {
  const ComparedLayout first = first_of(job);
  const MeasuredStep step =
      measured ? measured_step(*measured) : logged_step(read_file(*log), *log, JobOptions::read(job.load_with({})));
  output.write({.tables = [&] { return std::vector<Table>{gap_table(first.result, step)}; },
                .json = [&] { return gap_json(first.result, step); }},
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
  if (job.file()) layouts.push_back(first_of(job));
  for (const std::string& layout : job.layouts()) layouts.push_back(compared(job, layout));
  if (layouts.size() < 2) {
    throw ConfigError({"compare", "needs two layouts", "", "such as: flopcast compare job.json tp=4,pp=8"});
  }
  output.write({.tables = [&] { return comparison_tables(layouts); }, .json = [&] { return comparison_json(layouts); }},
               format);
  return 0;
}

}  // namespace flopcast
