#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "planner/shared/crew.hpp"
#include "planner/tables/tables.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/result_file.hpp"
#include "sim/run/run.hpp"
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
  // A different tp or pp changes dp, unless the layout sets dp.
  const auto sets_dp = [](const FlagValue& value) { return value.key->field == "layout.dp"; };
  if (std::none_of(values.begin(), values.end(), sets_dp)) loaded.clear_dp();
  return forecast_job(layout, loaded);
}

// A saved result unchanged, unless flags change its job.
ComparedLayout first_of(const JobOptions& job) {
  if (job.file() && job.given().empty()) {
    if (std::optional<ComparedLayout> saved = saved_layout(job, *job.file())) return std::move(*saved);
  }
  return forecast_job("job", job.load_with({}));
}

// Step time of --measured. Throws ConfigError if it is not a time above zero.
MeasuredStep measured_step(const std::string& text) {
  const ParsedQuantity parsed = parse_quantity(text, Dimension::kTime);
  if (parsed.value && *parsed.value > 0.0) return {*parsed.value, 0, *parsed.value, *parsed.value};
  throw ConfigError({"--measured", fmt::format("\"{}\" {}", text, parsed.value ? "must be above 0" : parsed.problem),
                     "", "give a step time, such as 14.2s"});
}

// Forecast of a job; for a saved result, of the job in it.
Forecast forecast_of(const JobOptions& job) {
  if (job.file() && job.given().empty() && saved_layout(job, *job.file())) {
    const nlohmann::json saved = parse_json(job.disk().read(*job.file()), *job.file());
    if (!saved.contains("job")) {
      throw ConfigError({"job", "is missing from the result", *job.file(), "give the job that was forecast"});
    }
    Origins origins;
    origins.file = *job.file();
    return forecast(read_job(saved.at("job"), origins), read_file);
  }
  return forecast(JobOptions::read(job.load_with({})), read_file);
}

// Files that match "rank*.json.gz", if no shell has expanded the pattern.
std::vector<std::string> files_named(const std::string& pattern) {
  std::error_code ignored;
  const bool plain = pattern.find_first_of("*?") == std::string::npos || std::filesystem::exists(pattern, ignored);
  if (plain) return {pattern};
  const std::filesystem::path path(pattern);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (fnmatch(path.filename().c_str(), name.c_str(), 0) == 0) files.push_back(entry.path().string());
  }
  if (files.empty()) throw ConfigError({"--trace", fmt::format("no file matches {}", pattern), "--trace", ""});
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<TracedRank> read_traces(const std::vector<std::string>& patterns, double step_s) {
  std::vector<TracedRank> ranks;
  for (const std::string& pattern : patterns) {
    for (const std::string& path : files_named(pattern)) {
      for (TracedRank& rank : read_traced_file(path, step_s)) ranks.push_back(std::move(rank));
    }
  }
  return ranks;
}

// Matrix products in traces that record operators with their shapes.
std::vector<Sample> traced_products(const std::vector<std::string>& patterns) {
  std::vector<Sample> products;
  for (const std::string& pattern : patterns) {
    for (const std::string& path : files_named(pattern)) {
      if (trace_format_of(path) != TraceFormat::kKineto) continue;
      PackedFile file(path);
      std::istream stream(&file);
      for (Sample& sample : read_trace(stream, path, {}).measurement.samples) {
        if (sample.key.kind == SampleKind::kGemm) products.push_back(std::move(sample));
      }
    }
  }
  return products;
}

MeasuredStep traced_step(const std::vector<TracedRank>& ranks) {
  std::vector<double> seconds;
  std::size_t steps = 0;  // all ranks have the same steps
  for (const TracedRank& rank : ranks) {
    steps = std::max(steps, rank.steps.size());
    for (const TracedStep& step : rank.steps) seconds.push_back(step.time_s);
  }
  constexpr double kLow = 0.05;
  constexpr double kMiddle = 0.5;
  constexpr double kHigh = 0.95;
  return {percentile(seconds, kMiddle), static_cast<int>(steps), percentile(seconds, kLow), percentile(seconds, kHigh)};
}

class Compare final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_layouts(form);
    form.begin_group("Comparison");
    form.add_flag("--strategies", strategies_, "compare DP, PP, TP, DP+PP, DP+TP and DP+PP+TP for this job");
    form.add_flag("--optimizations", optimizations_, "gain of each optimization of gradient exchange for this job");
    form.add_option("--measured", measured_, "TIME", "measured step time: causes of the gap to the forecast");
    form.add_option("--log", log_, "FILE", "training log with measured step times; also with --measured");
    form.add_option("--trace", trace_files_, "FILE…",
                    "traces of the step, one file per rank (torch.profiler, Nsight Systems' .sqlite, Chakra, "
                    "flopcast run): evidence for each cause");
    form.add_output("--svg", svg_, "with --trace: forecast and traced ranks on one time axis");
    form.place_output({.format_by_ending = true});
  }

  Answer ask(const Context& /*context*/) override {
    if (svg_ && trace_files_.empty()) {
      throw ConfigError({"--svg", "draws traces over the forecast, but no trace is given", "", "add --trace FILE…"});
    }
    if (!trace_files_.empty()) job_.take_layouts(trace_files_);
    job_.treat_job_as_layout();
    job_.refuse_show_config("compare");
    const bool asks_why = measured_ || log_ || !trace_files_.empty();
    if (strategies_ + optimizations_ + asks_why > 1) {
      throw ConfigError({"compare",
                         "--strategies, --optimizations, and --measured with --log and --trace cannot be combined", "",
                         "give only one of them"});
    }
    const bool of_one_job = strategies_ || optimizations_ || asks_why;
    if (of_one_job && !job_.layouts().empty()) {
      throw ConfigError({job_.layouts().front(),
                         "--strategies, --optimizations, --measured, --log and --trace apply to one job, not to "
                         "layouts",
                         "", "omit the layouts or these flags"});
    }
    if (asks_why) return why();
    return of_one_job ? single_changes() : side_by_side();
  }

 private:
  Answer single_changes() const {
    const LoadedJob loaded = job_.load_with({});
    if (strategies_) require_named_cluster(loaded);
    return {.tables = [table = strategies_ ? strategies_table(loaded.root, loaded.origins, read_file, threaded_for(0))
                                           : optimizations_table(JobOptions::read(loaded), read_file)] {
      return std::vector<Table>{table};
    }};
  }

  Answer side_by_side() {
    // A single layout without files is compared with the job itself.
    const std::vector<std::string>& given = job_.layouts();
    const bool has_files = std::any_of(given.begin(), given.end(), is_file);
    if (job_.file() || (given.size() == 1 && !has_files)) layouts_.push_back(first_of(job_));
    for (const std::string& layout : given) layouts_.push_back(compared(job_, layout));
    if (layouts_.size() < 2) {
      throw ConfigError({"compare", "needs two layouts", "", "give two, such as: flopcast compare job.json tp=4,pp=8"});
    }
    return {.tables = [this] { return comparison_tables(layouts_); },
            .json = [this] { return write_comparison(layouts_); }};
  }

  // Causes of the gap between forecast and measurement.
  Answer why() {
    forecast_ = forecast_of(job_);
    gather_evidence();
    hypotheses_ = explain_gap(forecast_, evidence_, read_file);
    Answer answer{.tables = [this] { return gap_tables(); },
                  .rows = [this] { return gap_table(forecast_.result, step_); },
                  .json = [this] { return gap_json(); }};
    if (svg_) {
      answer.files.emplace_back(*svg_, [this](const FigureStyle&) {
        return write_state_rows_svg(overlay_rows(forecast_, evidence_.traces));
      });
    }
    return answer;
  }

  void gather_evidence() {
    std::optional<MeasuredStep> step;
    if (measured_) step = measured_step(*measured_);
    if (log_) {
      evidence_.log = read_training_log(read_file(*log_), *log_);
      evidence_.steps = steps_of_log(*evidence_.log, *log_, "--log", forecast_.step.job);
      if (!step) {
        step = {evidence_.steps->median_s, static_cast<int>(evidence_.steps->seconds.size()), evidence_.steps->p5_s,
                evidence_.steps->p95_s};
      }
    }
    evidence_.traces = read_traces(trace_files_, step ? step->median_s : 0.0);
    step_ = step ? *step : traced_step(evidence_.traces);
    evidence_.products = traced_products(trace_files_);
    evidence_.measured_s = step_.median_s;
  }

  std::vector<Table> gap_tables() const {
    std::vector<Table> tables = {gap_table(forecast_.result, step_), hypothesis_table(hypotheses_)};
    if (!evidence_.traces.empty()) tables.push_back(traced_table(evidence_.traces));
    return tables;
  }

  std::string gap_json() const {
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(write_gap(forecast_.result, step_));
    json["hypotheses"] = hypotheses_json(hypotheses_);
    if (!evidence_.traces.empty()) json["traced"] = traced_json(evidence_.traces);
    return json.dump(2);
  }

  JobOptions job_;
  bool strategies_ = false;
  bool optimizations_ = false;
  std::optional<std::string> measured_;
  std::optional<std::string> log_;
  std::vector<std::string> trace_files_;
  std::optional<std::string> svg_;

  std::vector<ComparedLayout> layouts_;
  Forecast forecast_;
  GapEvidence evidence_;
  MeasuredStep step_;
  std::vector<Hypothesis> hypotheses_;
};

}  // namespace

QuestionInfo compare_question() {
  return {"compare",
          "compare layouts side by side, term by term; strategies; optimizations; measured steps",
          "flopcast compare [JOB] LAYOUT… [options]",
          "Compares layouts side by side and splits the difference in step time term by term. LAYOUT is tp=8,pp=4,… "
          "applied to JOB, or a job file, a plan or a result.",
          {"flopcast compare job.json tp=4,pp=8 tp=2,pp=16,vpp=2",
           "flopcast compare --model llama2-70b --cluster 8xdgx-a100-80g --gbs 64 tp=8,pp=8 tp=4,pp=8,zero=1",
           "flopcast compare job.json --strategies", "flopcast compare job.json --optimizations",
           "flopcast compare job.json --measured 14.2s --log train.log --trace rank*.json.gz"},
          make_question<Compare>};
}

}  // namespace flopcast
