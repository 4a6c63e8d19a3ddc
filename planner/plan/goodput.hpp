#pragma once

namespace flopcast {

/// What interrupts a long run. Times in seconds.
struct Interruptions {
  /// Between two failures of one GPU, whatever fails (its host and network with it). Default: 419 unexpected
  /// interruptions in 54 days on 16,384 H100, that is 50,676 GPU hours (Llama 3, 2407.21783, Table 5).
  double gpu_mtbf_s = 54.0 * 86'400.0 * 16'384.0 / 419.0;
  /// The run stands still while a checkpoint is written, and from a failure to the first step again (the steps lost not
  /// counted). Both chosen, so that Llama 3's more than 90 % effective training time comes out (2407.21783
  /// section 3.3.4).
  double checkpoint_s = 10.0;
  double restart_s = 300.0;
};

struct Goodput {
  double interval_s = 0.0;  ///< between checkpoints
  double fraction = 1.0;    ///< of the time on the clock that trains
  double failures_per_day = 0.0;

  /// Whether the run comes to its end: below a hundredth of the time the model is of no use, and the days mean nothing.
  bool finishes() const { return fraction >= 0.01; }
};

/// The best checkpoint interval and what of the time is left for training.
///   interval  √(2CM)·(1 + ⅓·√(C/2M) + C/18M) - C for C < 2M, else M: Daly 2006 (doi 10.1016/j.future.2004.11.016),
///             eq. 37; its first term is Young 1974 (doi 10.1145/361147.361115)
///   fraction  τ / (M·e^(R/M)·(e^((τ+C)/M) - 1)): Daly's eq. 20, failures anywhere, also while checkpointing or
///             restarting
/// with M the mean time between failures of all GPUs together, C a checkpoint, R a restart.
/// Left out: failures that come in bursts, hangs that nobody notices, slow nodes.
Goodput goodput_of(const Interruptions& interruptions, int gpus);

}  // namespace flopcast
