#pragma once

#include <cstdint>

#include "realrun/launch/emulation.hpp"
#include "realrun/training/training_plan.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast::realrun {

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
