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

/// The value below which a share of them lies, straight between the two next to it: place share · (n - 1) of the sorted
/// values (Hyndman & Fan 1996, definition 7; NumPy's default). Of at least one value; the share is 0 to 1.
double percentile(std::vector<double> values, double share);

/// Random multiples of a time with mean 1, the same for a seed on every machine: std::mt19937_64, whose output the
/// standard fixes, picks from a table that is computed with nothing but the operations that IEEE 754 fixes
/// (std::normal_distribution and the C library's exp and log differ between machines).
///
/// Lognormal with a standard deviation of `deviation`: exp(s·z - s²/2), s² = ln(1 + deviation²), z standard normal;
/// never negative. Cut at 4 standard deviations of z: the table holds the 16,384 equally likely quantiles, scaled
/// to a mean of exactly 1.
class RandomFactors {
 public:
  /// A deviation of 0 gives 1 throughout.
  RandomFactors(double deviation, std::uint64_t seed);

  double next();
  /// True with the given probability.
  bool chance(double probability);

 private:
  std::mt19937_64 generator_;
  std::vector<double> quantiles_;  // empty without deviation
  std::uint64_t bits_ = 0;
  int picks_left_ = 0;  // in bits_
};

/// ln x and e^x, the same on every machine, for 0 < x and for |x| below 700; relative error about 1e-15.
double natural_logarithm(double x);
double exponential(double x);

/// The standard normal distribution's inverse, for 0 < probability < 1; relative error about 1e-15 (Wichura, Algorithm
/// AS 241, Applied Statistics 37(3), 1988, PPND16).
double normal_quantile(double probability);

/// A device that computes slower: its share of a pass that is computation, and its optimizer, take `factor` times as
/// long; what it communicates does not.
struct Straggler {
  std::optional<int> device;  ///< a global rank, slow in every step; absent: any device
  double probability = 1.0;   ///< with which each device is slow in a step, where none is named
  double factor = 1.0;

  std::string text() const;  ///< "device 3 x 1.2", "0.1 % of devices x 1.5"
};

/// What varies from step to step.
struct Variation {
  double jitter = 0.0;  ///< standard deviation of a pass's time over its mean
  std::vector<Straggler> stragglers;
  int samples = 1'000;
  std::uint64_t seed = 1;
};

/// The distribution of the step time, by seeded Monte Carlo: the same figures for a seed on every machine.
///
/// In each sample, each pass (F, B, I, W) and each optimizer step of each data-parallel replica takes a lognormal
/// multiple of its time, mean 1, standard deviation `jitter`, independent of all others; an overlapped pair takes one.
/// Tensor- and context-parallel ranks of a pipeline rank work as one, at the pace of the slowest straggler among them.
/// Replicas wait for each other at the gradient reduction; those that gather weights, reduce gradients or exchange
/// tokens within passes do so in every pass, which then takes as long as in the slowest of them.
/// With a jitter of 0 and no stragglers every sample is the forecast, to the picosecond.
///
/// Percentiles lie between order statistics: x[k] + f (x[k+1] - x[k]) with k + f = q (n - 1), as NumPy has them.
/// Left out: jitter of transfers and collectives, slowness that lasts over several steps (unless a device is named),
/// a step that starts on some ranks while others finish the one before.
/// Cost: one simulation per sample and replica.
/// Throws ConfigError for an asynchronous schedule, which has no steps to wait at, and for a device that there is not.
DistributionResult sample_step_times(const PreparedStep& step, const Variation& variation);

/// The step time of each sample, in order, in picoseconds.
std::vector<Ticks> step_time_samples(const PreparedStep& step, const Variation& variation);

/// How many neighbouring data-parallel replicas meet in every pass: those that share weights or gradients there, or
/// experts. 1 where replicas meet at the gradient reduction only.
int replicas_in_step(const PreparedStep& step);

/// Adds the distribution to a forecast, and to its assumptions what was drawn.
void add_distribution(const Variation& variation, Forecast& forecast);

/// What a microbatch holds.
struct PackedMicrobatch {
  int sequences = 0;
  double tokens = 0.0;
  double squares = 0.0;  ///< sum of the squared lengths
};

/// Packs sequences in the given order, again from the first when they run out, into `microbatches` microbatches of
/// `room` tokens: one that does not fit opens the next (next fit). Throws ConfigError (--sequence-lengths) on an empty
/// list and on a sequence longer than the room or shorter than a token.
std::vector<PackedMicrobatch> pack_sequences(const std::vector<int>& lengths, int room, int microbatches);

/// The share of the tokens that are no padding where each sequence has a row of its own, rows in the given order and
/// again from the first, longer ones cut to `length`, `rows` a microbatch. The list is not empty.
struct PaddedRows {
  double to_length = 0.0;   ///< padded to `length`
  double to_longest = 0.0;  ///< padded to the longest row of the microbatch
};
PaddedRows pad_sequences(const std::vector<int>& lengths, int length, int rows);

/// One step whose microbatches hold sequences of these lengths, microbatch by microbatch.
///
/// Microbatches keep the shape of micro_batch_size x sequence_length tokens, as pipelines send it; what stays empty is
/// padding and costs what tokens cost, except in attention. Attention works within each sequence: of its time with full
/// sequences, a microbatch takes squares / (micro_batch_size · sequence_length²), forward, backward and recomputed
/// (FlashAttention with variable lengths). Microbatch k of a step goes to replica k mod dp, as Megatron-LM deals them
/// out. Beside it what padding each sequence would leave. `equal_s` is a step of the same work in which every
/// microbatch takes the mean. Left out: packing that looks ahead or sorts, the kernel's own overhead for short
/// sequences, memory, FLOPs and MFU. Throws ConfigError where attention is not fused, with context parallelism, tensor
/// parallelism in grids, token slices, uneven nodes, a layer profile or an asynchronous schedule.
PackingResult pack_step(const PreparedStep& step, const std::vector<int>& lengths);

/// Adds it to a forecast.
void add_packing(const std::vector<int>& lengths, Forecast& forecast);

/// One training step of data-parallel replicas whose passes take times of their own. Each replica's pipeline runs by
/// itself up to the gradient reductions, which are collectives of all replicas: each starts when the last replica is
/// ready for it. From there on all replicas do the same.
///
/// With the plain times in every replica the answer is that of simulate(), to the tick.
/// Left out: whatever else replicas do together; who has replicas that gather weights or exchange tokens within passes
/// adds the slowest of them, pass by pass, as one.
class JoinedReplicas {
 public:
  /// Of a schedule that flushes; the times need a flush.
  JoinedReplicas(const Program& program, const StepTimes& times);

  /// The work of one replica ahead of its flush, by task: passes, overlapped pairs and sends that block.
  const LoweredStep& work() const { return work_; }
  /// Of an overlapped pair, what runs beside labels[task]; null for every other task.
  const Action* second_of_pair(TaskId task) const;

  /// Forgets the replicas of the step before.
  void begin();
  /// A replica, by the duration of each task of its work.
  void add_replica(const std::vector<Ticks>& durations);
  /// The end of the step; `optimizer` has the time of the slowest replica by pipeline rank.
  Ticks end_of_step(const std::vector<Ticks>& optimizer);

 private:
  // An overlapped reduction starts `early` before the end of a pass of that duration, in proportion to it.
  struct EarlyReduction {
    TaskId pass = 0;
    Ticks early = 0;
    Ticks pass_duration = 0;
    Ticks duration = 0;
    Ticks ready = 0;  // of the latest replica
  };
  void find_early_reductions(const Program& program, const StepTimes& times);
  void shape_flush(const Program& program, const StepTimes& times);

  LoweredStep work_;
  EngineResult result_;
  std::vector<std::vector<EarlyReduction>> reductions_;  // by rank
  std::vector<Ticks> last_end_;                          // by rank, of the latest replica
  Program flush_;  // each rank's whole work as one pass, followed by the step's own flush
  StepTimes flush_times_;
  LoweredStep lowered_flush_;
};

}  // namespace flopcast
