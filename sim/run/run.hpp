#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/job.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/failures.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

/// Interruptions of a long run, summarised in three numbers. Times in seconds.
struct Interruptions {
  /// Mean time between failures of one GPU, whatever fails (including its host and network).
  double gpu_mtbf_s = kGpuMtbf.value();
  /// Time that the run is stopped for a checkpoint, and from a failure to the next step (not counting the steps lost).
  /// Both are chosen: see kUsualRestart.
  double checkpoint_s = 10.0;
  double restart_s = kUsualRestart.value();
};

struct Goodput {
  double interval_s = 0.0;  ///< between checkpoints
  double fraction = 1.0;    ///< of the elapsed time that is spent training
  double failures_per_day = 0.0;

  /// True if the run can finish: with less than a hundredth of the time for training the model does not hold, and the
  /// number of days is meaningless.
  bool finishes() const { return fraction >= 0.01; }
};

/// Checkpoint interval with the least loss: √(2CM)·(1 + ⅓·√(C/2M) + C/18M) - C for C < 2M, else M (Daly 2006, doi
/// 10.1016/j.future.2004.11.016, eq. 37; its first term is Young 1974, doi 10.1145/361147.361115).
double best_checkpoint_interval(double checkpoint_s, double mtbf_s);

/// Fraction of the elapsed time that is spent training, with a checkpoint after each `interval_s` of training:
///   τ / (M·e^(R/M)·(e^((τ+C)/M) - 1))
/// Daly's eq. 20, with failures at any time, including during checkpoints and restarts.
double daly_fraction(double interval_s, double checkpoint_s, double restart_s, double mtbf_s);

/// The best checkpoint interval and the fraction of time that remains for training, where M is the mean time between
/// failures of all GPUs together, C a checkpoint and R a restart.
/// Left out: failures in bursts, undetected hangs, slow nodes; simulate_run covers them.
Goodput goodput_of(const Interruptions& interruptions, int gpus);

/// Bytes of a checkpoint: weights and optimizer state, once. With adapters, only the trained parameters; for a layer
/// profile, the parameters that its layers list.
Bytes checkpoint_bytes(const Job& job);

/// The section `failures` summarised in three numbers: all causes that stop the run together, the checkpoint that stops
/// the run for the shortest time (the copy in memory if there is one), the mean time after a failure. Left out: what
/// the closed form leaves out.
Interruptions interruptions_of(const Job& job);

/// Times of the checkpoints of one level, in seconds.
struct CheckpointTimes {
  double blocking_s = 0.0;  ///< the run is stopped
  double writing_s = 0.0;   ///< overlapped with the next steps, until the checkpoint counts
  double restore_s = 0.0;   ///< from the availability of a replacement to the next step
};
/// Times from the policy if given, otherwise from the bytes of the job:
///   storage, synchronous    bytes / storage bandwidth; asynchronous: bytes of a GPU / host bandwidth block the run,
///                           the rest is written during the next steps
///   memory of peers         bytes of a GPU / host bandwidth block the run
///   restore                 restart + bytes / storage bandwidth, or restart + bytes of a node / its network bandwidth
/// Every GPU saves and reads an equal share (PyTorch DCP, Megatron's distributed checkpoints).
/// Left out: storage shared with others; traffic to peers, which the next steps hide.
/// Throws ConfigError if host_bandwidth is needed but not known.
CheckpointTimes storage_times(const Job& job);
CheckpointTimes memory_times(const Job& job);

/// Clock of a run of months in whole nanoseconds, up to 292 years.
using Nanoseconds = std::int64_t;
inline constexpr double kNanosecond = 1e-9;
/// Rounded, and limited to the range of the clock.
Nanoseconds in_nanoseconds(double seconds);
Nanoseconds in_nanoseconds(Seconds time);

/// Phases in which time is lost.
enum class RunPhase { kDetect, kWait, kRestart, kRedo, kCheckpoint, kFewer, kSlow, kMaintenance };
inline constexpr std::size_t kRunPhases = 8;
template <>
struct EnumNames<RunPhase> {
  static constexpr std::string_view kNames[] = {"detect",     "wait_for_spare", "restart", "redo",
                                                "checkpoint", "fewer_replicas", "slow",    "maintenance"};
};

/// A cause of interruptions, combined over all of its units.
struct RunCause {
  std::string name;
  double per_second = 0.0;
  double events = 0.0;  ///< number from which the rate was estimated; 0: the rate is known
  Nanoseconds detection = 0;
  Nanoseconds repair = 0;
  int nodes = 0;               ///< number taken out of service
  bool site = false;           ///< it takes out all nodes; spares do not help
  bool silent = false;         ///< found `detection` later; the run continues meanwhile
  bool needs_storage = false;  ///< it destroys the copies in memory
  int replicas = 0;            ///< replicas of an elastic run that stop with it
};

/// Checkpoints of one kind, at multiples of `interval` of training since the start of the run.
struct CheckpointLevel {
  Nanoseconds interval = 0;  ///< of training; 0: there are none
  Nanoseconds blocking = 0;
  Nanoseconds writing = 0;  ///< during the next steps; until then the previous checkpoint counts
  Nanoseconds restore = 0;  ///< from the availability of a replacement to the next step
};

/// A run of months in numbers: everything that the simulation needs of a job.
struct RunCase {
  std::int64_t steps = 0;
  Nanoseconds step = 1;  ///< with all replicas and no slow machine
  std::vector<RunCause> causes;
  CheckpointLevel storage;
  CheckpointLevel memory;  ///< of peers: survives every cause that does not need storage
  int spares = -1;         ///< in nodes; -1: unlimited

  int replicas = 1;
  int least_replicas = 0;   ///< 0: the run needs all of them
  bool keeps_state = true;  ///< the remaining replicas hold the whole state and continue from the current step
  Nanoseconds regroup = 0;
  Nanoseconds rejoin = 0;    ///< for a replica whose nodes are available
  std::vector<double> pace;  ///< indexed by replicas: training speed relative to that of all; 0: impossible

  double slow_per_second = 0.0;  ///< starts of slow phases
  Nanoseconds slow_mean = 0;
  double slow_pace = 1.0;
  Nanoseconds slow_evict = 0;  ///< 0: never

  int nodes = 1;
  double slow_node_share = 0.0;
  double slow_node_pace = 1.0;  ///< of the job with at least one slow node
  Nanoseconds slow_node_evict = 0;

  Nanoseconds maintenance_every = 0;  ///< 0: never
  Nanoseconds maintenance_lasts = 0;

  /// Accounts of losses: the causes, then these.
  std::size_t checkpoints() const { return causes.size(); }
  std::size_t slow_phases() const { return causes.size() + 1; }
  std::size_t slow_nodes() const { return causes.size() + 2; }
  std::size_t maintenance() const { return causes.size() + 3; }
  std::size_t accounts() const { return causes.size() + 4; }
  std::string account_name(std::size_t account) const;
};

/// A stretch of a run without training at full pace; training in kRedo stretches is wasted.
struct RunSpan {
  Nanoseconds from = 0;
  Nanoseconds to = 0;
  RunPhase phase = RunPhase::kDetect;
  std::size_t account = 0;
  double lost = 1.0;  ///< lost fraction of the stretch
};

/// One simulated run.
struct RunOutcome {
  Nanoseconds clock = 0;
  std::vector<std::array<Nanoseconds, kRunPhases>> lost;  ///< indexed by account; the sum is clock - steps · step
  std::int64_t interruptions = 0;
  std::int64_t waits = 0;  ///< for a replacement
  bool finished = true;    ///< false: stopped after a hundred times the undisturbed time

  Nanoseconds lost_in(RunPhase phase) const;
};

/// Simulates one run, event by event.
///
/// Failures are Poisson processes with constant rates, even while the run is stopped. For rates estimated from counts
/// (n events), each run draws its own, Gamma(n)/n by Wilson and Hilferty's cube (1931). After a failure come its
/// detection, the wait for a replacement, and the restart from the latest checkpoint that counts; another failure
/// meanwhile starts this sequence again. Training since the checkpoint is repeated. A silent failure is found later,
/// and the run returns to the checkpoint in storage from before it. Failed nodes return after a fixed time; spares are
/// used in order of need.
/// An elastic run that keeps its state loses the replicas that a failure hits: all replicas stop for detection and
/// regrouping, continue with fewer, and regroup when the lost ones return. If replicas share their state, the run
/// returns to a checkpoint instead, and uses fewer replicas only if it would have to wait. Nodes of a stopped replica
/// are not used elsewhere. A failure of the site, or one that leaves no replica, stops the whole run.
/// Slow phases occur at random, have exponential durations and do not add up. Slow nodes are drawn at the start and
/// with every replacement; one is as bad as several. Devices that stay slow for too long are replaced after a
/// checkpoint, but not from the spares, which are reserved for failures.
/// Planned stops follow the clock, each after a checkpoint.
///
/// Random numbers: std::mt19937_64, seeded by splitmix64 of (seed, run); exponential times -ln(u)·mean with 53-bit u
/// and flopcast's logarithm, so that a seed gives the same run on every machine.
/// Left out: failures in bursts (Weibull times; they change the lost time by 0.3 % of the run), varying
/// detection times, checkpoints that fail, corruption that is never found.
RunOutcome simulate_run(const RunCase& run, int seed, int number, std::vector<RunSpan>* life = nullptr);

/// The run described by a job's section `failures`, with the steps that were forecast.
///
/// Steps: from training.tokens; without it, 30 days of steps. Step times come from the step's simulation: with all
/// replicas; with fewer (each keeps its microbatches, so the batch shrinks; at most 64 replica counts are simulated,
/// others are interpolated linearly); and with a slow device (sim/variation).
/// Rates, detection and repair: from the causes. Checkpoints: Goodput; unspecified intervals are Daly's best for the
/// failures that return to that level, in whole steps, and no shorter than a background write.
/// Replicas keep their state if each holds the whole model (ddp without ZeRO, hsdp).
/// Throws ConfigError for runs of more than 2.8 years or five million events.
RunCase run_case_of(const Forecast& forecast);

/// One run to show: the one with the median number of days.
struct RunLife {
  RunCase run;
  RunOutcome outcome;
  std::vector<RunSpan> spans;  ///< in order of their ends
};

/// Selects whether RunResult::options is filled in: the effect of changes to the section, each simulated with the same
/// seeds as the run itself, at most 50 times: half and twice the interval, no spares, as many spares as 95 % need,
/// detection in half the time, asynchronous checkpoints and checkpoints in memory, fewer replicas instead of waiting,
/// slow nodes replaced after an hour.
enum class WithOptions { kNo, kYes };

/// Adds RunResult to the result, and its assumptions to the result's; returns the life of the median run. Returns
/// nullopt if the job has no `failures`. A run that never ends (see Goodput::finishes) yields a warning instead.
std::optional<RunLife> add_run(Forecast& forecast, WithOptions with_options);

/// Smallest number of nodes such that a Poisson-distributed number of nodes in repair exceeds it with probability at
/// most 1 - share.
int spares_for(double mean_in_repair, double share);
/// Number s of spare nodes with the lowest cost of spares and waits together, where all `nodes` wait as one: the
/// minimum of s + nodes · P(N > s), in idle nodes.
int spares_worth(double mean_in_repair, int nodes);

}  // namespace flopcast
