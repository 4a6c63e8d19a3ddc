#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "sim/engine/engine.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// The value below which the fraction `share` of the values lies, interpolated linearly at position share · (n - 1) of
/// the sorted values (Hyndman & Fan 1996, definition 7; NumPy's default). Needs at least one value and a share from 0
/// to 1.
double percentile(std::vector<double> values, double share);

/// Random factors with mean 1, the same for a seed on every machine: std::mt19937_64, whose output the standard
/// specifies, picks from a table computed only with operations that IEEE 754 specifies (std::normal_distribution and
/// the C library's exp and log differ between machines).
///
/// Lognormal with a standard deviation of `deviation`: exp(s·z - s²/2), s² = ln(1 + deviation²), z standard normal;
/// never negative. Truncated at 4 standard deviations of z: the table holds the 16,384 equally likely quantiles, scaled
/// to a mean of exactly 1.
class RandomFactors {
 public:
  /// A deviation of 0 always gives 1.
  RandomFactors(double deviation, std::uint64_t seed);

  double next();
  /// True with the given probability.
  bool chance(double probability);

 private:
  std::mt19937_64 generator_;
  std::vector<double> quantiles_;  // empty if the deviation is 0
  std::uint64_t bits_ = 0;
  int picks_left_ = 0;  // in bits_
};

/// ln x and e^x, the same on every machine, for 0 < x and for |x| below 700; relative error about 1e-15.
double natural_logarithm(double x);
double exponential(double x);

/// The standard normal distribution's inverse, for 0 < probability < 1; relative error about 1e-15 (Wichura, Algorithm
/// AS 241, Applied Statistics 37(3), 1988, PPND16).
double normal_quantile(double probability);

/// A device that computes more slowly: the computation in its passes and its optimizer take `factor` times as long; its
/// communication does not.
struct Straggler {
  std::optional<int> device;  ///< a global rank that is slow in every step; absent: any device
  double probability = 1.0;   ///< probability that a device is slow in a step, if none is named
  double factor = 1.0;

  std::string text() const;  ///< "device 3 x 1.2", "0.1 % of devices x 1.5"
};

/// Variation from step to step.
struct Variation {
  double jitter = 0.0;  ///< standard deviation of a pass's time over its mean
  std::vector<Straggler> stragglers;
  int samples = 1'000;
  std::uint64_t seed = 1;
};

/// Distribution of the step time by seeded Monte Carlo: the same figures for a seed on every machine.
///
/// In each sample, each pass (F, B, I, W) and each optimizer step of each data-parallel replica takes its time
/// multiplied by a lognormal factor with mean 1 and standard deviation `jitter`, independent of all others; an
/// overlapped pair has one factor. The tensor- and context-parallel ranks of a pipeline rank work as one, as slowly as
/// the slowest straggler among them. Replicas wait for each other at the gradient reduction; replicas that gather
/// weights, reduce gradients or exchange tokens within passes also wait in every pass, which then takes as long as in
/// the slowest of them.
/// With a jitter of 0 and no stragglers every sample is the forecast, to the picosecond.
///
/// Percentiles interpolate between order statistics: x[k] + f (x[k+1] - x[k]) with k + f = q (n - 1), as in NumPy.
/// Left out: jitter of transfers and collectives, slowness that lasts over several steps (unless a device is named), a
/// step that starts on some ranks while others finish the previous one.
/// Cost: one simulation per sample and replica.
/// Throws ConfigError for an asynchronous schedule, which has no steps, and for a device that does not exist.
DistributionResult sample_step_times(const PreparedStep& step, const Variation& variation);

/// The step time of each sample, in order, in picoseconds.
std::vector<Ticks> step_time_samples(const PreparedStep& step, const Variation& variation);

/// Number of adjacent data-parallel replicas that synchronize in every pass because they share weights, gradients or
/// experts there. 1 if replicas synchronize only at the gradient reduction.
int replicas_in_step(const PreparedStep& step);

/// Adds the distribution to a forecast, and the random factors used to its assumptions.
void add_distribution(const Variation& variation, Forecast& forecast);

/// The contents of a microbatch.
struct PackedMicrobatch {
  int sequences = 0;
  double tokens = 0.0;
  double squares = 0.0;  ///< sum of the squared lengths
};

/// Packs sequences in the given order, starting over when they run out, into `microbatches` microbatches of `room`
/// tokens: a sequence that does not fit opens the next one (next fit). Throws ConfigError (--sequence-lengths) on an
/// empty list and on a sequence longer than the room or shorter than one token.
std::vector<PackedMicrobatch> pack_sequences(const std::vector<int>& lengths, int room, int microbatches);

/// Fraction of the tokens that are not padding if each sequence has its own row. Rows follow the given order, starting
/// over at the end; longer ones are cut to `length`; a microbatch has `rows` rows. The list must not be empty.
struct PaddedRows {
  double to_length = 0.0;   ///< padded to `length`
  double to_longest = 0.0;  ///< padded to the longest row of the microbatch
};
PaddedRows pad_sequences(const std::vector<int>& lengths, int length, int rows);

/// A step whose microbatches hold sequences of these lengths, microbatch by microbatch.
///
/// Microbatches keep the shape of micro_batch_size x sequence_length tokens, as pipelines send it; the empty remainder
/// is padding and costs as much as tokens, except in attention. Attention works within each sequence: relative to full
/// sequences, a microbatch takes the fraction squares / (micro_batch_size · sequence_length²) of the time, forward,
/// backward and recomputed (FlashAttention with variable lengths). Microbatch k of a step goes to replica k mod dp, as
/// in Megatron-LM. For comparison, the result also has the throughput with each sequence padded. `equal_s` is a step of
/// the same work in which every microbatch takes the mean.
/// Left out: packing that looks ahead or sorts, the kernel's own overhead for short sequences, memory, FLOPs and MFU.
/// Throws ConfigError if attention is not fused, and with context parallelism, tensor parallelism in grids, token
/// slices, uneven nodes, a layer profile or an asynchronous schedule.
PackingResult pack_step(const PreparedStep& step, const std::vector<int>& lengths);

/// Adds the packing result to a forecast.
void add_packing(const std::vector<int>& lengths, Forecast& forecast);

/// One training step of data-parallel replicas whose passes take different times. Each replica's pipeline runs
/// independently up to the gradient reductions, which are collectives of all replicas: each starts when the last
/// replica is ready for it. From there on all replicas run alike.
///
/// With the plain times in every replica the result equals that of simulate(), to the tick.
/// Left out: all other synchronization of replicas. If replicas gather weights or exchange tokens within passes, add
/// them as one replica with the slowest time of every pass.
class SynchronizedReplicas {
 public:
  /// The schedule must flush, and the times must have a flush.
  SynchronizedReplicas(const Program& program, const StepTimes& times);

  /// The work of one replica ahead of its flush, as tasks: passes, overlapped pairs and blocking sends.
  const LoweredStep& work() const { return work_; }
  /// The action of an overlapped pair that runs together with labels[task]; null for every other task.
  const Action* second_of_pair(TaskId task) const;

  /// Discards the replicas of the previous step.
  void begin();
  /// Adds a replica with the duration of each task of its work.
  void add_replica(const std::vector<Ticks>& durations);
  /// Returns the end of the step; `optimizer` has the time of the slowest replica, indexed by pipeline rank.
  Ticks end_of_step(const std::vector<Ticks>& optimizer);

 private:
  // An overlapped reduction that starts `early` before the end of a pass of that duration, in proportion to it.
  struct EarlyReduction {
    TaskId pass = 0;
    Ticks early = 0;
    Ticks pass_duration = 0;
    Ticks duration = 0;
    Ticks ready = 0;  // in the latest replica
  };
  void find_early_reductions(const Program& program, const StepTimes& times);
  void shape_flush(const Program& program, const StepTimes& times);

  LoweredStep work_;
  EngineResult result_;
  std::vector<std::vector<EarlyReduction>> reductions_;  // indexed by rank
  std::vector<Ticks> last_end_;                          // indexed by rank, in the latest replica
  Program flush_;  // each rank's whole work as one pass, followed by the step's flush
  StepTimes flush_times_;
  LoweredStep lowered_flush_;
};

}  // namespace flopcast
