#include "realrun/launch/prepared_run.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "realrun/device/arithmetic.hpp"

namespace flopcast::realrun {

namespace {

std::string read_text_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream) throw ConfigError({"", fmt::format("{} cannot be read", path), path, {}});
  return text;
}

}  // namespace

PreparedRun prepare_run(const LaunchOptions& options) {
  Origins origins;
  nlohmann::json root = nlohmann::json::object();
  if (options.job_file) {
    root = parse_json(read_text_file(*options.job_file), *options.job_file);
    origins.file = *options.job_file;
  }
  apply_flags(options.flags, root, origins);
  const PreparedStep step = prepare(read_job(root, origins), read_text_file);
  RunSettings settings = options.settings;
  settings.on_gpus = options.backend != nullptr && options.backend->on_gpus;
  return {root, plan_from_job(step, settings), step.job.training.precision};
}

GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run) {
  const TrainingPlan& plan = run.plan;
  if (plan.compression.kind != Compression::Kind::kNone) {
    throw ConfigError({"layout.compression",
                       fmt::format("{} is not done on GPUs", plan.compression.text()),
                       {},
                       "--backend threads or mpi"});
  }
  if (plan.slices() > 1) {
    throw ConfigError({"layout.schedule",
                       fmt::format("{} cuts sequences into slices, which is not done on GPUs", plan.program.schedule),
                       {},
                       "--backend threads or mpi"});
  }
  if (!plan.sleep.empty()) {
    throw ConfigError({"--compute", "GPUs do not sleep", "--compute", "--backend threads or mpi"});
  }
  const int head_dim = plan.network.hidden / plan.network.heads;
  if (head_dim > cuda::kLargestHead) {
    throw ConfigError({"model.head_dim",
                       fmt::format("heads of {} are wider than the {} that GPUs can do", head_dim, cuda::kLargestHead),
                       {},
                       "more heads"});
  }
  const int ranks = plan.ranks();
  if (options.gpu.one_gpu > 0 && options.gpu.one_gpu != ranks) {
    throw ConfigError({"--one-gpu", fmt::format("{}, and the job has {} ranks", options.gpu.one_gpu, ranks),
                       "--one-gpu", fmt::format("{}", ranks)});
  }
  switch (run.precision) {
    case Precision::kFp32:
      return GemmPrecision::kFp32;
    case Precision::kTf32:
      return GemmPrecision::kTf32;
    case Precision::kBf16:
      return GemmPrecision::kBf16;
    case Precision::kFp16:
    case Precision::kFp8:
      break;
  }
  throw ConfigError({"training.precision",
                     fmt::format("{} is not done on GPUs", name_of(run.precision)),
                     {},
                     "valid: fp32, tf32, bf16"});
}

std::string_view name_of(GemmPrecision precision) {
  switch (precision) {
    case GemmPrecision::kFp32:
      return "fp32";
    case GemmPrecision::kTf32:
      return "tf32";
    case GemmPrecision::kBf16:
      break;
  }
  return "bf16";
}

}  // namespace flopcast::realrun
