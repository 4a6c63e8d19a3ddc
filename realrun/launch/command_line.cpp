#include "realrun/launch/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <span>

#include "base/host/command_line.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast::realrun {

namespace {

int whole_number(const std::string& flag, const std::string& text, int smallest = 1) {
  constexpr int kLargest = 1'000'000;
  const std::optional<std::int64_t> value = parse_whole(text);
  if (!value || *value < smallest || *value > kLargest) {
    throw ConfigError(
        {flag, fmt::format("\"{}\" is not a whole number from {} to {}", text, smallest, kLargest), flag, {}});
  }
  return static_cast<int>(*value);
}

double positive_number(const std::string& flag, const std::string& text) {
  const std::optional<double> value = parse_number(text);
  if (!value || !(*value > 0) || !(*value < 1e6)) {
    throw ConfigError({flag, fmt::format("\"{}\" is not a positive number", text), flag, {}});
  }
  return *value;
}

// Value of a flag that accepts a fixed set of words.
std::string chosen(const char* flag, const char* what, const std::string& text,
                   const std::vector<std::string>& choices) {
  if (std::find(choices.begin(), choices.end(), text) != choices.end()) return text;
  throw ConfigError({flag, fmt::format("unknown {} \"{}\"", what, text), flag, choices_help(text, choices)});
}

/// The texts of the command line's flags by name.
class RunTexts {
 public:
  void add(CommandLine& command_line, const RunFlag& flag) {
    const std::string names(flag.name);
    command_line.add_option(names, texts_[names.substr(0, names.find(','))], std::string(flag.value_name),
                            std::string(flag.help));
  }
  const std::optional<std::string>& of(const std::string& name) const { return texts_.at(name); }

 private:
  std::map<std::string, std::optional<std::string>> texts_;
};

constexpr std::array<RunFlag, 5> kOwnFlags = {
    {{"--store", "ADDRESS",
      "where nccl's processes meet: file:FOLDER or tcp:HOST:PORT (default: MASTER_ADDR and MASTER_PORT, or a temporary "
      "folder if they are forked here)"},
     {"--steps", "N", "training steps (5)"},
     {"--warmup", "N", "first steps to exclude from the samples (1)"},
     {"--calibration-steps", "N",
      "steps of each rank alone, before the training and on separate weights, and messages, from which the run can be "
      "forecast (0)"},
     {"--output,-o", "FILE", "the measurement file (standard output)"}}};

void set_emulation(Emulation& emulation, const RunTexts& texts) {
  if (const auto& text = texts.of("--compute")) {
    emulation.sleeps = chosen("--compute", "compute mode", *text, {"network", "sleep"}) == "sleep";
  }
  emulation.forward = texts.of("--forward");
  emulation.backward = texts.of("--backward");
  emulation.input_gradient = texts.of("--backward-input");
  emulation.weight_gradient = texts.of("--backward-weight");
  if (const auto& text = texts.of("--slow-down")) emulation.slow_down = positive_number("--slow-down", *text);
}

void set_backend(LaunchOptions& options, const RunTexts& texts) {
  if (const auto& text = texts.of("--backend")) {
    std::vector<std::string> names;
    for (const Backend& backend : kBackends) names.emplace_back(backend.name);
    options.backend = find_backend(chosen("--backend", "backend", *text, names));
  }
  for (const Backend& backend : kBackends) {
    if (options.backend == &backend) continue;
    for (const std::string_view name : backend.flags) {
      const std::string flag(name);
      if (flag.empty() || !texts.of(flag)) continue;
      throw ConfigError({flag, fmt::format("works only with --backend {}", backend.name), flag, {}});
    }
  }
  if (const auto& text = texts.of("--partition")) {
    options.gpu.streams = chosen("--partition", "partition", *text, {"green", "streams"}) == "streams";
  }
  if (const auto& text = texts.of("--step-timeout")) {
    options.gpu.step_patience_s = whole_number("--step-timeout", *text);
  }
  constexpr int kFewestToShare = 2;
  if (const auto& text = texts.of("--one-gpu")) options.gpu.one_gpu = whole_number("--one-gpu", *text, kFewestToShare);
  options.gpu.store = texts.of("--store").value_or("");
}

void set_steps(LaunchOptions& options, const RunTexts& texts) {
  RunSettings& settings = options.settings;
  if (const auto& text = texts.of("--steps")) settings.steps = whole_number("--steps", *text);
  if (const auto& text = texts.of("--calibration-steps")) {
    settings.calibration_steps = whole_number("--calibration-steps", *text, 0);
  }
  const auto& warmup = texts.of("--warmup");
  options.warmup = warmup ? whole_number("--warmup", *warmup, 0) : std::min(1, settings.steps - 1);
  if (options.warmup < settings.steps) return;
  throw ConfigError(
      {"--warmup",
       fmt::format("{} of {} steps are warm-up: no step is left to measure", options.warmup, settings.steps),
       "--warmup",
       {}});
}

}  // namespace

LaunchOptions parse_launch_options(const std::vector<std::string>& arguments) {
  CommandLine command_line(
      standard_streams(), "", "flopcast-run [JOB] [options]",
      "Trains a small transformer for real with the job's schedule and layout, and writes the measurements. `flopcast "
      "run` starts it, and compares them with the forecast.",
      {"flopcast-run job.json --steps 3 -o measured.json", "mpirun -n 4 flopcast-run job.json -o measured.json",
       "srun --ntasks-per-node 8 flopcast-run job.json --backend nccl -o measured.json"});
  LaunchOptions options;
  RunTexts texts;
  command_line.add_positional("JOB", options.job_file, "job file; its keys are also flags, as for flopcast simulate");
  for (const std::span<const RunFlag> flags : {std::span<const RunFlag>(kRunFlags), {kEmulationFlags}, {kOwnFlags}}) {
    for (const RunFlag& flag : flags) texts.add(command_line, flag);
  }
  for (const JobKey& key : job_keys()) {
    std::vector<std::string> names(key.aliases.begin(), key.aliases.end());
    names.push_back(fmt::format("--{}", key.field));
    for (const std::string& name : names) {
      command_line.add_callback(name, key.kind != FieldKind::kBoolean, std::string(key.value_name),
                                std::string(key.help), false, [&options, &key, name](const std::string& text) {
                                  options.flags.push_back({&key, name, text});
                                });
    }
  }
  if (const std::optional<std::string> help = command_line.read(arguments)) {
    options.help = *help;
    return options;
  }
  set_backend(options, texts);
  set_emulation(options.settings.emulation, texts);
  set_steps(options, texts);
  options.output = texts.of("--output").value_or("");
  if (const auto& text = texts.of("--timeout")) options.patience_s = whole_number("--timeout", *text);
  if (const auto& text = texts.of("--learning-rate")) {
    options.settings.learning_rate = positive_number("--learning-rate", *text);
  }
  if (const auto& text = texts.of("--seed")) {
    options.settings.seed = static_cast<std::uint64_t>(whole_number("--seed", *text));
  }
  return options;
}

bool show_help(const LaunchOptions& options) {
  if (options.help.empty()) return false;
  std::fputs(options.help.c_str(), stdout);
  return true;
}

}  // namespace flopcast::realrun
