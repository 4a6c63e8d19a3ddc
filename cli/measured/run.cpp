#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/options/job_options.hpp"
#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/guard.hpp"
#include "base/host/processes.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/table.hpp"
#include "base/text/words.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "cli/commands.hpp"
#include "cli/measured/sources.hpp"
#include "cli/options/output.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "realrun/launch/backend.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

namespace fs = std::filesystem;

// What a run that failed has left in the file that the user asked for; empty when there is none.
std::string left_in(const std::optional<std::string>& file) {
  std::error_code ignored;
  if (!file || !fs::is_regular_file(*file, ignored)) return {};
  try {
    const MeasuredRun run = read_measured_run(read_file(*file), *file);
    if (run.failure.empty()) return {};  // of an earlier run
    return fmt::format("{} has the {} step{} before that", *file, run.steps.size(), run.steps.size() == 1 ? "" : "s");
  } catch (const ConfigError&) {
    return {};
  }
}

/// How the ranks are run.
struct Launch {
  std::vector<std::string> words;
  bool by_launcher = false;  ///< mpirun, which starts them
  int patience_s = 0;
};

// What nobody else has told; empty where the ranks have.
std::string untold_reason(const ChildEnd& end, const Launch& launch) {
  const auto signal_text = [](int signal) { return fmt::format("signal {} ({})", signal, strsignal(signal)); };
  const std::string program = fs::path(launch.words.front()).filename().string();
  if (end.was_stopped) {
    return fmt::format("{} was stopped for longer than the {} s of --timeout, and has been killed",
                       launch.by_launcher ? "every rank, or mpirun," : program, launch.patience_s);
  }
  if (launch.by_launcher && end.told_error) return {};
  if (end.was_left) return fmt::format("{} did not end when its ranks had, and has been killed", program);
  if (end.signal != 0) return fmt::format("{} was killed by {}", program, signal_text(end.signal));
  if (!launch.by_launcher) return {};
  if (end.handed_on != 0)
    return fmt::format("stopped by {} before a rank could say where it was", signal_text(end.handed_on));
  // mpirun leaves with 128 and the signal of a rank that was killed.
  constexpr int kSignalled = 128;
  if (end.exit_code > kSignalled)
    return fmt::format("a rank was killed by {} before the first step or behind the last",
                       signal_text(end.exit_code - kSignalled));
  return fmt::format("{} ended with exit code {}, and no rank says why", program, end.exit_code);
}

int report_failure(const ChildEnd& end, const Launch& launch, const std::optional<std::string>& file,
                   const Streams& streams) {
  const std::string left = left_in(file);
  const std::string untold = untold_reason(end, launch);
  if (!untold.empty()) throw EnvironmentError(fmt::format("{}{}{}", untold, left.empty() ? "" : "; ", left));
  constexpr int kBug = 1;
  int exit_code = end.exit_code;
  // mpirun has exit codes of its own.
  if (launch.by_launcher && exit_code != kBadInput) exit_code = end.told_bug ? kBug : kEnvironmentFailed;
  if (exit_code == kEnvironmentFailed && !left.empty())
    std::fputs(fmt::format("  note: {}\n", left).c_str(), streams.err);
  return exit_code;
}

// How many steps, and which of them count.
struct StepCounts {
  static constexpr int kWarmup = 2;
  static constexpr int kRepetitions = 15;
  int steps = 0;
  int warmup = 0;
};

// The words that make `mpirun` of Open MPI start a program once for each rank, on this machine or wherever its own
// settings (OMPI_MCA_…, a hostfile) say; more ranks than cores are fine. As root, containers' usual user, it is told
// that this is meant. Throws EnvironmentError when it is not there.
std::vector<std::string> mpirun_words(int ranks) {
  const std::optional<std::string> mpirun = program_on_path("mpirun");
  if (!mpirun) {
    throw EnvironmentError("mpirun is not on the path, and --backend mpi needs it (Debian: openmpi-bin)");
  }
  // Quiet: flopcast-run itself tells what went wrong.
  std::vector<std::string> words = {*mpirun, "--quiet", "--oversubscribe"};
  if (geteuid() == 0) words.emplace_back("--allow-run-as-root");
  words.insert(words.end(), {"-n", fmt::format("{}", ranks)});
  return words;
}

struct Options {
  JobOptions job;
  TimelineFiles files;
  std::optional<std::string> format;
  std::optional<std::string> measured;
  std::optional<std::string> times;
  std::optional<std::string> scale;
  std::optional<int> repetitions;
  std::optional<int> warmup;
  std::optional<int> steps;
  std::optional<std::string> loss_svg;
  std::vector<std::string> beside;
  std::map<std::string_view, std::optional<std::string>> handed_on;  ///< flags of flopcast-run, as given

  void add_handed_on(CommandLine& command_line, std::span<const realrun::RunFlag> flags) {
    for (const realrun::RunFlag& flag : flags) {
      command_line.add_option(std::string(flag.name), handed_on[flag.name], std::string(flag.value_name),
                              std::string(flag.help));
    }
  }
  const realrun::Backend* backend() const {
    return realrun::find_backend(handed_on.at("--backend").value_or("threads"));
  }

  void add_to(CommandLine& command_line) {
    job.add_to(command_line);
    command_line.begin_group("Run");
    const std::span<const realrun::RunFlag> run_flags = realrun::kRunFlags;
    constexpr std::size_t kOfBackend = 3;  // the others stand behind the counts of steps
    add_handed_on(command_line, run_flags.first(kOfBackend));
    command_line.add_option("--scale", scale, "SHARE",
                            "1/64: shrink the model's width, depth, vocabulary and sequences, under the same layout");
    command_line.add_option("--repetitions", repetitions, "N", "steps that count (15); the median is shown");
    command_line.add_option("--warmup", warmup, "N", "steps before them (2)");
    command_line.add_option("--steps", steps, "N", "all steps, instead of --repetitions");
    command_line.add_option("--times", times, "FROM",
                            "of the forecast: calibration (default), measured on these ranks just before; job, priced "
                            "for the job's cluster or --profile");
    add_handed_on(command_line, run_flags.subspan(kOfBackend));
    command_line.begin_group("Emulation: more ranks than processors");
    add_handed_on(command_line, realrun::kEmulationFlags);
    command_line.begin_group("Output");
    command_line.add_option("--format", format, "FORMAT", listed_formats());
    command_line.add_output("-o,--output", measured, "keep the measurement file, comparison included");
    files.add_to(command_line);
    command_line.add_output("--loss-svg", loss_svg, "write the loss of every step as a figure");
    command_line.add_option("--beside", beside, "MEASURED", "draw the losses of an earlier run too; may be repeated");
  }

  // Found out before minutes of training.
  void check_files() const {
    if (!beside.empty() && !loss_svg) {
      throw ConfigError({"--beside", "means nothing without --loss-svg", "--beside", {}});
    }
    for (const std::string& path : beside) read_loss_curve(read_file(path), path);
    files.check(loss_svg.has_value());
    if (loss_svg) FigureOptions::check_file("--loss-svg", *loss_svg);
  }

  // An asynchronous run drains in its last step, which does not count.
  StepCounts counts(bool asynchronous) const {
    if (steps && repetitions) throw ConfigError({"--steps", "given beside --repetitions", "--steps", "give one"});
    if (warmup && *warmup < 0) throw ConfigError({"--warmup", "below 0", "--warmup", {}});
    if (repetitions && *repetitions < 1) throw ConfigError({"--repetitions", "below 1", "--repetitions", {}});
    StepCounts counts;
    const int least = asynchronous ? 1 : 0;
    if (!steps) {
      counts.warmup = warmup.value_or(StepCounts::kWarmup);
      counts.steps = std::max(counts.warmup, least) + repetitions.value_or(StepCounts::kRepetitions) + least;
      return counts;
    }
    counts.steps = *steps;
    counts.warmup = warmup.value_or(std::clamp(*steps - 1 - least, 0, StepCounts::kWarmup));
    if (counted_steps(counts.steps, counts.warmup, asynchronous) < 1) {
      throw ConfigError({"--steps", fmt::format("{} leave none that counts", *steps), "--steps",
                         asynchronous ? "an asynchronous schedule fills in its first and drains in its last: 3 or more"
                                      : "1 or more, and more than --warmup"});
    }
    return counts;
  }

  // What flopcast-run will refuse counts as the default.
  int patience_s() const {
    constexpr int kDefault = 60;
    const std::optional<std::string>& text = handed_on.at("--timeout");
    const std::optional<std::int64_t> seconds = text ? parse_whole(*text) : std::nullopt;
    constexpr std::int64_t kLongest = 1'000'000;
    return seconds && *seconds > 0 ? static_cast<int>(std::min(*seconds, kLongest)) : kDefault;
  }

  Launch launch_of(const std::string& job_file, const std::string& output, int ranks, const StepCounts& counts,
                   bool calibrates) const {
    const bool needs_mpirun = backend() != nullptr && backend()->needs_mpirun;
    std::vector<std::string> words = needs_mpirun ? mpirun_words(ranks) : std::vector<std::string>();
    words.insert(words.end(), {program_beside("flopcast-run"), job_file, "--output", output});
    const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
    constexpr int kCalibrationSteps = 6;  // before and after the run, two of them to warm up
    add("--steps", fmt::format("{}", counts.steps));
    add("--warmup", fmt::format("{}", counts.warmup));
    add("--calibration-steps", fmt::format("{}", calibrates ? kCalibrationSteps : 0));
    for (const auto& [flag, text] : handed_on) {
      if (text) words.insert(words.end(), {std::string(flag), *text});
    }
    return {std::move(words), needs_mpirun, patience_s()};
  }
};

TimesFrom parse_times_from(const std::optional<std::string>& text) {
  const std::vector<std::string> choices = {"calibration", "job"};
  if (!text || *text == choices.front()) return TimesFrom::kCalibration;
  if (*text == choices.back()) return TimesFrom::kJob;
  throw ConfigError({"--times", fmt::format("unknown value \"{}\"", *text), "--times", choices_help(*text, choices)});
}

}  // namespace

int run_run(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "run", "flopcast run [JOB] [options]",
      "Trains for real under the job's schedule and layout, on ranks of this machine, and shows "
      "the forecast beside the "
      "measurement. The model has to be a small GPT, or become one by --scale. See docs/real-runs.md.",
      {"flopcast run job.json -o measured.json --svg forecast-above-measured.svg",
       "flopcast run job.json --schedule gpipe --repetitions 30 --format json",
       "flopcast run --model gpt3-175b --cluster 1xdgx-a100-80g --tp 2 --pp 4 --gbs 8 --scale 1/64",
       "flopcast run job.json --pp 8 --compute sleep --forward 5ms --backward 10ms"});
  Options options;
  options.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = parse_format(options.format.value_or("table"));
  const TimesFrom times_from = parse_times_from(options.times);
  options.check_files();
  LoadedJob loaded = options.job.load();
  if (options.scale) {
    ScaledJob scaled = scaled_job(loaded, prepare(JobOptions::read(loaded), read_file), parse_scale(*options.scale));
    std::fputs(fmt::format("note: {}\n", scaled.told).c_str(), streams.err);
    loaded = std::move(scaled.job);
  }
  if (options.backend() != nullptr && options.backend()->on_gpus) {
    say_fp8_on_gpus(JobOptions::read(loaded).training, loaded.root);
  }
  const Job asked = JobOptions::read(loaded);
  if (const auto& finetune = asked.training.finetune; finetune && finetune->base != BaseFormat::kBf16) {
    std::fputs(
        fmt::format("note: frozen weights are in 32 bits here: {} is not executed\n", name_of(finetune->base)).c_str(),
        streams.err);
  }
  const Forecast answer = forecast(asked, read_file);
  const StepCounts counts = options.counts(answer.step.program.asynchronous);

  const PrivateFolder folder;
  const Guard guard(folder.path());
  const std::string job = folder.path() + "/job.json";
  const std::string kept = folder.path() + "/measured.json";
  // What cannot be read back is written when all is over.
  const bool copies = options.measured && is_pipe_or_device(*options.measured);
  const std::string output = copies ? kept : options.measured.value_or(kept);
  const Layout& layout = answer.step.job.layout;
  nlohmann::json given = loaded.root;
  // The measurement keeps the job, which is to need no other file.
  if (!layout.schedule_csv.empty()) {
    const nlohmann::json told = job_json(answer.step.job).at("layout");
    for (const char* key : {"schedule", "schedule_csv"}) given["layout"][key] = told.at(key);
  }
  write_file(job, dumped(given));
  const Launch launch = options.launch_of(job, output, layout.dp * layout.cp * layout.tp * layout.pp, counts,
                                          times_from == TimesFrom::kCalibration);
  const ChildRules rules{.launches = launch.by_launcher ? "flopcast-run" : "",
                         .longest_stop = std::chrono::seconds(launch.patience_s),
                         .guard = &guard};
  const ChildEnd end = run_child(launch.words, streams, rules);
  if (end.signal != 0 || end.exit_code != 0) return report_failure(end, launch, options.measured, streams);

  const RunComparison comparison =
      judge_run(asked, answer, read_measured_run(read_file(output), output), times_from, read_file);
  // So that one file tells it all.
  if (options.measured) write_file(output, with_comparison(read_file(output), comparison));
  if (copies) write_file(*options.measured, read_file(output));
  // First: the figures that follow mean less then.
  for (const std::string& disturbance : disturbance_texts(comparison)) warn(streams, disturbance);
  write_output(streams, "",
               shown_by(format) == Shows::kValues ? write_run(comparison)
                                                  : write_table(run_table(comparison), format, table_style(streams)));
  options.files.write(comparison);
  if (options.loss_svg) {
    std::vector<Series> curves = {loss_curve(comparison.schedule, comparison.losses)};
    for (const std::string& path : options.beside) curves.push_back(read_loss_curve(read_file(path), path));
    SeriesSvgOptions drawn;
    static_cast<FigureStyle&>(drawn) = options.files.figure().style();
    options.files.figure().write_to(*options.loss_svg, write_series_svg({loss_chart(std::move(curves))}, drawn));
  }
  // Rows of figures have no notes.
  if (shown_by(format) == Shows::kRows && !comparison.conditions.empty()) warn(streams, comparison.conditions);
  return 0;
}

}  // namespace flopcast
