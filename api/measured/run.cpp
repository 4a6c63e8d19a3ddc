#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <unistd.h>
#include <nlohmann/json.hpp>

#include "api/options/job_options.hpp"
#include "api/question.hpp"
#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "base/text/words.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "reports/html/page.hpp"
#include "reports/svg/charts.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/run_backends.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

namespace fs = std::filesystem;

// "1/64" or "0.25": above 0 and at most 1.
double parse_scale(const std::string& text) {
  const auto number = [](const std::string& part) -> double {
    char* end = nullptr;
    const double value = std::strtod(part.c_str(), &end);
    return !part.empty() && *end == '\0' && std::isfinite(value) ? value : -1.0;
  };
  const std::size_t slash = text.find('/');
  const double scale =
      slash == std::string::npos ? number(text) : number(text.substr(0, slash)) / number(text.substr(slash + 1));
  if (scale > 0.0 && scale <= 1.0) return scale;
  throw ConfigError({"--scale", fmt::format("\"{}\" is not a valid scale", text), "--scale",
                     "give a fraction above 0 and at most 1, such as 1/64"});
}

class Scaler {
 public:
  /// `lists_layers`: the job specifies the number of layers of each stage.
  Scaler(const PreparedStep& step, double scale, bool lists_layers)
      : step_(step), scale_(scale), lists_layers_(lists_layers), job_(step.job) {}

  Job scaled() {
    const Layout& layout = job_.layout;
    Transformer& model = job_.model;
    scale_depth();
    const int sequence_parts = std::lcm(2 * layout.cp * layout.tp, step_.program.slices_per_microbatch);
    job_.training.sequence_length = size(job_.training.sequence_length, sequence_parts, kLeastSequence);
    model.sequence_length = job_.training.sequence_length;
    for (int* window : {&model.sliding_window, &model.attention_chunk}) {
      if (*window > 0) *window = size(*window, 1, 1);
    }
    scale_width();
    model.vocab = size(model.vocab, layout.tp, kLeastVocabulary);
    return job_;
  }

 private:
  static constexpr int kLeastSequence = 16;
  static constexpr int kLeastVocabulary = 64;
  static constexpr int kLeastHead = 4;

  // Scaled size, rounded up to a multiple of `unit` and at least `least`.
  int size(int whole, int unit, int least) const {
    const double wanted = std::max(static_cast<double>(whole) * scale_, static_cast<double>(least));
    return static_cast<int>(std::ceil(wanted / unit - 1e-9)) * unit;
  }

  void scale_depth() {
    Transformer& model = job_.model;
    const int whole = model.layers;
    std::vector<int>& listed = job_.layout.stage_layers;
    model.layers = size(whole, step_.stages.model_stages, 1);
    if (lists_layers_) {
      for (int& layers : listed) layers = layers == 0 ? 0 : size(layers, 1, 1);
      model.layers = std::accumulate(listed.begin(), listed.end(), 0);
    } else {
      listed.clear();
    }
    const double share = static_cast<double>(model.layers) / whole;
    model.windowed_layers = static_cast<int>(std::lround(model.windowed_layers * share));
    if (!model.experts) return;
    Experts& experts = *model.experts;
    experts.first_dense_layers =
        std::min(model.layers - 1, static_cast<int>(std::ceil(experts.first_dense_layers * share)));
    experts.every = std::min(experts.every, model.layers);
  }

  // Keeps the fraction of groups chosen per token. The number of groups is reduced to a divisor of the number of
  // experts.
  static void scale_groups(Experts& experts) {
    if (experts.groups == 0) return;
    const int groups = std::gcd(experts.groups, experts.count);
    experts.group_top_k = (experts.group_top_k * groups + experts.groups - 1) / experts.groups;
    experts.groups = groups;
    const bool enough = experts.count / groups * experts.group_top_k >= experts.top_k;
    if (groups == 1 || !enough) experts.groups = experts.group_top_k = 0;
  }

  void scale_width() {
    const Layout& layout = job_.layout;
    Transformer& model = job_.model;
    const Transformer whole = model;
    const bool shares_keys = model.kv_heads < model.heads;
    model.kv_heads = size(model.kv_heads, layout.tp, 1);
    model.heads = shares_keys ? 2 * model.kv_heads : size(model.heads, layout.tp, 1);
    if (!shares_keys) model.kv_heads = model.heads;
    const double width = static_cast<double>(whole.heads) * whole.head_dim * scale_ / model.heads;
    model.head_dim = std::max(kLeastHead, 2 * static_cast<int>(std::ceil(width / 2.0 - 1e-9)));
    const bool as_wide = whole.heads * whole.head_dim == whole.hidden;
    model.hidden = as_wide ? model.heads * model.head_dim : size(model.hidden, 2 * layout.tp, kLeastHead);
    // Keeps the ratio to the hidden size.
    const double ratio = static_cast<double>(model.hidden) / whole.hidden;
    const auto in_proportion = [&](int value) {
      return static_cast<int>(std::ceil(value * ratio / layout.tp - 1e-9)) * layout.tp;
    };
    model.ffn = in_proportion(model.ffn);
    if (model.experts) {
      Experts& experts = *model.experts;
      experts.count = size(experts.count, layout.ep, 2);
      experts.top_k = std::min(experts.top_k, std::max(1, experts.count / 2));
      scale_groups(experts);
      experts.ffn = in_proportion(experts.ffn);
      experts.shared_ffn = in_proportion(experts.shared_ffn);
    }
    if (!model.latent) return;
    LatentAttention& latent = *model.latent;
    for (int* part :
         {&latent.query_rank, &latent.key_value_rank, &latent.nope_dim, &latent.rope_dim, &latent.value_dim}) {
      if (*part > 0) *part = size(*part, 2, kLeastHead);
    }
  }

  const PreparedStep& step_;
  double scale_;
  bool lists_layers_;
  Job job_;
};

std::string change(const char* what, int became, int whole) {
  return fmt::format("{} {} (of {})", what, became, whole);
}

std::string describe_scaling(const Transformer& became, const Transformer& whole, int sequence, int whole_sequence) {
  const auto counted = [](const Transformer& model) {
    return static_cast<double>(count_parameters(model).total) / 1e6;
  };
  std::string text = fmt::format(
      "{} scaled: {}, {}, {} of width {}, {}, {}, {}", whole.name, change("layers", became.layers, whole.layers),
      change("hidden size", became.hidden, whole.hidden), change("heads", became.heads, whole.heads), became.head_dim,
      change("MLP width", became.ffn, whole.ffn), change("vocabulary", became.vocab, whole.vocab),
      change("sequence", sequence, whole_sequence));
  if (became.kv_heads != became.heads) text += ", " + change("key/value heads", became.kv_heads, whole.kv_heads);
  if (became.experts) text += ", " + change("experts", became.experts->count, whole.experts->count);
  return text + fmt::format("; {:.3g} million parameters (of {:.0f})", counted(became), counted(whole));
}

/// A job whose model is scaled down so that it trains on one machine with the same layout.
struct ScaledJob {
  LoadedJob job;
  std::string summary;  ///< changes of the model, shown to the user
};

// Multiplies hidden size, MLP width, heads, experts, vocabulary, layers and sequence length by `scale`, and rounds each
// up to a multiple that the layout requires: layers to the stages of the pipeline (layers listed by stage are scaled
// one by one), heads, key/value heads, MLP and vocabulary to tp, experts to ep, sequences to cp, tp and slices.
// Grouped-query attention keeps two heads per key/value head. Everything else stays the same, including network,
// microbatches and schedule. `step` belongs to the unscaled job. Throws ConfigError for layer profiles.
ScaledJob scaled_job(const LoadedJob& whole, const PreparedStep& step, double scale) {
  if (step.job.profile) {
    throw ConfigError({"--scale", "a layer profile cannot be scaled", "--scale", "use a transformer"});
  }
  ScaledJob result{whole, {}};
  nlohmann::json& root = result.job.root;
  const bool has_layout = root.contains("layout") && root.at("layout").is_object();
  const bool lists_layers = has_layout && root.at("layout").contains("stage_layers");
  const Job job = Scaler(step, scale, lists_layers).scaled();
  const nlohmann::json echoed = nlohmann::json::parse(job_json(job).dump());
  root["model"] = echoed.at("model");
  root["training"]["sequence_length"] = job.training.sequence_length;
  if (lists_layers) root["layout"]["stage_layers"] = job.layout.stage_layers;
  result.summary =
      describe_scaling(job.model, step.job.model, job.training.sequence_length, step.job.training.sequence_length);
  return result;
}

// Describes the steps that a failed run has left in the output file; empty if there are none.
std::string left_in(const std::optional<std::string>& file) {
  std::error_code ignored;
  if (!file || !fs::is_regular_file(*file, ignored)) return {};
  try {
    const MeasuredRun run = read_measured_run(read_file(*file), *file);
    if (run.failure.empty()) return {};  // the file is from an earlier, successful run
    return fmt::format("{} contains the {} step{} before the failure", *file, run.steps.size(),
                       run.steps.size() == 1 ? "" : "s");
  } catch (const ConfigError&) {
    return {};
  }
}

/// Command that starts the ranks.
struct Launch {
  std::vector<std::string> words;
  bool by_launcher = false;  ///< mpirun starts the ranks
  int timeout_s = 0;
};

// Reason for a failure that no rank has reported; empty if the ranks have reported it.
std::string unreported_reason(const ChildEnd& end, const Launch& launch) {
  const auto signal_text = [](int signal) { return fmt::format("signal {} ({})", signal, strsignal(signal)); };
  const std::string program = fs::path(launch.words.front()).filename().string();
  if (end.was_stopped) {
    return fmt::format("{} was stopped for longer than the --timeout of {} s and has been killed",
                       launch.by_launcher ? "mpirun, or every rank," : program, launch.timeout_s);
  }
  if (launch.by_launcher && end.saw_error) return {};
  if (end.outlived_workers)
    return fmt::format("{} did not exit after its ranks had ended and has been killed", program);
  if (end.signal != 0) return fmt::format("{} was killed by {}", program, signal_text(end.signal));
  if (!launch.by_launcher) return {};
  if (end.handed_on != 0)
    return fmt::format("stopped by {} before any rank could report its position", signal_text(end.handed_on));
  // If a rank is killed by a signal, mpirun exits with 128 plus the signal.
  constexpr int kSignalled = 128;
  if (end.exit_code > kSignalled)
    return fmt::format("a rank was killed by {} before the first step or after the last",
                       signal_text(end.exit_code - kSignalled));
  return fmt::format("{} exited with code {}, and no rank reported an error", program, end.exit_code);
}

int report_failure(const ChildEnd& end, const Launch& launch, const std::optional<std::string>& file,
                   const Streams& streams) {
  const std::string left = left_in(file);
  const std::string undetermined = unreported_reason(end, launch);
  if (!undetermined.empty())
    throw EnvironmentError(fmt::format("{}{}{}", undetermined, left.empty() ? "" : "; ", left));
  constexpr int kBug = 1;
  int exit_code = end.exit_code;
  // mpirun's exit codes differ from flopcast's.
  if (launch.by_launcher && exit_code != kBadInput) exit_code = end.saw_bug ? kBug : kEnvironmentFailed;
  if (exit_code == kEnvironmentFailed && !left.empty())
    std::fputs(fmt::format("  note: {}\n", left).c_str(), streams.err);
  return exit_code;
}

// Number of steps, and how many of them are warm-up.
struct StepCounts {
  static constexpr int kWarmup = 2;
  static constexpr int kRepetitions = 15;
  int steps = 0;
  int warmup = 0;
};

// Command line of Open MPI's `mpirun` that starts a program once per rank, on this machine or as configured by the user
// (OMPI_MCA_…, a hostfile). Allows more ranks than cores, and running as root, which is usual in containers. Throws
// EnvironmentError if mpirun is not found.
std::vector<std::string> mpirun_words(int ranks) {
  const std::optional<std::string> mpirun = program_on_path("mpirun");
  if (!mpirun) {
    throw EnvironmentError("--backend mpi needs mpirun, which is not on the path (Debian: openmpi-bin)");
  }
  // Quiet, because flopcast-run reports errors itself.
  std::vector<std::string> words = {*mpirun, "--quiet", "--oversubscribe"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", fmt::format("{}", ranks)});
  return words;
}

class Run final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    form.begin_group("Run");
    const std::span<const realrun::RunFlag> run_flags = realrun::kRunFlags;
    constexpr std::size_t kOfBackend = 3;  // the others follow the numbers of steps
    add_forwarded(form, run_flags.first(kOfBackend));
    form.add_option("--scale", scale_, "SHARE",
                    "shrink the model's width, depth, vocabulary and sequences with the same layout, such as 1/64");
    form.add_option("--repetitions", repetitions_, "N", "number of measured steps (default 15); the median is shown");
    form.add_option("--warmup", warmup_, "N", "number of steps before them (default 2)");
    form.add_option("--steps", steps_, "N", "total number of steps, instead of --repetitions");
    form.add_option(
        "--times", times_, "FROM",
        "source of the forecast's times: calibration (default), measured on these ranks just before; or job, "
        "computed for the job's cluster or --profile");
    add_forwarded(form, run_flags.subspan(kOfBackend));
    form.begin_group("Emulation: more ranks than processors");
    add_forwarded(form, realrun::kEmulationFlags);
    form.begin_group("Output");
    form.place_output({.inputs = OutputInputs::kFormat});
    form.add_output("-o,--output", measured_, "file for the measurement, including the comparison");
    form.place_figure("write the timeline as a figure");
    form.place_page("write a report as one self-contained HTML file");
    form.place_trace("write the timeline as a trace for ui.perfetto.dev");
    form.add_figure("--loss-svg", loss_svg_, "write the loss of every step as a figure");
    form.add_option("--beside", beside_, "MEASURED", "also draw the losses of an earlier run; repeatable");
  }

  Answer ask(const Context& context) override {
    const auto times_from =
        static_cast<TimesFrom>(choice_of("--times", times_.value_or("calibration"), {"calibration", "job"}));
    check_files();
    nlohmann::json given;
    const Job asked = asked_job(context, given);
    const Forecast forecast_of_job = forecast(asked, read_file);
    const StepCounts counted = counts(forecast_of_job.step.program.asynchronous);

    const PrivateFolder folder;
    const Guard guard(folder.path());
    const std::string job = folder.path() + "/job.json";
    const std::string kept = folder.path() + "/measured.json";
    // Outputs that cannot be read back are written at the end.
    const bool copies = measured_ && is_pipe_or_device(*measured_);
    const std::string output = copies ? kept : measured_.value_or(kept);
    const Layout& layout = forecast_of_job.step.job.layout;

    // The measurement contains the job, which must not depend on other files.
    if (!layout.schedule_csv.empty()) {
      const nlohmann::json echoed = job_json(forecast_of_job.step.job).at("layout");
      for (const char* key : {"schedule", "schedule_csv"}) given["layout"][key] = echoed.at(key);
    }
    write_file(job, dumped(given));
    const Launch launch = launch_of(job, output, layout.dp * layout.cp * layout.tp * layout.pp, counted,
                                    times_from == TimesFrom::kCalibration);
    const ChildRules rules{.launches = launch.by_launcher ? "flopcast-run" : "",
                           .longest_stop = std::chrono::seconds(launch.timeout_s),
                           .guard = &guard};
    const ChildEnd end = run_child(launch.words, context.streams, rules);
    if (end.signal != 0 || end.exit_code != 0)
      return {.exit_code = report_failure(end, launch, measured_, context.streams)};

    comparison_ =
        judge_run(asked, forecast_of_job, read_measured_run(read_file(output), output), times_from, read_file);
    // The file contains the comparison as well.
    if (measured_) write_file(output, with_comparison(read_file(output), comparison_));
    if (copies) write_file(*measured_, read_file(output));
    // Warnings come before the figures, which they qualify.
    for (const std::string& disturbance : disturbance_texts(comparison_)) context.warn(disturbance);
    return answer(context);
  }

 private:
  void add_forwarded(Form& form, std::span<const realrun::RunFlag> flags) {
    for (const realrun::RunFlag& flag : flags) {
      form.add_option(std::string(flag.name), forwarded_flags_[flag.name], std::string(flag.value_name),
                      std::string(flag.help));
    }
  }

  const realrun::Backend* backend() const {
    return realrun::find_backend(forwarded_flags_.at("--backend").value_or("threads"));
  }

  // Checks files before minutes of training.
  void check_files() const {
    if (!beside_.empty() && !loss_svg_) {
      throw ConfigError({"--beside", "has no effect without --loss-svg", "--beside", "add --loss-svg FILE"});
    }
    for (const std::string& path : beside_) read_loss_curve(read_file(path), path);
  }

  // An asynchronous run drains in its last step, which is not counted.
  StepCounts counts(bool asynchronous) const {
    if (steps_ && repetitions_)
      throw ConfigError({"--steps", "conflicts with --repetitions", "--steps", "give only one of them"});
    if (warmup_ && *warmup_ < 0) throw ConfigError({"--warmup", "is below 0", "--warmup", "give 0 or more"});
    if (repetitions_ && *repetitions_ < 1)
      throw ConfigError({"--repetitions", "is below 1", "--repetitions", "give 1 or more"});
    StepCounts counts;
    const int least = asynchronous ? 1 : 0;
    if (!steps_) {
      counts.warmup = warmup_.value_or(StepCounts::kWarmup);
      counts.steps = std::max(counts.warmup, least) + repetitions_.value_or(StepCounts::kRepetitions) + least;
      return counts;
    }
    counts.steps = *steps_;
    counts.warmup = warmup_.value_or(std::clamp(*steps_ - 1 - least, 0, StepCounts::kWarmup));
    if (counted_steps(counts.steps, counts.warmup, asynchronous) < 1) {
      throw ConfigError({"--steps", fmt::format("{} steps leave none to measure", *steps_), "--steps",
                         asynchronous
                             ? "give 3 or more: an asynchronous schedule fills in the first and drains in the last"
                             : "give 1 or more, and more than --warmup"});
    }
    return counts;
  }

  // A value that flopcast-run will refuse counts as the default.
  int timeout_s() const {
    constexpr int kDefault = 60;
    const std::optional<std::string>& text = forwarded_flags_.at("--timeout");
    const std::optional<std::int64_t> seconds = text ? parse_whole(*text) : std::nullopt;
    constexpr std::int64_t kLongest = 1'000'000;
    return seconds && *seconds > 0 ? static_cast<int>(std::min(*seconds, kLongest)) : kDefault;
  }

  Launch launch_of(const std::string& job_file, const std::string& output, int ranks, const StepCounts& counts,
                   bool calibrates) const {
    const bool needs_mpirun = backend() != nullptr && backend()->needs_mpirun;
    std::vector<std::string> words = needs_mpirun ? mpirun_words(ranks) : std::vector<std::string>();
    words.insert(words.end(), {sibling_program("flopcast-run"), job_file, "--output", output});
    const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
    constexpr int kCalibrationSteps = 4 + static_cast<int>(kCalibrationWarmup);  // before and after the run
    add("--steps", fmt::format("{}", counts.steps));
    add("--warmup", fmt::format("{}", counts.warmup));
    add("--calibration-steps", fmt::format("{}", calibrates ? kCalibrationSteps : 0));
    for (const auto& [flag, text] : forwarded_flags_) {
      if (text) words.insert(words.end(), {std::string(flag), *text});
    }
    return {std::move(words), needs_mpirun, timeout_s()};
  }

  Job asked_job(const Context& context, nlohmann::json& root) const {
    LoadedJob loaded = job_.load();
    if (scale_) {
      ScaledJob scaled = scaled_job(loaded, prepare(JobOptions::read(loaded), read_file), parse_scale(*scale_));
      context.tell("note: " + scaled.summary);
      loaded = std::move(scaled.job);
    }
    if (backend() != nullptr && backend()->on_gpus)
      set_fp8_defaults_on_gpus(JobOptions::read(loaded).training, loaded.root);
    Job asked = JobOptions::read(loaded);
    if (const auto& finetune = asked.training.finetune; finetune && finetune->base != BaseFormat::kBf16) {
      context.tell(fmt::format("note: frozen weights have 32 bits in this run, not {}", name_of(finetune->base)));
    }
    root = std::move(loaded.root);
    return asked;
  }

  std::string losses_figure(const FigureStyle& style) const {
    std::vector<Series> curves = {loss_curve(comparison_.schedule, comparison_.losses)};
    for (const std::string& path : beside_) curves.push_back(read_loss_curve(read_file(path), path));
    SeriesSvgOptions options;
    static_cast<FigureStyle&>(options) = style;
    return write_series_svg({loss_chart(std::move(curves))}, options);
  }

  // Figure and page show the forecast above the measurement on one time axis; the trace shows the measurement.
  Answer answer(const Context& context) {
    Answer answer{
        .tables = [this] { return std::vector<Table>{run_table(comparison_)}; },
        .json = [this] { return write_run(comparison_); },
        .figure =
            [this](const FigureStyle& style) {
              SvgOptions options;
              static_cast<FigureStyle&>(options) = style;
              return write_svg(std::vector<Timeline>{comparison_.forecast.drawn, comparison_.measured.drawn}, options);
            },
        .page =
            [this](PageInfo info) {
              info.command.clear();
              return run_page(info, comparison_);
            },
        .trace =
            [this](TraceData data) {
              TraceOptions options;
              options.other_data = std::move(data);
              if (!comparison_.conditions.empty()) {
                options.other_data.emplace_back("conditions", comparison_.conditions);
              }
              return write_chrome_trace(comparison_.measured.drawn, options);
            },
        .files_come_last = true};
    if (loss_svg_) {
      answer.files.emplace_back(*loss_svg_, [this](const FigureStyle& style) { return losses_figure(style); });
    }
    // Tables of rows have no notes.
    if (shown_by(context.format) == Shows::kRows && !comparison_.conditions.empty()) {
      answer.done = [this, &context] { context.warn(comparison_.conditions); };
    }
    return answer;
  }

  JobOptions job_;
  std::optional<std::string> measured_;
  std::optional<std::string> times_;
  std::optional<std::string> scale_;
  std::optional<int> repetitions_;
  std::optional<int> warmup_;
  std::optional<int> steps_;
  std::optional<std::string> loss_svg_;
  std::vector<std::string> beside_;
  std::map<std::string_view, std::optional<std::string>> forwarded_flags_;  // flags of flopcast-run, as given

  RunComparison comparison_;
};

}  // namespace

QuestionInfo run_question() {
  return {"run",
          "train for real on this machine, and compare with the forecast",
          "flopcast run [JOB] [options]",
          "Trains for real with the job's schedule and layout, on ranks of this machine, and shows "
          "forecast and measurement side by side. The model must be a small GPT, or be scaled to one with --scale. See "
          "docs/real-runs.md.",
          {"flopcast run job.json -o measured.json --svg forecast-above-measured.svg",
           "flopcast run job.json --schedule gpipe --repetitions 30 --format json",
           "flopcast run --model gpt3-175b --cluster 1xdgx-a100-80g --tp 2 --pp 4 --gbs 8 --scale 1/64",
           "flopcast run job.json --pp 8 --compute sleep --forward 5ms --backward 10ms"},
          make_question<Run>};
}

}  // namespace flopcast
