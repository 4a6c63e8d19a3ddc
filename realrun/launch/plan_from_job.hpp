#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "realrun/training/training_plan.hpp"
#include "sim/forecast/prepare.hpp"

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
/// Only jobs that mean what the network does are taken: a GPT (learned positions, LayerNorm, GELU, biases, as many
/// key/value heads as query heads) in layouts of dp, tp (1d), pp, vpp, sequence parallelism, ZeRO and compression other
/// than PowerSGD. Anything else throws ConfigError with the field. Dropout is left out, and so is the rounding up of
/// the vocabulary.
TrainingPlan plan_from_job(const PreparedStep& step, const RunSettings& settings);

}  // namespace flopcast::realrun
