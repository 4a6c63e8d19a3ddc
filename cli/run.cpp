#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/child_process.hpp"
#include "cli/commands.hpp"
#include "cli/job_files.hpp"
#include "cli/job_options.hpp"
#include "cli/measured_run.hpp"
#include "cli/mpirun.hpp"
#include "cli/timeline_files.hpp"
#include "model/error/error.hpp"
#include "reports/table.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

namespace fs = std::filesystem;

// Installed beside this program; in a build tree in the folder of its sources.
std::string find_launcher() {
  const fs::path folder = fs::read_symlink("/proc/self/exe").parent_path();
  for (const fs::path& candidate : {folder / "flopcast-run", folder.parent_path() / "realrun" / "flopcast-run"}) {
    if (access(candidate.c_str(), X_OK) == 0) return candidate.string();
  }
  throw EnvironmentError(fmt::format("flopcast-run is not there: it belongs beside {} (build the target flopcast-run)",
                                     (folder / "flopcast").string()));
}

// A name for a file of this process that goes when the command ends.
class TemporaryFile {
 public:
  explicit TemporaryFile(const char* what)
      : path_((fs::temp_directory_path() / fmt::format("flopcast-{}-{}.json", what, getpid())).string()) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  TemporaryFile(TemporaryFile&&) = delete;
  TemporaryFile& operator=(TemporaryFile&&) = delete;
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What a run that failed has left in the file that the user asked for; empty when there is none.
std::string left_in(const std::optional<std::string>& file) {
  if (!file || !fs::is_regular_file(*file)) return {};
  try {
    const MeasuredRun run = read_measured_run(read_file(*file), *file);
    if (run.failure.empty()) return {};  // of an earlier run
    return fmt::format("{} has the {} step{} before that", *file, run.steps.size(), run.steps.size() == 1 ? "" : "s");
  } catch (const ConfigError&) {
    return {};
  }
}

// The child has told what happened to it on the shared standard error, unless a signal killed it.
int report_failure(const ChildEnd& end, const std::optional<std::string>& file) {
  const std::string left = left_in(file);
  if (end.signal != 0) {
    throw EnvironmentError(fmt::format("flopcast-run was killed by signal {} ({}){}{}", end.signal,
                                       strsignal(end.signal), left.empty() ? "" : "; ", left));
  }
  constexpr int kEnvironmentFailed = 4;
  // mpirun leaves with 128 and the signal of a rank that was killed.
  constexpr int kSignalled = 128;
  const int exit_code = end.exit_code < kSignalled ? end.exit_code : kEnvironmentFailed;
  if (exit_code == kEnvironmentFailed && !left.empty()) std::fputs(fmt::format("  note: {}\n", left).c_str(), stderr);
  return exit_code;
}

// What cannot be read back, such as /dev/stdout, is written when all is over.
bool is_pipe_or_device(const std::string& path) {
  const fs::file_status status = fs::status(path);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

struct Options {
  JobOptions job;
  TimelineFiles files;
  std::optional<std::string> format;
  std::optional<std::string> measured;
  std::optional<std::string> backend;
  std::optional<int> steps;
  std::optional<int> timeout;
  std::optional<std::string> learning_rate;
  std::optional<int> seed;

  void add_to(CommandLine& command_line) {
    job.add_to(command_line);
    command_line.begin_group("Run");
    command_line.add_option("--backend", backend, "NAME",
                            "threads (default): each rank a thread of one process; mpi: each a process, by mpirun");
    command_line.add_option("--steps", steps, "N", "training steps (5); the first is a warm-up");
    command_line.add_option("--timeout", timeout, "SECONDS", "how long a rank waits for another (60)");
    command_line.add_option("--learning-rate", learning_rate, "R", "of the optimizer (0.001)");
    command_line.add_option("--seed", seed, "N", "of weights and data (1)");
    command_line.begin_group("Output");
    command_line.add_option("--format", format, "NAME", "table (default), markdown, csv, json");
    command_line.add_option("-o,--output", measured, "FILE", "keep the measurement file");
    files.add_to(command_line);
  }

  std::vector<std::string> launcher_words(const std::string& job_file, const std::string& output, int ranks) const {
    std::vector<std::string> words = backend == "mpi" ? mpirun_words(ranks) : std::vector<std::string>();
    words.insert(words.end(), {find_launcher(), job_file, "--output", output});
    const auto add = [&](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
    if (backend) add("--backend", *backend);
    if (steps) add("--steps", fmt::format("{}", *steps));
    if (timeout) add("--timeout", fmt::format("{}", *timeout));
    if (learning_rate) add("--learning-rate", *learning_rate);
    if (seed) add("--seed", fmt::format("{}", *seed));
    return words;
  }
};

using Triple = std::array<double, 3>;  // forecast, replay, measured

double mean_forward_s(const StepTimes& times) {
  double sum = 0;
  for (const StageTimes& stage : times.stages) sum += static_cast<double>(stage.forward) * 1e-12;
  return sum / static_cast<double>(times.stages.size());
}

double mean_backward_s(const StepTimes& times, bool split) {
  double sum = 0;
  for (const StageTimes& stage : times.stages) {
    sum += static_cast<double>(split ? stage.input_gradient + stage.weight_gradient : stage.backward) * 1e-12;
  }
  return sum / static_cast<double>(times.stages.size());
}

bool splits_backward(const Program& program) {
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kWeightGradient) return true;
    }
  }
  return false;
}

void add_row(Table& table, const std::string& term, const std::string& key, const Triple& values) {
  std::vector<std::string> row = {term, key};
  for (const double value : values) row.push_back(fmt::format("{:.6g}", value));
  row.push_back(values[2] > 0 ? fmt::format("{:.2f}", 100.0 * (values[1] - values[2]) / values[2]) : std::string());
  table.rows.push_back(row);
}

Table comparison(const Forecast& forecast, const Timeline& replay, const StepTimes& replayed, const MeasuredRun& run,
                 const Timeline& measured) {
  Table table;
  table.title = "Forecast, replay and measurement of one step";
  table.columns = {text_column("term"),       text_column("unit"),
                   number_column("forecast"), number_column("replay"),
                   number_column("measured"), number_column("replay error %", "replay_error_percent")};
  const std::array<const Timeline*, 3> timelines = {&forecast.timeline, &replay, &measured};
  std::array<TimelineMetrics, 3> metrics;
  for (std::size_t index = 0; index < 3; ++index) metrics[index] = measure(*timelines[index]);
  const auto of_all = [&](auto value_of) {
    return Triple{value_of(metrics[0]), value_of(metrics[1]), value_of(metrics[2])};
  };
  constexpr double kSecond = 1e-12;
  add_row(table, "step time", "s",
          of_all([](const TimelineMetrics& m) { return static_cast<double>(m.makespan) * kSecond; }));
  add_row(table, "busy, mean of ranks", "s", of_all([](const TimelineMetrics& m) { return m.mean_busy() * kSecond; }));
  add_row(table, "bubble", "share", of_all([](const TimelineMetrics& m) { return m.bubble_fraction(); }));
  add_row(table, "exposed pipeline communication", "s",
          of_all([](const TimelineMetrics& m) { return m.mean_exposed_pipeline() * kSecond; }));
  add_row(table, "exposed data-parallel communication", "s",
          of_all([](const TimelineMetrics& m) { return m.mean_exposed_data_parallel() * kSecond; }));
  const bool split = splits_backward(forecast.step.program);
  const StepTimes& forecast_times = forecast.step.times;
  const double forward = mean_forward_s(replayed);
  const double backward = mean_backward_s(replayed, split);
  add_row(table, "forward of a stage, median", "s", {mean_forward_s(forecast_times), forward, forward});
  add_row(table, "backward of a stage, median", "s", {mean_backward_s(forecast_times, split), backward, backward});
  table.notes.push_back(
      fmt::format("forecast: of the job's cluster, {}; replay: this program simulated with the "
                  "medians measured here, transfers taking no time",
                  forecast.step.job.cluster.name));
  table.notes.push_back(fmt::format("{} steps; loss {:.4f} in the first, {:.4f} in the last", run.losses.size(),
                                    run.losses.front(), run.losses.back()));
  return table;
}

// A rank that computes all the time it says it does uses as much CPU time; less means that others took the core.
void warn_when_disturbed(const MeasuredRun& run, std::size_t step) {
  constexpr double kDisturbed = 1.03;
  if (run.has_tensor_ranks || run.cpu_s[step] <= 0) return;  // tensor-parallel ranks wait inside their actions
  double busy = 0;
  for (const std::vector<Span>& spans : run.steps[step].ranks) {
    for (const Span& span : spans) {
      if (is_action(span.kind)) busy += static_cast<double>(span.end - span.start) * 1e-12;
    }
  }
  if (busy < kDisturbed * run.cpu_s[step]) return;
  std::fputs(fmt::format("warning: the run was disturbed: its actions took {:.2f} s for {:.2f} s of CPU time\n", busy,
                         run.cpu_s[step])
                 .c_str(),
             stderr);
}

}  // namespace

int run_run(const Arguments& arguments) {
  CommandLine command_line("run", "flopcast run [JOB] [options]",
                           "Trains for real under the job's schedule and layout, on ranks of this machine, and shows "
                           "the forecast beside the measurement. The model has to be a small GPT.",
                           {"flopcast run job.json --steps 10 -o measured.json --svg measured.svg"});
  Options options;
  options.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = parse_format(options.format.value_or("table"));
  const Forecast answer = forecast(options.job.read(), read_file);

  const TemporaryFile job("job");
  const TemporaryFile kept("measured");
  const bool copies = options.measured && is_pipe_or_device(*options.measured);
  const std::string output = copies ? kept.path() : options.measured.value_or(kept.path());
  write_file(job.path(), options.job.load().root.dump());
  const Layout& layout = answer.step.job.layout;
  const ChildEnd end = run_child(options.launcher_words(job.path(), output, layout.dp * layout.tp * layout.pp));
  if (end.signal != 0 || end.exit_code != 0) return report_failure(end, options.measured);

  if (copies) write_file(*options.measured, read_file(output));
  const MeasuredRun run = read_measured_run(read_file(output), output);
  const std::size_t step = typical_step(run);
  const Timeline& measured = run.steps[step];
  const Program program = executed_program(measured, answer.step.program.chains);
  const StepTimes times = median_times(run, program);
  Timeline replay = simulate(program, times);
  replay.units_per_tick = measured.units_per_tick;
  write_output("", write_table(comparison(answer, replay, times, run, measured), format));
  options.files.write(std::vector<Timeline>{measured});
  warn_when_disturbed(run, step);
  return 0;
}

}  // namespace flopcast
