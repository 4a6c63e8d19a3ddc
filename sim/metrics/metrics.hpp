#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/schedules/catalogue.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Which transfer an action waits for: the one that brings its stage the activation (F) or the gradient (B, I) of its
/// microbatch.
class AwaitedTransfers {
 public:
  explicit AwaitedTransfers(const Timeline& timeline);

  /// Null when the action waits for none.
  const Transfer* find(const Action& action) const;

 private:
  static std::uint64_t key(std::uint16_t stage, bool forward, std::uint32_t microbatch) {
    return (std::uint64_t{microbatch} << 17) | (std::uint64_t{stage} << 1) | std::uint64_t{forward};
  }
  struct Entry {
    std::uint64_t key;
    const Transfer* transfer;
  };
  std::uint64_t slot_of(std::uint64_t stage, bool forward, std::uint64_t microbatch) const {
    return (microbatch * stages_ + stage) * 2 + (forward ? 1 : 0);
  }
  std::uint64_t stages_ = 0;
  std::vector<const Transfer*> slots_;  // by slot_of, where the numbers are dense
  std::vector<Entry> entries_;          // by key, where they are not
};

/// Why a rank did nothing.
enum class BubbleCause { kWarmup, kCooldown, kImbalance, kDependency };
template <>
struct EnumNames<BubbleCause> {
  static constexpr std::string_view kNames[] = {"warmup", "cooldown", "imbalance", "dependency"};
};
inline constexpr std::size_t kBubbleCauses = std::size(EnumNames<BubbleCause>::kNames);

/// What a rank did with the time from 0 to the makespan of all ranks. Every tick is counted once:
///   busy + exposed_pipeline + exposed_data_parallel + bubble = makespan.
///
/// - busy: the compute stream runs an action (recomputation included) or the optimizer. An overlapped pair counts once.
/// - exposed_data_parallel: a reduction, the gradient norm or the parameter gather runs and no compute does.
/// - exposed_pipeline: a send occupies the compute stream, or nothing runs, the compute stream's next action waits for
/// a
///   transfer, and that transfer is under way.
/// - bubble: nothing runs for any other reason. Before the rank's first B or I (its first action, if it has none) it is
///   warm-up; after that and after the rank's last F, cool-down. Of the rest, as much as this rank computes less than
///   the busiest one is imbalance, and what remains is dependency.
struct RankMetrics {
  Ticks busy = 0;
  Ticks exposed_pipeline = 0;
  Ticks exposed_data_parallel = 0;
  std::array<Ticks, kBubbleCauses> bubble_by_cause{};
  Ticks first_start = 0;  ///< of the actions and sends; the flush does not count
  Ticks last_end = 0;
  int peak_in_flight = 0;  ///< chunks whose activations are held: one more at F, one less at B or W, in executed order
  std::array<Ticks, kSpanKindCount>
      time_by_kind{};  ///< by SpanKind, covered or not; a pair's time counts for its first half

  Ticks bubble() const;
  Ticks exposed() const { return exposed_pipeline + exposed_data_parallel; }
  /// last_end - first_start, which zero-bubble papers measure instead of the makespan.
  Ticks span() const { return last_end - first_start; }
};

struct TimelineMetrics {
  Ticks makespan = 0;
  std::vector<RankMetrics> ranks;

  /// 1 - sum of busy / (ranks * makespan): the idle share of the devices, whatever they wait for. In [0, 1].
  double idle_fraction() const;
  /// The same for one rank.
  double idle_fraction(std::size_t rank) const;
  /// Sum of bubble / (ranks * makespan): idle_fraction() without the exposed communication.
  double bubble_fraction() const;
  /// makespan / (busy of the busiest rank) - 1, the overhead that pipeline papers report. 0 when no rank is ever busy.
  double bubble_ratio() const;
  Ticks longest_span() const;
  /// Means over ranks, in ticks.
  double mean(Ticks RankMetrics::*part) const;
  double mean_bubble(BubbleCause cause) const;
};

/// Linear in spans and transfers. Reads forecast and measured timelines alike.
TimelineMetrics measure(const Timeline& timeline);
/// Metrics of a repeating step that has `periods` more than `shorter`. `longer` has one more than `shorter`.
TimelineMetrics repeated(const TimelineMetrics& shorter, const TimelineMetrics& longer, std::int64_t periods);

/// The memory of a rank from `time` on, until the next point.
struct MemoryPoint {
  Ticks time = 0;
  double bytes = 0.0;
};

struct RankMemory {
  std::vector<MemoryPoint> points;  ///< in order of time, one per change; the first is the base at 0
  double peak_bytes = 0.0;
  std::vector<std::int64_t> held_at_peak;  ///< activations, by stage: microbatches, or slices of them
};

/// Bytes that an action on a stage's microbatch, or slice of it, leaves behind.
struct HeldBytes {
  double from_forward = 0.0;          ///< from the start of F to the end of B or I
  double after_input_gradient = 0.0;  ///< from the end of I to the end of W
};

/// Bytes a rank holds over time: `base_bytes` (weights, gradients, optimizer) and, of each microbatch, the activations
/// of each stage from the start of its F to the end of its B or W. `held_bytes` is by stage. What ends at an instant is
/// freed before what the rank starts next is allocated. Left out: fragmentation, and buffers that live inside one
/// action.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes);
/// The same where the input gradient frees some of it, or leaves more behind.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<HeldBytes>& held_bytes);

/// One piece of work on the critical path.
struct CriticalStep {
  int rank = 0;  ///< of a collective, the rank on which the path arrives
  Span span;
  Ticks wait = 0;  ///< before it, unexplained by anything on the path; 0 in a simulated timeline
  Ticks time = 0;  ///< its part on the path: until its end, or until the reduction that runs beside the rest of it
  Ticks lag = 0;   ///< after it: the transfer to the next step
};

/// A chain of spans, each started by the one before, that explains the makespan:
///   sum over steps of wait + time + lag = makespan, exactly.
/// Shortening anything on it shortens the run until another chain takes over.
struct CriticalPath {
  std::vector<CriticalStep> steps;  ///< from first to last
  Ticks wait = 0;
  Ticks lag = 0;
  std::array<Ticks, 10> time_by_kind{};  ///< by SpanKind; an overlapped pair counts for its first half

  Ticks total() const;
};

/// Of all chains of constraints (order on a stream, transfers, flush order, collectives) from time 0 to the last end,
/// the one with the least unexplained wait: a shortest path in an acyclic graph whose edge from u to v costs start(v) -
/// end(u) - lag. Every link of a simulated timeline is tight, so there the wait is 0; in a measured one it is the time
/// that the model cannot explain. Linear in spans and transfers.
CriticalPath critical_path(const Timeline& timeline);

/// A span that others may wait for. Both halves of an overlapped pair are one node, and so are all parts of a
/// collective.
struct SpanNode {
  const Span* span = nullptr;  ///< null for the source
  int rank = 0;
};

/// `to` cannot start before `from` has ended and `lag` has passed; it started `wait` later than that. Where `to` needs
/// only the first part of `from`, as a reduction of gradients does that are ready early, the lag is negative.
struct SpanLink {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks lag = 0;
  Ticks wait = 0;
};

/// The constraints between the spans of a timeline. Node 0, the source, ends at time 0 and precedes everything.
struct SpanGraph {
  static constexpr std::size_t kSource = 0;
  std::vector<SpanNode> nodes;
  std::vector<SpanLink> links;
  std::vector<std::vector<std::size_t>> node_of;  ///< by rank and position among the rank's spans
};

/// Order on a stream; transfers; a rank's flush, whose spans follow each other and its last action, or, while that is
/// under way, what of it was done when the reduction began; and the collectives (embedding reduction, gradient norm),
/// which wait for all of their ranks.
SpanGraph build_span_graph(const Timeline& timeline);

/// Every stage's and boundary's times, when they are all the same; nothing otherwise.
std::optional<UniformTimes> uniform_times(const StepTimes& times);

struct ClosedFormAnswer {
  std::optional<Ticks> makespan;
  std::string note;  ///< why there is none, or by how much `simulated` differs; empty when the two agree
};

/// What the catalogue's closed form says of a request that is not refused, and, where it says nothing, why: found by
/// asking it again without latency and for a whole multiple of p microbatches.
ClosedFormAnswer closed_form_of(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                                Ticks simulated);

/// The times of a schedule's stages, such that a microbatch costs every compared schedule the same.
using TimesOfProgram = std::function<StepTimes(const Program&)>;

/// What a request costs under one schedule. Activations are counted in microbatches' worth: 1 is what one microbatch
/// leaves on one rank over all of the rank's chunks (or slices), so that schedules of different v compare.
struct ScheduleFigures {
  Ticks makespan = 0;
  Ticks span = 0;                        ///< longest of all ranks, from its first start to its last end
  double bubble_fraction = 0.0;          ///< idle share of all ranks, as `schedule simulate` counts it
  double bubble_ratio = 0.0;             ///< makespan over the busiest rank's work, less 1
  std::vector<double> peak_activations;  ///< by rank
  std::vector<int> weight_copies;        ///< by rank: versions, times the copies of the model that pass through it
  std::vector<int> staleness;            ///< by rank, in updates
  std::size_t messages = 0;              ///< transfers between ranks
  std::optional<Ticks> closed_form;      ///< of the makespan
  std::string closed_form_note;          ///< why there is none, or why it differs; empty when it agrees
  std::optional<double> steady_period;   ///< of an asynchronous schedule: ticks a microbatch once the pipeline is full
  std::optional<double> steady_idle;     ///< and the idle share of its ranks then

  double largest_peak() const;
};

ScheduleFigures figures_of(const ScheduleInfo& info, const ScheduleRequest& request, const TimesOfProgram& times);
/// Of a schedule from a file, which flushes and has no closed form.
ScheduleFigures figures_of(const Program& program, const TimesOfProgram& times);

/// What a schedule makes of a limited memory for activations.
struct MemoryFit {
  int microbatches = 0;    ///< the most that fit between two updates, at most those asked for; 0: not even the fewest
  bool unlimited = false;  ///< more microbatches need no more memory
  double bubble_fraction = 0.0;  ///< with `microbatches`
};

/// The most microbatches of which no rank holds more than `activations` (in microbatches' worth) at once. A schedule
/// that reads a memory limit is given it. Asynchronous schedules never flush, so their microbatches are those asked
/// for.
MemoryFit fit_into_memory(const ScheduleInfo& info, const ScheduleRequest& request, int activations,
                          const TimesOfProgram& times);

/// Why a pipeline that never flushes is no faster: actions that wait for each other in a circle, round and round.
struct CriticalCycle {
  struct Step {
    int rank = 0;
    Action action;  ///< of the first microbatches for which the cycle holds
  };
  std::vector<Step> steps;  ///< in order of time; after the last comes the first again, `microbatches` later
  Ticks time = 0;           ///< once around: durations, and the latencies between ranks
  int microbatches = 0;     ///< by which the microbatch numbers have grown then

  double period_ticks() const { return static_cast<double>(time) / static_cast<double>(microbatches); }
  /// The rank, when all actions are one rank's: it never waits.
  std::optional<int> only_rank() const;
};
/// "0F0 1F0 1B0 0B0, then 0F2"; of more than twelve actions the first and the last four.
std::string describe(const CriticalCycle& cycle);

/// The maximum cycle ratio of the steady state's constraint graph: nodes are the actions of as many microbatches as the
/// order repeats over, arcs their order on a rank and the transfers, each with the time from start to start and the
/// microbatches it leads on by; the largest time per microbatch of any cycle is the period to which every start settles
/// (Baccelli, Cohen, Olsder and Quadrat, Synchronization and Linearity, 1992, theorem 3.28). Found by Howard's
/// algorithm; of several critical cycles the one of a rank that never waits is preferred.
///
/// `generate` makes the schedule for any number of microbatches. Nothing when its order does not repeat, or holds
/// overlapped pairs.
std::optional<CriticalCycle> critical_cycle(const std::function<Program(int microbatches)>& generate,
                                            const StepTimes& times);

/// After how many microbatches the ranks' turns come round again: the least common multiple of the stages' replicas.
int microbatches_per_turn(const Program& program);

/// `to` starts at least `time` after `from`, `advance` microbatches (or rounds of whatever repeats) later.
struct TimedArc {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks time = 0;
  int advance = 0;

  friend bool operator==(const TimedArc& a, const TimedArc& b) {
    return a.from == b.from && a.to == b.to && a.time == b.time && a.advance == b.advance;
  }
};

/// The arcs, in order, of a cycle with the largest sum of times over sum of advances; empty when there is no cycle.
/// Every cycle must advance: no sum of advances may be 0 or less, or its actions would wait for each other forever.
///
/// Howard's algorithm in floating point finds a candidate; it may stop early where several cycles interlock. Exact
/// integer arithmetic then looks for a better cycle (Bellman-Ford with time * A - advance * T, where T / A is the
/// candidate) until there is none. Products beyond 64 bits leave the candidate unproven.
std::vector<TimedArc> maximum_ratio_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes);

/// The regime into which a pipeline that never flushes settles.
struct SteadyState {
  Ticks window_ticks = 0;       ///< how much the makespan grows by `window_microbatches` more microbatches
  int window_microbatches = 0;  ///< whole rounds of the critical cycle
  int start_microbatches = 0;   ///< where the last window begins
  bool periodic = false;        ///< settled: the period is exact
  double fill_ticks = 0.0;      ///< makespan less microbatches * period: filling and draining, paid once
  double idle_fraction = 0.0;   ///< of the devices within the window, whatever they wait for

  double period_ticks() const { return static_cast<double>(window_ticks) / static_cast<double>(window_microbatches); }
};

/// Simulates growing numbers of microbatches until two windows in a row take the same time, that which critical_cycle()
/// predicts. A window is at least 4 microbatches a rank, in whole rounds of that cycle; it starts 1, 2, 4 … up to 64
/// windows into the run, because uneven stages settle slowly. Beyond that the last window is reported with
/// `periodic` unset, and as long as the cycle says that it will be. For a schedule without such a cycle (overlapped
/// pairs) two equal windows must do.
SteadyState steady_state(const std::function<Program(int microbatches)>& generate, const StepTimes& times);

}  // namespace flopcast
