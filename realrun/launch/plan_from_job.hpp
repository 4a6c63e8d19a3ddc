#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/job/typed_words.hpp"
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

/// Whether and for how long actions sleep instead of computing. Times are as the user writes them: "5ms", or one a
/// stage, "5ms,6ms"; what is not given comes from the job's forecast, times `slow_down`.
struct Emulation {
  bool sleeps = false;
  std::optional<std::string> forward;
  std::optional<std::string> backward;
  std::optional<std::string> input_gradient;   ///< half of a given `backward` when absent
  std::optional<std::string> weight_gradient;  ///< half of a given `backward` when absent
  double slow_down = 1.0;
};

/// By stage of `program`; nothing when actions compute. Throws ConfigError.
std::vector<StageTimes> slept_times(const Emulation& emulation, const PreparedStep& step, const Program& program);

/// What a run needs beside the job.
struct RunSettings {
  int steps = 5;
  int calibration_steps = 0;  ///< see CalibrationPlan
  Emulation emulation = {};
  double learning_rate = 1e-3;
  std::uint64_t seed = 1;
  bool on_gpus = false;  ///< weights lie in the memory of GPUs, and not in the machine's
};

/// The run of a priced job: the same program, the same stages, in 32-bit floats. An asynchronous schedule runs its
/// `steps` times m microbatches as one step without a flush.
///
/// Only jobs that mean what the network does are taken (see NetworkSpec) in layouts of dp, tp (1d), pp, vpp, sequence
/// parallelism, ZeRO, FSDP and HSDP, parameter servers, compression, recomputation and offload. Anything else throws
/// ConfigError with the field. Dropout is left out, and so is the rounding up of the vocabulary.
TrainingPlan plan_from_job(const PreparedStep& step, const RunSettings& settings);

/// How ranks use GPUs.
struct GpuSettings {
  bool streams = false;     ///< virtual GPUs compete for all of the GPU, and have no multiprocessors of their own
  int step_patience_s = 0;  ///< virtual GPUs may take so long for a step; 0: see launch_on_virtual_gpus
  int one_gpu = 0;          ///< processes with NCCL that share the first GPU; 0: each has its own
  std::string store = {};   ///< where processes meet; empty: the launcher's, or a folder of this run
};

/// What flopcast-run was asked for.
struct LaunchOptions {
  std::optional<std::string> job_file;
  std::vector<FlagValue> flags;      ///< of the job, as `flopcast simulate` has them
  const Backend* backend = nullptr;  ///< null: mpi for processes that a launcher started together, threads otherwise
  std::string output;                ///< empty: standard output
  RunSettings settings;
  GpuSettings gpu;
  int warmup = 1;  ///< first steps that no figure counts
  int patience_s = 60;
  std::string help;  ///< to be shown instead of a run, where it was asked for
};

/// Bytes that a rank takes of its GPU.
struct GpuMemoryNeed {
  double state = 0;        ///< weights, gradients and optimizer state, 32 bits each, and older versions of weights
  double copies = 0;       ///< weights rounded to 16 bits, which products read
  double activations = 0;  ///< peaks, as forecast
};

/// What the command line asks to run.
struct PreparedRun {
  std::string job;  ///< file and flags together, JSON
  TrainingPlan plan;
  Precision precision = Precision::kFp32;      ///< of the job; what CPUs do is always fp32
  std::vector<GpuMemoryNeed> gpu_memory = {};  ///< by pipeline rank; empty for ranks on CPUs
  bool backend_has_processes = false;          ///< ranks are processes, else threads of one
};

/// Products of 8 bits want sizes that are multiples of 16 (MatrixProducts): how many of a block's four linears have
/// them on every rank.
struct Float8Linears {
  int count = 4;
  std::string others = {};  ///< the linears that multiply in bf16, with the sizes that keep them from 8 bits; or empty
};
Float8Linears float8_linears(const TrainingPlan& plan);

/// Reads the job. Throws ConfigError, on GPUs also for an fp8 that they do not do.
PreparedRun prepare_run(const LaunchOptions& options);

/// Throws ConfigError for what GPU ranks cannot do: compression, token slices, experts, linear biases, emulated
/// compute, heads wider than 128, fp16; and for another number of ranks than --one-gpu says. Returns how their
/// products are computed.
GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run);

/// Throws ConfigError where a GPU with so many bytes does not hold what is to run on it, with a CUDA context: all ranks
/// of the run, or with `sharing` 1 the pipeline rank that takes most. Left out: what single passes need while they run,
/// and memory that other programs hold.
void check_gpu_memory(const PreparedRun& run, int sharing, const std::string& gpu, double bytes);

}  // namespace flopcast::realrun
