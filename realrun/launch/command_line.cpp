#include "realrun/launch/command_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

const std::vector<std::string>& own_flags() {
  static const std::vector<std::string> names = {"--backend",
                                                 "--output",
                                                 "--steps",
                                                 "--warmup",
                                                 "--calibration-steps",
                                                 "--timeout",
                                                 "--learning-rate",
                                                 "--seed",
                                                 "--compute",
                                                 "--forward",
                                                 "--backward",
                                                 "--backward-input",
                                                 "--backward-weight",
                                                 "--slow-down",
                                                 "--partition",
                                                 "--one-gpu",
                                                 "--store",
                                                 "--help"};
  return names;
}

const JobKey* find_key(const std::string& flag) {
  for (const JobKey& key : job_keys()) {
    if (flag == fmt::format("--{}", key.field)) return &key;
    for (const std::string_view alias : key.aliases) {
      if (flag == alias) return &key;
    }
  }
  return nullptr;
}

int whole_number(const std::string& flag, const std::string& text, long smallest = 1) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  constexpr long kLargest = 1'000'000;
  if (text.empty() || *end != '\0' || value < smallest || value > kLargest) {
    throw ConfigError(
        {flag, fmt::format("\"{}\" is no whole number from {} to {}", text, smallest, kLargest), flag, {}});
  }
  return static_cast<int>(value);
}

double positive_number(const std::string& flag, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || !(value < 1e6)) {
    throw ConfigError({flag, fmt::format("\"{}\" is no positive number", text), flag, {}});
  }
  return value;
}

void set_backend(LaunchOptions& options, const std::string& text) {
  const std::vector<std::string> choices = {"threads", "mpi", "virtual-gpus", "nccl"};
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    throw ConfigError(
        {"--backend", fmt::format("unknown backend \"{}\"", text), "--backend", choices_help(text, choices)});
  }
  options.backend = text;
}

void set_compute(Emulation& emulation, const std::string& text) {
  const std::vector<std::string> choices = {"network", "sleep"};
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    throw ConfigError(
        {"--compute", fmt::format("unknown way to compute \"{}\"", text), "--compute", choices_help(text, choices)});
  }
  emulation.sleeps = text == "sleep";
}

void set_partition(GpuSettings& settings, const std::string& text) {
  const std::vector<std::string> choices = {"green", "streams"};
  if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
    throw ConfigError(
        {"--partition", fmt::format("unknown partition \"{}\"", text), "--partition", choices_help(text, choices)});
  }
  settings.partition = text;
}

// Returns false when the flag is none of them.
bool set_emulation(Emulation& emulation, const std::string& flag, const std::string& text) {
  if (flag == "--compute") {
    set_compute(emulation, text);
  } else if (flag == "--forward") {
    emulation.forward = text;
  } else if (flag == "--backward") {
    emulation.backward = text;
  } else if (flag == "--backward-input") {
    emulation.input_gradient = text;
  } else if (flag == "--backward-weight") {
    emulation.weight_gradient = text;
  } else if (flag == "--slow-down") {
    emulation.slow_down = positive_number(flag, text);
  } else {
    return false;
  }
  return true;
}

void set_own(LaunchOptions& options, const std::string& flag, const std::string& text) {
  if (set_emulation(options.settings.emulation, flag, text)) return;
  if (flag == "--backend") {
    set_backend(options, text);
  } else if (flag == "--output") {
    options.output = text;
  } else if (flag == "--steps") {
    options.settings.steps = whole_number(flag, text);
  } else if (flag == "--warmup") {
    options.warmup = whole_number(flag, text, 0);
  } else if (flag == "--calibration-steps") {
    options.settings.calibration_steps = whole_number(flag, text, 0);
  } else if (flag == "--timeout") {
    options.patience_s = whole_number(flag, text);
  } else if (flag == "--partition") {
    set_partition(options.gpu, text);
  } else if (flag == "--one-gpu") {
    options.gpu.one_gpu = whole_number(flag, text, 2);
  } else if (flag == "--store") {
    options.gpu.store = text;
  } else if (flag == "--learning-rate") {
    options.settings.learning_rate = positive_number(flag, text);
  } else {
    options.settings.seed = static_cast<std::uint64_t>(whole_number(flag, text));
  }
}

[[noreturn]] void refuse_flag(const std::string& flag) {
  std::vector<std::string> known = own_flags();
  for (const JobKey& key : job_keys()) known.push_back(fmt::format("--{}", key.field));
  const std::vector<std::string> near = nearest_choices(flag, known);
  throw ConfigError({flag, "unknown flag", flag,
                     near.empty() ? "see: flopcast-run --help" : fmt::format("did you mean {}?", near.front())});
}

}  // namespace

namespace {

void check_gpu_flags(const LaunchOptions& options) {
  if (!options.gpu.partition.empty() && options.backend != "virtual-gpus") {
    throw ConfigError({"--partition", "is for --backend virtual-gpus only", "--partition", {}});
  }
  if (options.backend == "nccl") return;
  if (options.gpu.one_gpu > 0) throw ConfigError({"--one-gpu", "is for --backend nccl only", "--one-gpu", {}});
  if (!options.gpu.store.empty()) throw ConfigError({"--store", "is for --backend nccl only", "--store", {}});
}

}  // namespace

LaunchOptions parse_launch_options(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  for (std::size_t index = 0; index < arguments.size(); ++index) {
    std::string flag = arguments[index];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      continue;
    }
    if (flag.empty() || flag.front() != '-') {
      if (options.job_file) throw ConfigError({"JOB", fmt::format("a second job file, {}", flag), {}, "give one"});
      options.job_file = flag;
      continue;
    }
    const std::size_t equals = flag.find('=');
    std::optional<std::string> value;
    if (equals != std::string::npos) value = flag.substr(equals + 1);
    flag = flag.substr(0, equals);
    if (flag == "-o") flag = "--output";
    const bool own = std::find(own_flags().begin(), own_flags().end(), flag) != own_flags().end();
    const JobKey* key = own ? nullptr : find_key(flag);
    if (!own && key == nullptr) refuse_flag(flag);
    if (!value && key != nullptr && key->kind == KeyKind::kBoolean) value = "true";
    if (!value && index + 1 < arguments.size()) value = arguments[++index];
    if (!value) throw ConfigError({flag, "a value is missing", flag, {}});
    if (own) {
      set_own(options, flag, *value);
    } else {
      options.flags.push_back({key, flag, *value});
    }
  }
  check_gpu_flags(options);
  const bool warms_up = std::any_of(arguments.begin(), arguments.end(),
                                    [](const std::string& word) { return word.rfind("--warmup", 0) == 0; });
  if (!warms_up) options.warmup = std::min(1, options.settings.steps - 1);
  if (options.warmup >= options.settings.steps) {
    throw ConfigError({"--warmup",
                       fmt::format("{} of {} steps warm up: none is left", options.warmup, options.settings.steps),
                       "--warmup",
                       {}});
  }
  return options;
}

std::string launch_help() {
  return "usage: flopcast-run [JOB] [options]\n\n"
         "Trains a small transformer for real under the job's schedule and layout, and writes what it measured.\n"
         "`flopcast run` starts it, and shows the forecast beside the measurement.\n\n"
         "  JOB                  job file; its keys are flags too, as for flopcast simulate\n"
         "  --backend NAME       threads: each rank a thread of this process; mpi: each a process, all started by\n"
         "                       mpirun or srun (the default under them); nccl: each a process with a GPU, forked "
         "here\n"
         "                       or started by torchrun, srun or mpirun; virtual-gpus: all on one GPU, for testing\n"
         "  --partition NAME     of a virtual GPU: green, multiprocessors of its own (default), or streams, which\n"
         "                       compete for all of them\n"
         "  --one-gpu N          nccl with all N ranks on the first GPU, over loopback sockets: slow, for testing\n"
         "  --store ADDRESS      where nccl's processes meet: file:FOLDER or tcp:HOST:PORT (from MASTER_ADDR and\n"
         "                       MASTER_PORT; a folder of its own when they are forked here)\n"
         "  --steps N            training steps (5)\n"
         "  --warmup N           first steps that the samples leave out (1)\n"
         "  --calibration-steps N  steps of each rank on its own, before the training and with weights of their own,\n"
         "                       and messages, from which the run can be forecast (0)\n"
         "  --compute NAME       network: train (default); sleep: take the time of the passes only\n"
         "  --forward T[,T...]   slept for a forward pass: one time, or one a stage; also --backward, "
         "--backward-input\n"
         "                       and --backward-weight; the forecast's otherwise\n"
         "  --slow-down F        sleep F times as long as the forecast says (1)\n"
         "  --timeout SECONDS    how long a rank waits for another (60)\n"
         "  --learning-rate R    of the optimizer (0.001)\n"
         "  --seed N             of weights and data (1)\n"
         "  -o, --output FILE    the measurement file; standard output otherwise\n";
}

}  // namespace flopcast::realrun
