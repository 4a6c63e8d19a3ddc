#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/job/user_spelling.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/training/training_plan.hpp"
#include "sim/files/run_backends.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

template <>
struct EnumNames<realrun::GemmPrecision> {
  static constexpr std::string_view kNames[] = {"fp32", "tf32", "bf16", "fp8"};
};

}  // namespace flopcast

namespace flopcast::realrun {

/// Emulation by sleeping: actions may sleep for given times instead of computing. Times are as the user enters them:
/// "5ms", or one per stage, "5ms,6ms"; missing ones come from the job's forecast, multiplied by `slow_down`.
struct Emulation {
  bool sleeps = false;
  std::optional<std::string> forward;
  std::optional<std::string> backward;
  std::optional<std::string> input_gradient;   ///< half of `backward` if absent
  std::optional<std::string> weight_gradient;  ///< half of `backward` if absent
  double slow_down = 1.0;
};

/// Times by stage of `program`; empty if actions compute. Throws ConfigError.
std::vector<StageTimes> slept_times(const Emulation& emulation, const PreparedStep& step, const Program& program);

/// Settings of a run that are not part of the job.
struct RunSettings {
  int steps = 5;
  int calibration_steps = 0;  ///< see CalibrationPlan
  Emulation emulation = {};
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  bool on_gpus = false;  ///< weights are stored in GPU memory instead of host memory
};

/// The plan of a priced job: the same program and stages, in 32-bit floats. An asynchronous schedule runs its `steps`
/// times m microbatches as one step without a flush.
///
/// Accepts only jobs that the network implements (see NetworkSpec), in layouts of dp, tp (1d), pp, vpp, sequence
/// parallelism, ZeRO, FSDP and HSDP, parameter servers, compression, recomputation and offload. Throws ConfigError
/// naming the field for everything else. Left out: dropout, and padding of the vocabulary.
TrainingPlan plan_from_job(const PreparedStep& step, const RunSettings& settings);

/// How ranks use GPUs.
struct GpuSettings {
  bool streams = false;     ///< virtual GPUs compete for the whole GPU instead of having their own multiprocessors
  int step_patience_s = 0;  ///< limit for a step of virtual GPUs; 0: see launch_on_virtual_gpus
  int one_gpu = 0;          ///< number of NCCL processes that share the first GPU; 0: each has its own
  std::string store = {};   ///< where processes meet; empty: the launcher's store, or a folder of this run
};

/// The command line of flopcast-run.
struct LaunchOptions {
  std::optional<std::string> job_file;
  std::vector<FlagValue> flags;      ///< flags of the job, as for `flopcast simulate`
  const Backend* backend = nullptr;  ///< null: mpi for processes that a launcher started together, otherwise threads
  std::string output;                ///< empty: standard output
  RunSettings settings;
  GpuSettings gpu;
  int warmup = 1;  ///< first steps, excluded from all figures
  int patience_s = 60;
  std::string help;  ///< text to show instead of running, if requested
};

/// Bytes that a rank uses of its GPU.
struct GpuMemoryNeed {
  double state = 0;        ///< weights, gradients and optimizer state, 32 bits each, and older versions of weights
  double copies = 0;       ///< weights rounded to 16 bits, read by products
  double activations = 0;  ///< forecast peaks
};

/// A run prepared from the command line.
struct PreparedRun {
  std::string job;  ///< file and flags together, JSON
  TrainingPlan plan;
  Precision precision = Precision::kFp32;      ///< of the job; CPUs always compute in fp32
  std::vector<GpuMemoryNeed> gpu_memory = {};  ///< by pipeline rank; empty for ranks on CPUs
  bool backend_has_processes = false;          ///< ranks are processes; otherwise threads of one process
};

/// 8-bit products require sizes that are multiples of 16 (MatrixProducts): the number of a block's four linears that
/// have such sizes on every rank.
struct Float8Linears {
  int count = 4;
  std::string others = {};  ///< linears that multiply in bf16, with the sizes that rule out 8 bits; or empty
};
Float8Linears float8_linears(const TrainingPlan& plan);

/// Reads the job. Throws ConfigError, for GPUs also if they do not support the requested fp8.
PreparedRun prepare_run(const LaunchOptions& options);

/// Throws ConfigError for anything GPU ranks do not support: compression, token slices, experts, linear biases,
/// emulated compute, heads wider than 128, fp16; and for a number of ranks other than --one-gpu specifies. Returns the
/// precision of their products.
GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run);

/// Throws ConfigError if the ranks on a GPU, and a CUDA context, need more than its `bytes`. With `sharing` 1 only the
/// pipeline rank that needs most runs on it, otherwise all ranks of the run. Left out: temporary memory of single
/// passes, and memory that other programs hold.
void check_gpu_memory(const PreparedRun& run, int sharing, const std::string& gpu, double bytes);

}  // namespace flopcast::realrun
