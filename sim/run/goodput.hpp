#pragma once

#include "model/job.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/failures.hpp"

namespace flopcast {

/// What interrupts a long run, in three numbers. Times in seconds.
struct Interruptions {
  /// Between two failures of one GPU, whatever fails (its host and network with it).
  double gpu_mtbf_s = kGpuMtbf.value();
  /// The run stands still while a checkpoint is written, and from a failure to the first step again (the steps lost not
  /// counted). Both chosen: see kUsualRestart.
  double checkpoint_s = 10.0;
  double restart_s = kUsualRestart.value();
};

struct Goodput {
  double interval_s = 0.0;  ///< between checkpoints
  double fraction = 1.0;    ///< of the time on the clock that trains
  double failures_per_day = 0.0;

  /// Whether the run comes to its end: below a hundredth of the time the model is of no use, and the days mean nothing.
  bool finishes() const { return fraction >= 0.01; }
};

/// The interval between checkpoints that loses least: √(2CM)·(1 + ⅓·√(C/2M) + C/18M) - C for C < 2M, else M (Daly 2006,
/// doi 10.1016/j.future.2004.11.016, eq. 37; its first term is Young 1974, doi 10.1145/361147.361115).
double best_checkpoint_interval(double checkpoint_s, double mtbf_s);

/// The share of the time on the clock that trains, with a checkpoint after each `interval_s` of training:
///   τ / (M·e^(R/M)·(e^((τ+C)/M) - 1))
/// Daly's eq. 20, failures anywhere, also while checkpointing or restarting.
double daly_fraction(double interval_s, double checkpoint_s, double restart_s, double mtbf_s);

/// The best checkpoint interval and what of the time is left for training, with M the mean time between failures of all
/// GPUs together, C a checkpoint, R a restart.
/// Left out: failures that come in bursts, hangs that nobody notices, slow nodes; sim/run/run.hpp has them.
Goodput goodput_of(const Interruptions& interruptions, int gpus);

/// The bytes of a checkpoint: weights and optimizer state, once. Of adapters what is trained alone; of a layer profile
/// the parameters its layers tell.
Bytes checkpoint_bytes(const Job& job);

/// What a section `failures` comes to in three numbers: all causes that stop the run together, the checkpoint that
/// stands still for least (of the copy in memory where there is one), the mean of what follows a failure. What the
/// closed form leaves out is left out.
Interruptions interruptions_of(const Job& job);

/// Of one level: what its checkpoints take. Times in seconds.
struct CheckpointTimes {
  double blocking_s = 0.0;  ///< the run stands still
  double writing_s = 0.0;   ///< beside the next steps, until it counts
  double restore_s = 0.0;   ///< from a replacement at hand to the next step
};
/// From the policy where it says, else from the bytes of the job:
///   storage, synchronous    bytes / storage bandwidth; asynchronous: bytes of a GPU / host bandwidth blocks, the rest
///                           is written beside the steps
///   memory of peers         bytes of a GPU / host bandwidth blocks
///   restore                 restart + bytes / storage bandwidth, or restart + bytes of a node / its network's
/// Every GPU saves and reads an equal share (PyTorch DCP, Megatron's distributed checkpoints).
/// Left out: sharing of storage with others, traffic to the peers, which the next steps hide.
/// Throws ConfigError where host_bandwidth is needed and not known.
CheckpointTimes storage_times(const Job& job);
CheckpointTimes memory_times(const Job& job);

}  // namespace flopcast
