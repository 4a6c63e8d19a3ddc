#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/enum_names.hpp"

namespace flopcast {

/// The clock of a run of months: whole nanoseconds, 292 years at most.
using Nanoseconds = std::int64_t;
inline constexpr double kNanosecond = 1e-9;

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

}  // namespace flopcast
