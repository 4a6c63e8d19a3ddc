#include "sim/metrics/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/text/by_member.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

struct Change {
  Ticks time;
  std::int64_t held;   ///< change in the number of microbatches that the stage holds
  std::int64_t split;  ///< change in the number of those that lack only the weight gradient
  std::uint16_t stage;
};

std::vector<Change> changes_of(const std::vector<Span>& spans, bool backward_frees_first,
                               const std::vector<HeldBytes>& held) {
  std::vector<Change> changes;
  const Span* ahead = nullptr;  // the forward half of a pair whose backward half is freed first
  for (const Span& span : spans) {
    if (!is_action(span.kind)) continue;
    if (backward_frees_first && span.kind == SpanKind::kForward && span.action.overlaps_next) {
      ahead = &span;
      continue;
    }
    const std::uint16_t stage = span.action.stage;
    const bool splits = held.at(stage).after_input_gradient != held.at(stage).from_forward;
    if (span.kind == SpanKind::kForward) changes.push_back({span.start, 1, 0, stage});
    if (span.kind == SpanKind::kBackward) changes.push_back({span.end, -1, 0, stage});
    if (ahead != nullptr) changes.push_back({ahead->end, 1, 0, ahead->action.stage});
    ahead = nullptr;
    if (span.kind == SpanKind::kInputGradient && splits) changes.push_back({span.end, 0, 1, stage});
    if (span.kind == SpanKind::kWeightGradient) changes.push_back({span.end, -1, splits ? -1 : 0, stage});
  }
  // Stable sort: at one instant the order of execution decides, in which a chunk is freed after it was allocated.
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  return changes;
}

}  // namespace

AwaitedTransfers::AwaitedTransfers(const Timeline& timeline) {
  std::uint64_t largest = 0;
  for (const Transfer& transfer : timeline.transfers) {
    stages_ = std::max(stages_, std::uint64_t{transfer.to_stage} + 1);
    largest = std::max(largest, std::uint64_t{transfer.produced_by.microbatch});
  }
  // A simulated step uses almost every slot; a measured one may have large gaps in its microbatch numbers.
  constexpr std::uint64_t kSlotsPerTransfer = 8;
  if (!timeline.transfers.empty() && (largest + 1) * 2 * stages_ <= kSlotsPerTransfer * timeline.transfers.size()) {
    slots_.resize((largest + 1) * 2 * stages_, nullptr);
    for (const Transfer& transfer : timeline.transfers) {
      const bool forward = transfer.produced_by.kind == ActionKind::kForward;
      const Transfer*& slot = slots_[slot_of(transfer.to_stage, forward, transfer.produced_by.microbatch)];
      if (slot == nullptr) slot = &transfer;
    }
    return;
  }
  entries_.reserve(timeline.transfers.size());
  for (const Transfer& transfer : timeline.transfers) {
    const bool forward = transfer.produced_by.kind == ActionKind::kForward;
    entries_.push_back(Entry{key(transfer.to_stage, forward, transfer.produced_by.microbatch), &transfer});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.key < b.key; });
}

const Transfer* AwaitedTransfers::find(const Action& action) const {
  if (action.kind == ActionKind::kWeightGradient) return nullptr;
  if (!slots_.empty()) {
    if (action.stage >= stages_) return nullptr;
    const std::uint64_t slot = slot_of(action.stage, action.kind == ActionKind::kForward, action.microbatch);
    return slot < slots_.size() ? slots_[slot] : nullptr;
  }
  const std::uint64_t wanted = key(action.stage, action.kind == ActionKind::kForward, action.microbatch);
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), wanted,
                       [](const Entry& entry, std::uint64_t wanted_key) { return entry.key < wanted_key; });
  return found != entries_.end() && found->key == wanted ? found->transfer : nullptr;
}

namespace {

constexpr std::size_t index_of(BubbleCause cause) {
  return static_cast<std::size_t>(cause);
}

struct Interval {
  Ticks start = 0;
  Ticks end = 0;
};

bool computes(SpanKind kind) {
  return is_action(kind) || kind == SpanKind::kOptimizer;
}
bool is_data_parallel(SpanKind kind) {
  return !names_an_action(kind) && kind != SpanKind::kOptimizer;
}

// Walks over the spans of one rank and assigns every tick from 0 to the makespan to one category.
class RankAccount {
 public:
  RankAccount(const std::vector<Span>& spans, const AwaitedTransfers& transfers, Ticks makespan)
      : spans_(spans), transfers_(transfers), makespan_(makespan) {}

  RankMetrics attribute() {
    find_phases();
    Ticks now = 0;
    std::vector<Interval> arrivals;
    for (std::size_t index = 0; index < spans_.size(); ++index) {
      const Span& span = spans_[index];
      if (span.stream != StreamKind::kCompute) continue;
      if (span.start > now) {
        arrivals.clear();
        for (std::size_t half = index; half < spans_.size() && is_action(spans_[half].kind); ++half) {
          const Transfer* awaited = transfers_.find(spans_[half].action);
          if (awaited != nullptr) arrivals.push_back(Interval{awaited->start, awaited->end});
          if (!spans_[half].action.overlaps_next) break;
        }
        attribute_gap(Interval{now, span.start}, arrivals);
      }
      if (span.end > now) {
        (computes(span.kind) ? metrics_.busy : metrics_.exposed_pipeline) += span.end - std::max(now, span.start);
        now = span.end;
      }
    }
    arrivals.clear();
    if (now < makespan_) attribute_gap(Interval{now, makespan_}, arrivals);
    return metrics_;
  }

  // Waiting time between warm-up and cool-down; its cause depends on the other ranks.
  Ticks steady_bubble() const { return steady_bubble_; }

 private:
  void find_phases() {
    constexpr Ticks kNever = std::numeric_limits<Ticks>::max();
    Ticks first_backward = kNever;
    Ticks first_action = kNever;
    Ticks last_forward = -1;
    bool started = false;
    int in_flight = 0;
    bool in_pair = false;
    for (const Span& span : spans_) {
      if (!in_pair) metrics_.time_by_kind.at(static_cast<std::size_t>(span.kind)) += span.end - span.start;
      in_pair = is_action(span.kind) && span.action.overlaps_next;
      if (is_data_parallel(span.kind)) collectives_.push_back(Interval{span.start, span.end});
      if (!is_action(span.kind) && span.kind != SpanKind::kSend) continue;
      if (!started) metrics_.first_start = span.start;
      started = true;
      metrics_.last_end = std::max(metrics_.last_end, span.end);
      if (!is_action(span.kind)) continue;
      first_action = std::min(first_action, span.start);
      if (is_backward_like(span.action.kind)) first_backward = std::min(first_backward, span.start);
      if (span.kind == SpanKind::kForward) {
        last_forward = std::max(last_forward, span.end);
        metrics_.peak_in_flight = std::max(metrics_.peak_in_flight, ++in_flight);
      } else if (span.kind != SpanKind::kInputGradient) {
        --in_flight;
      }
    }
    warmup_end_ = first_backward == kNever ? first_action : first_backward;
    cooldown_start_ = last_forward < 0 ? first_action : last_forward;
  }

  // In a gap of the compute stream, time that other streams use is exposed data-parallel communication.
  void attribute_gap(Interval gap, std::vector<Interval>& arrivals) {
    std::sort(arrivals.begin(), arrivals.end(), [](const Interval& a, const Interval& b) { return a.start < b.start; });
    while (next_collective_ < collectives_.size() && collectives_[next_collective_].start < gap.end) {
      const Interval& collective = collectives_[next_collective_];
      const Ticks start = std::max(gap.start, collective.start);
      const Ticks end = std::min(gap.end, collective.end);
      if (start < end) {
        attribute_idle(Interval{gap.start, start}, arrivals);
        metrics_.exposed_data_parallel += end - start;
        gap.start = end;
      }
      if (collective.end > gap.end) break;
      ++next_collective_;
    }
    attribute_idle(gap, arrivals);
  }

  // In a time when the rank does nothing, the part that an awaited transfer covers is exposed pipeline communication.
  void attribute_idle(Interval gap, const std::vector<Interval>& arrivals) {
    for (const Interval& arrival : arrivals) {
      const Ticks start = std::max(gap.start, arrival.start);
      const Ticks end = std::min(gap.end, arrival.end);
      if (start >= end) continue;
      add_bubble(Interval{gap.start, start});
      metrics_.exposed_pipeline += end - start;
      gap.start = end;
    }
    add_bubble(gap);
  }

  void add_bubble(Interval idle) {
    const Ticks warmup = std::clamp(warmup_end_, idle.start, std::max(idle.start, idle.end));
    metrics_.bubble_by_cause[index_of(BubbleCause::kWarmup)] += warmup - idle.start;
    const Ticks cooldown = std::clamp(cooldown_start_, warmup, std::max(warmup, idle.end));
    steady_bubble_ += cooldown - warmup;
    if (idle.end > cooldown) metrics_.bubble_by_cause[index_of(BubbleCause::kCooldown)] += idle.end - cooldown;
  }

  const std::vector<Span>& spans_;
  const AwaitedTransfers& transfers_;
  Ticks makespan_;
  Ticks warmup_end_ = 0;
  Ticks cooldown_start_ = 0;
  Ticks steady_bubble_ = 0;
  std::vector<Interval> collectives_;  // spans of the other streams, in order of start
  std::size_t next_collective_ = 0;
  RankMetrics metrics_;
};

template <class Value>
double mean_over_ranks(const std::vector<RankMetrics>& ranks, Value value) {
  double sum = 0.0;
  for (const RankMetrics& rank : ranks) sum += static_cast<double>(value(rank));
  return ranks.empty() ? 0.0 : sum / static_cast<double>(ranks.size());
}

// Waiting time between warm-up and cool-down is imbalance as far as another rank has more work, and dependency beyond
// that.
void split_steady_bubble(TimelineMetrics& metrics, const std::vector<Ticks>& steady_bubble) {
  Ticks busiest = 0;
  for (const RankMetrics& rank : metrics.ranks) busiest = std::max(busiest, rank.busy);
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    RankMetrics& of_rank = metrics.ranks[rank];
    const Ticks imbalance = std::min(steady_bubble[rank], busiest - of_rank.busy);
    of_rank.bubble_by_cause[index_of(BubbleCause::kImbalance)] = imbalance;
    of_rank.bubble_by_cause[index_of(BubbleCause::kDependency)] = steady_bubble[rank] - imbalance;
  }
}

double share_of(double part, Ticks whole) {
  return whole == 0 ? 0.0 : part / static_cast<double>(whole);
}

}  // namespace

Ticks RankMetrics::bubble() const {
  return std::accumulate(bubble_by_cause.begin(), bubble_by_cause.end(), Ticks{0});
}

TimelineMetrics measure(const Timeline& timeline) {
  TimelineMetrics metrics;
  metrics.makespan = timeline.makespan();
  const AwaitedTransfers transfers(timeline);
  std::vector<Ticks> steady_bubble;
  for (const std::vector<Span>& spans : timeline.ranks) {
    RankAccount account(spans, transfers, metrics.makespan);
    metrics.ranks.push_back(account.attribute());
    steady_bubble.push_back(account.steady_bubble());
  }
  split_steady_bubble(metrics, steady_bubble);
  return metrics;
}

TimelineMetrics repeated(const TimelineMetrics& shorter, const TimelineMetrics& longer, std::int64_t periods) {
  const auto extend = [periods](Ticks from, Ticks to) { return from + static_cast<Ticks>(periods) * (to - from); };
  TimelineMetrics metrics = shorter;
  metrics.makespan = extend(shorter.makespan, longer.makespan);
  std::vector<Ticks> steady_bubble;
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    RankMetrics& of_rank = metrics.ranks[rank];
    const RankMetrics& to = longer.ranks[rank];
    for (const auto part : {&RankMetrics::busy, &RankMetrics::exposed_pipeline, &RankMetrics::exposed_data_parallel,
                            &RankMetrics::first_start, &RankMetrics::last_end}) {
      of_rank.*part = extend(of_rank.*part, to.*part);
    }
    for (std::size_t kind = 0; kind < of_rank.time_by_kind.size(); ++kind) {
      of_rank.time_by_kind[kind] = extend(of_rank.time_by_kind[kind], to.time_by_kind[kind]);
    }
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      of_rank.bubble_by_cause[cause] = extend(of_rank.bubble_by_cause[cause], to.bubble_by_cause[cause]);
    }
    steady_bubble.push_back(of_rank.bubble_by_cause[index_of(BubbleCause::kImbalance)] +
                            of_rank.bubble_by_cause[index_of(BubbleCause::kDependency)]);
  }
  split_steady_bubble(metrics, steady_bubble);
  return metrics;
}

double TimelineMetrics::idle_fraction() const {
  return share_of(mean_over_ranks(ranks, [this](const RankMetrics& rank) { return makespan - rank.busy; }), makespan);
}

double TimelineMetrics::idle_fraction(std::size_t rank) const {
  return share_of(static_cast<double>(makespan - ranks.at(rank).busy), makespan);
}

double TimelineMetrics::bubble_fraction() const {
  return share_of(mean_over_ranks(ranks, [](const RankMetrics& rank) { return rank.bubble(); }), makespan);
}

double TimelineMetrics::bubble_ratio() const {
  Ticks busiest = 0;
  for (const RankMetrics& rank : ranks) busiest = std::max(busiest, rank.busy);
  return busiest == 0 ? 0.0 : static_cast<double>(makespan - busiest) / static_cast<double>(busiest);
}

Ticks TimelineMetrics::longest_span() const {
  Ticks longest = 0;
  for (const RankMetrics& rank : ranks) longest = std::max(longest, rank.span());
  return longest;
}

double TimelineMetrics::mean(Ticks RankMetrics::*part) const {
  return mean_over_ranks(ranks, [part](const RankMetrics& rank) { return rank.*part; });
}
double TimelineMetrics::mean_bubble(BubbleCause cause) const {
  return mean_over_ranks(ranks, [cause](const RankMetrics& rank) { return rank.bubble_by_cause[index_of(cause)]; });
}

RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes) {
  std::vector<HeldBytes> held;
  for (const double bytes : held_bytes) held.push_back({bytes, bytes});
  return memory_over_time(timeline, rank, base_bytes, held);
}

// Counts chunks instead of summing bytes, so that the curve returns to its base exactly.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<HeldBytes>& held_bytes) {
  RankMemory memory;
  std::vector<std::int64_t> held(held_bytes.size());
  std::vector<std::int64_t> split(held_bytes.size());
  std::vector<std::uint16_t> stages;
  const std::vector<Change> changes =
      changes_of(timeline.ranks.at(static_cast<std::size_t>(rank)), timeline.backward_frees_first, held_bytes);
  for (const Change& change : changes) stages.push_back(change.stage);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  memory.points.push_back(MemoryPoint{0, base_bytes});
  memory.peak_bytes = base_bytes;
  memory.held_at_peak = held;
  for (const Change& change : changes) {
    held[change.stage] += change.held;
    split[change.stage] += change.split;
    double bytes = base_bytes;
    for (const std::uint16_t stage : stages) {
      const HeldBytes& each = held_bytes[stage];
      bytes += static_cast<double>(held[stage]) * each.from_forward +
               static_cast<double>(split[stage]) * (each.after_input_gradient - each.from_forward);
    }
    if (memory.points.back().time == change.time) {
      memory.points.back().bytes = bytes;
    } else {
      memory.points.push_back(MemoryPoint{change.time, bytes});
    }
    if (bytes <= memory.peak_bytes) continue;
    memory.peak_bytes = bytes;
    memory.held_at_peak = held;
  }
  return memory;
}

namespace {

std::string explain_missing_closed_form(const ScheduleInfo& info, const ScheduleRequest& request,
                                        const UniformTimes& uniform) {
  if (uniform.latency > 0) {
    UniformTimes without = uniform;
    without.latency = 0;
    if (info.closed_form_makespan(request, without))
      return "latency is exposed: holds without latency, or for less of it";
  }
  ScheduleRequest whole = request;
  whole.microbatches += request.pipeline_ranks - request.microbatches % request.pipeline_ranks;
  if (request.microbatches % request.pipeline_ranks != 0 && !refuse_request(info, whole) &&
      info.closed_form_makespan(whole, uniform)) {
    return "holds if m is a multiple of p";
  }
  ScheduleRequest more = request;
  more.microbatches *= 2 * request.pipeline_ranks;
  if (!refuse_request(info, more) && info.closed_form_makespan(more, uniform)) return "holds for more microbatches";
  return fmt::format("does not hold here: {}", info.makespan);
}

bool depends_on_the_split(const ScheduleInfo& info, const ScheduleRequest& request, const UniformTimes& uniform) {
  UniformTimes whole = uniform;
  whole.weight_gradient = 0;
  return info.closed_form_makespan(request, whole) != info.closed_form_makespan(request, uniform);
}

int forwards_of(const std::vector<Action>& actions) {
  return static_cast<int>(std::count_if(actions.begin(), actions.end(), where(&Action::kind, ActionKind::kForward)));
}

// A rank runs one forward per chunk or slice of a microbatch, so the count gives the forwards per microbatch.
std::vector<double> peaks_of(const Program& program, int microbatches) {
  std::vector<double> peaks;
  const std::vector<int> in_flight = peak_in_flight(program);
  for (std::size_t rank = 0; rank < in_flight.size(); ++rank) {
    const double per_microbatch = static_cast<double>(forwards_of(program.ranks[rank])) / microbatches;
    peaks.push_back(in_flight[rank] / std::max(per_microbatch, 1.0));
  }
  return peaks;
}

double largest(const std::vector<double>& values) {
  return values.empty() ? 0.0 : *std::max_element(values.begin(), values.end());
}

ScheduleFigures measure_program(const Program& program, const StepTimes& times, int microbatches) {
  const Timeline timeline = simulate(program, times);
  const TimelineMetrics metrics = measure(timeline);
  ScheduleFigures figures;
  figures.makespan = metrics.makespan;
  figures.span = metrics.longest_span();
  figures.bubble_fraction = metrics.idle_fraction();
  figures.bubble_ratio = metrics.bubble_ratio();
  figures.peak_activations = peaks_of(program, microbatches);
  figures.weight_copies.assign(program.ranks.size(), static_cast<int>(program.chains.size()));
  figures.staleness.assign(program.ranks.size(), 0);
  figures.messages = timeline.transfers.size();
  return figures;
}

void add_updates(const ScheduleInfo& info, const ScheduleRequest& request, ScheduleFigures& figures) {
  for (std::size_t rank = 0; rank < figures.weight_copies.size(); ++rank) {
    figures.weight_copies[rank] *= info.weights.versions(request, static_cast<int>(rank));
    figures.staleness[rank] = info.weights.staleness(request, static_cast<int>(rank));
  }
}

void add_steady_state(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                      ScheduleFigures& figures) {
  const auto generate = [&](int microbatches) {
    ScheduleRequest longer = request;
    longer.microbatches = microbatches;
    return info.generate(longer);
  };
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  if (!cycle) return;
  figures.steady_period = cycle->period_ticks();
  figures.steady_idle = steady_state(generate, times).idle_fraction;
}

}  // namespace

std::optional<UniformTimes> uniform_times(const StepTimes& times) {
  if (times.stages.empty() || times.blocking_sends || !times.flush.empty()) return std::nullopt;
  const StageTimes& first = times.stages.front();
  const bool same_stages = std::all_of(times.stages.begin(), times.stages.end(), [&](const StageTimes& stage) {
    return stage.forward == first.forward && stage.backward == first.backward &&
           stage.input_gradient == first.input_gradient && stage.weight_gradient == first.weight_gradient &&
           stage.fused == first.fused && stage.pair_saved == 0;
  });
  UniformTimes uniform;
  uniform.forward = first.forward;
  uniform.backward = first.backward;
  uniform.weight_gradient = first.weight_gradient;
  uniform.latency = times.boundaries.empty() ? 0 : times.boundaries.front().forward;
  const bool same_links =
      std::all_of(times.boundaries.begin(), times.boundaries.end(), [&](const BoundaryTimes& boundary) {
        return boundary.forward == uniform.latency && boundary.backward == uniform.latency;
      });
  return same_stages && same_links ? std::optional(uniform) : std::nullopt;
}

ClosedFormAnswer closed_form_of(const ScheduleInfo& info, const ScheduleRequest& request, const StepTimes& times,
                                Ticks simulated) {
  if (info.closed_form_makespan == nullptr) return {std::nullopt, "none is known"};
  const std::optional<UniformTimes> uniform = uniform_times(times);
  if (!uniform) return {std::nullopt, "the times are not uniform"};
  if (times.stages.front().input_gradient != uniform->input_gradient() &&
      depends_on_the_split(info, request, *uniform)) {
    return {std::nullopt, "the input and weight gradients do not add up to the backward pass"};
  }
  const std::optional<Ticks> makespan = info.closed_form_makespan(request, *uniform);
  if (!makespan) return {std::nullopt, explain_missing_closed_form(info, request, *uniform)};
  if (*makespan == simulated) return {makespan, ""};
  const double share = static_cast<double>(simulated - *makespan) / static_cast<double>(*makespan);
  return {makespan, fmt::format("the simulated value differs by {:+.2g} %", 100.0 * share)};
}

double ScheduleFigures::largest_peak() const {
  return largest(peak_activations);
}

ScheduleFigures figures_of(const ScheduleInfo& info, const ScheduleRequest& request, const TimesOfProgram& times) {
  const Program program = generate_schedule(info, request, times);
  const StepTimes step_times = times(program);
  ScheduleFigures figures = measure_program(program, step_times, request.microbatches);
  if (info.asynchronous) {
    add_updates(info, request, figures);
    add_steady_state(info, request, step_times, figures);
  }
  const ClosedFormAnswer answer = closed_form_of(info, request, step_times, figures.makespan);
  figures.closed_form = answer.makespan;
  figures.closed_form_note = answer.note;
  return figures;
}

ScheduleFigures figures_of(const Program& program, const TimesOfProgram& times) {
  ScheduleFigures figures = measure_program(program, times(program), program.microbatch_count());
  figures.closed_form_note = "from a file";
  return figures;
}

MemoryFit fit_into_memory(const ScheduleInfo& info, const ScheduleRequest& request, int activations,
                          const TimesOfProgram& times) {
  ScheduleRequest limited = request;
  const bool reads_limit =
      std::find(info.reads.begin(), info.reads.end(), &ScheduleRequest::memory_limit) != info.reads.end();
  if (reads_limit && !limited.memory_limit) limited.memory_limit = activations;
  const auto with = [&limited](int microbatches) {
    ScheduleRequest asked = limited;
    asked.microbatches = microbatches;
    return asked;
  };
  const auto fits = [&](int microbatches) {
    const Program program = generate_schedule(info, with(microbatches), times);
    return largest(peaks_of(program, microbatches)) <= activations;
  };
  std::vector<int> accepted;
  for (int microbatches = 1; microbatches <= request.microbatches; ++microbatches) {
    const bool is_asked = microbatches == request.microbatches;
    if (info.asynchronous && !is_asked) continue;
    if (!refuse_request(info, with(microbatches))) accepted.push_back(microbatches);
  }
  // More microbatches never need less memory.
  const auto past = std::partition_point(accepted.begin(), accepted.end(), fits);
  MemoryFit fit;
  if (past == accepted.begin()) return fit;
  fit.microbatches = *(past - 1);
  const Program program = generate_schedule(info, with(fit.microbatches), times);
  fit.bubble_fraction = measure(simulate(program, times(program))).idle_fraction();
  if (past != accepted.end() || fit.microbatches != request.microbatches) return fit;
  // No schedule holds more than a few microbatches per rank unless it holds all of them.
  constexpr int kManyPerRank = 8;
  const int many = std::max(2 * request.microbatches, kManyPerRank * request.pipeline_ranks * activations);
  for (int microbatches = many; microbatches < many + request.pipeline_ranks; ++microbatches) {
    if (refuse_request(info, with(microbatches))) continue;
    fit.unlimited = fits(microbatches);
    break;
  }
  return fit;
}

}  // namespace flopcast
