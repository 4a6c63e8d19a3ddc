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

/// The clock of a run of months: whole nanoseconds, 292 years at most.
using Nanoseconds = std::int64_t;
inline constexpr double kNanosecond = 1e-9;
/// Rounded, and no more than the clock can tell.
Nanoseconds in_nanoseconds(double seconds);
Nanoseconds in_nanoseconds(Seconds time);

/// What time is lost to.
enum class RunPhase { kDetect, kWait, kRestart, kRedo, kCheckpoint, kFewer, kSlow, kMaintenance };
inline constexpr std::size_t kRunPhases = 8;
template <>
struct EnumNames<RunPhase> {
  static constexpr std::string_view kNames[] = {"detect",     "wait_for_spare", "restart", "redo",
                                                "checkpoint", "fewer_replicas", "slow",    "maintenance"};
};

/// A cause of interruptions, all of its units together.
struct RunCause {
  std::string name;
  double per_second = 0.0;
  double events = 0.0;  ///< that the rate was estimated from; 0: the rate is known
  Nanoseconds detection = 0;
  Nanoseconds repair = 0;
  int nodes = 0;               ///< that it takes out of service
  bool site = false;           ///< it takes all of them; spares do not help
  bool silent = false;         ///< found `detection` after it, while the run goes on
  bool needs_storage = false;  ///< copies in memory are lost with it
  int replicas = 0;            ///< that stop with it, of an elastic run
};

/// Checkpoints of one kind. They lie at multiples of `interval` of training since the run's start.
struct CheckpointLevel {
  Nanoseconds interval = 0;  ///< of training; 0: there are none
  Nanoseconds blocking = 0;
  Nanoseconds writing = 0;  ///< afterwards, beside the next steps: until then the one before counts
  Nanoseconds restore = 0;  ///< from a replacement at hand to the next step
};

/// A run of months in numbers: what the simulation needs of a job, and nothing else.
struct RunCase {
  std::int64_t steps = 0;
  Nanoseconds step = 1;  ///< with all replicas and no slow machine
  std::vector<RunCause> causes;
  CheckpointLevel storage;
  CheckpointLevel memory;  ///< of peers: outlives what does not need storage
  int spares = -1;         ///< nodes; -1: as many as it takes

  int replicas = 1;
  int least_replicas = 0;   ///< 0: the run needs all of them
  bool keeps_state = true;  ///< the replicas that are left hold everything, and go on from the step they were in
  Nanoseconds regroup = 0;
  Nanoseconds rejoin = 0;    ///< of a replica whose nodes are at hand
  std::vector<double> pace;  ///< by the number of replicas: training a second, of that with all of them; 0: impossible

  double slow_per_second = 0.0;  ///< phases that begin
  Nanoseconds slow_mean = 0;
  double slow_pace = 1.0;
  Nanoseconds slow_evict = 0;  ///< 0: never

  int nodes = 1;
  double slow_node_share = 0.0;
  double slow_node_pace = 1.0;  ///< of the job with at least one slow node
  Nanoseconds slow_node_evict = 0;

  Nanoseconds maintenance_every = 0;  ///< 0: never
  Nanoseconds maintenance_lasts = 0;

  /// What losses are counted under: the causes, then these.
  std::size_t checkpoints() const { return causes.size(); }
  std::size_t slow_phases() const { return causes.size() + 1; }
  std::size_t slow_nodes() const { return causes.size() + 2; }
  std::size_t maintenance() const { return causes.size() + 3; }
  std::size_t accounts() const { return causes.size() + 4; }
  std::string account_name(std::size_t account) const;
};

/// A stretch of a run that did not train at full pace; those of kRedo trained in vain.
struct RunSpan {
  Nanoseconds from = 0;
  Nanoseconds to = 0;
  RunPhase phase = RunPhase::kDetect;
  std::size_t account = 0;
  double lost = 1.0;  ///< share of it
};

/// One run drawn.
struct RunOutcome {
  Nanoseconds clock = 0;
  std::vector<std::array<Nanoseconds, kRunPhases>> lost;  ///< by account; all of it is clock - steps · step
  std::int64_t interruptions = 0;
  std::int64_t waits = 0;  ///< for a replacement
  bool finished = true;    ///< false: given up after a hundred times the undisturbed time

  Nanoseconds lost_in(RunPhase phase) const;
};

/// Draws one run, by events.
///
/// Failures are Poisson processes whose rates stay the same all the time, also while the run stands still; of rates
/// that were counted (n events) each run draws its own, Gamma(n)/n by Wilson and Hilferty's cube (1931). After one: its
/// detection, the wait for a replacement, the restart from the latest checkpoint that counts; another failure meanwhile
/// starts that anew. What was trained since the checkpoint is trained again. A silent failure is found later, and the
/// run goes back to the checkpoint in storage of before. Failed nodes are back after a fixed time; spares are taken in
/// the order of need.
/// An elastic run that keeps its state loses the replicas that a failure hits: all stand still for detection and
/// regroup, go on with fewer, and regroup again when they are back. One whose replicas share their state goes back to a
/// checkpoint instead, with fewer replicas only where it would have to wait. The nodes of a replica that stands still
/// serve nobody else. A failure of the site, and of what no replica is left of, stops all.
/// Slow phases come by chance, last an exponential time, and do not add up. Slow nodes are drawn at the start and with
/// every replacement; one is as bad as several. Who is slow for too long is replaced behind a checkpoint, and not from
/// the spares, which stay for what fails.
/// Planned stops come by the clock, each behind a checkpoint.
///
/// Drawing: std::mt19937_64, seeded by splitmix64 of (seed, run); exponential times -ln(u)·mean with u of 53 bits and a
/// logarithm of our own, so that a seed gives the same run on every machine.
/// Left out: failures in bursts (Weibull times; by the study in our notes 0.3 % of the time), detection that varies,
/// checkpoints that fail, corruption that is never found.
RunOutcome simulate_run(const RunCase& run, int seed, int number, std::vector<RunSpan>* life = nullptr);

/// The run that a job's section `failures` asks about, of the steps that were forecast.
///
/// Steps: of training.tokens; without them 30 days of steps. Their times come from the step's simulation: with all
/// replicas, with fewer (each keeps its microbatches, so that the batch shrinks with them; at most 64 numbers of
/// replicas are simulated, those between lie on straight lines), with a slow device (sim/variation).
/// Rates, detection and repair as the causes say. Checkpoints: Goodput; intervals that nobody gives are Daly's
/// best for what returns to that level, in whole steps, and no shorter than a write in the background.
/// Replicas keep their state where each holds the whole model (ddp without ZeRO, hsdp).
/// Throws ConfigError for runs of more than 2.8 years or five million events.
RunCase run_case_of(const Forecast& forecast);

/// One run to look at: that of the median days.
struct RunLife {
  RunCase run;
  RunOutcome outcome;
  std::vector<RunSpan> spans;  ///< in the order of their ends
};

/// Whether RunResult::options is filled in: what changes to the section buy, each drawn with the same seeds as the run
/// itself, 50 times at most: half and twice the interval, no spares, as many as 95 % need, detection in half the time,
/// checkpoints beside the steps and in memory, fewer replicas instead of waiting, slow nodes replaced after an hour.
enum class WithOptions { kNo, kYes };

/// Adds RunResult to the result, and what it rests on to its assumptions; returns the life of the median run. Nothing
/// where the job has no `failures`. A run that never ends (see Goodput::finishes) gives a warning instead.
std::optional<RunLife> add_run(Forecast& forecast, WithOptions with_options);

/// The smallest number of nodes that a Poisson distributed number of those in repair exceeds with at most 1 - share.
int spares_for(double mean_in_repair, double share);
/// The number s of spare nodes for which spares and waits together cost least, all `nodes` waiting as one: the least
/// s + nodes · P(N > s), in nodes that stand idle.
int spares_worth(double mean_in_repair, int nodes);

}  // namespace flopcast
