#include "sim/lower/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/cost/expert_costs.hpp"
#include "model/cost/stage_costs.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {
namespace {

class TimelineBuilder {
 public:
  TimelineBuilder(const Program& program, const StepTimes& times, const LoweredStep& step, const EngineResult& result)
      : program_(program),
        step_(step),
        result_(result),
        times_(times),
        needs_(needs_of(program, times)),
        blocking_(times.blocking_sends) {
    timeline_.title = program.schedule;
    timeline_.ranks.resize(program.ranks.size());
    timeline_.slices_per_microbatch = program.slices_per_microbatch;
    timeline_.backward_frees_first = program.backward_frees_first;
    timeline_.model_copies = std::max(1, static_cast<int>(program.chains.size()));
  }

  Timeline build() {
    for (StreamId stream = 0; stream < step_.graph.stream_count(); ++stream) add_stream(stream);
    // Spans of zero length precede spans that start when they end.
    for (std::vector<Span>& spans : timeline_.ranks) {
      std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
        return std::tie(a.start, a.end) < std::tie(b.start, b.end);
      });
    }
    std::stable_sort(timeline_.transfers.begin(), timeline_.transfers.end(),
                     [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
    if (program_.accumulation > 0) track_weights();
    return std::move(timeline_);
  }

 private:
  void track_weights();
  void add_stream(StreamId stream);
  void add_span(const StreamLabel& where, TaskId task, const TaskLabel& label);
  void add_transfer(TaskId task, const TaskLabel& label);

  const Program& program_;
  const LoweredStep& step_;
  const EngineResult& result_;
  const StepTimes& times_;
  Needs needs_;
  bool blocking_;
  std::size_t next_pair_ = 0;
  Timeline timeline_;
};

void TimelineBuilder::track_weights() {
  WeightTrack track;
  for (StageVersions& stage : weight_versions(program_, program_.weight_policy, program_.accumulation)) {
    track.forward.push_back(std::move(stage.version));
    track.backward.push_back(std::move(stage.backward_version));
  }
  for (const std::vector<Span>& spans : timeline_.ranks) {
    std::vector<Ticks>& updates = track.updates.emplace_back();
    int backwards = 0;
    for (const Span& span : spans) {
      if (span.kind != SpanKind::kBackward && span.kind != SpanKind::kWeightGradient) continue;
      if (++backwards % program_.accumulation == 0) updates.push_back(span.end);
    }
  }
  timeline_.weights = std::move(track);
}

void TimelineBuilder::add_stream(StreamId stream) {
  const StreamLabel& where = step_.streams[stream];
  for (TaskId task = step_.graph.first_task(stream); task < step_.graph.first_task(stream + 1); ++task) {
    const TaskLabel& label = step_.labels[task];
    add_span(where, task, label);
    if (next_pair_ < step_.second_of_pair.size() && step_.second_of_pair[next_pair_].first == task) {
      const Action& second = step_.second_of_pair[next_pair_++].second;
      add_span(where, task, TaskLabel{second, span_kind(second.kind)});
    }
  }
}

void TimelineBuilder::add_span(const StreamLabel& where, TaskId task, const TaskLabel& label) {
  timeline_.ranks[static_cast<std::size_t>(where.rank)].push_back(
      Span{result_.start[task], result_.end[task], label.action, label.kind, where.kind});
  if (blocking_ ? label.kind == SpanKind::kSend : is_action(label.kind)) add_transfer(task, label);
}

void TimelineBuilder::add_transfer(TaskId task, const TaskLabel& label) {
  const Action& action = label.action;
  const Needs::Neighbour& to = needs_.result_of(action);
  if (!to.crosses) return;
  Transfer transfer;
  transfer.start = blocking_ ? result_.start[task] : result_.end[task];
  transfer.end =
      blocking_ ? result_.end[task] : transfer.start + needs_.result_latency(times_, action.kind, action.stage);
  transfer.produced_by = action;
  transfer.to_stage = to.stage;
  transfer.from_rank = needs_.rank_of(action);
  transfer.to_rank = to.rank_of(action.microbatch);
  timeline_.transfers.push_back(transfer);
}

std::string describe_task(const TaskLabel& label) {
  if (label.kind == SpanKind::kSend) return fmt::format("the send of {}", to_string(label.action));
  return is_action(label.kind) ? to_string(label.action) : std::string(name_of(label.kind));
}

constexpr std::size_t kBlockedStreamsNamed = 4;

Ticks ticks_of(Seconds time) {
  return static_cast<Ticks>(std::llround(time.value() * kTicksPerSecond));
}

// An exchange, timed from the start of the pass or pair that it belongs to.
struct Place {
  Ticks start = 0;
  Ticks end = 0;
  bool dispatches = false;
  bool forward = false;
};

// One layer of an unpaired pass: computation before, between and after its two exchanges.
struct Row {
  Seconds before;
  Seconds between;
  Seconds behind;
  Seconds dispatch;
  Seconds combine;

  Seconds computed() const { return before + between + behind; }
};

// Places `layers` rows in [start, end), with their computation stretched or shortened to fill it.
void add_rows(const Row& row, int layers, Ticks start, Ticks end, bool forward, std::vector<Place>& places) {
  const double slot = static_cast<double>(end - start) / layers;
  const double exchanged = (row.dispatch + row.combine).value() * kTicksPerSecond;
  if (exchanged > slot) return;
  const double stretch = row.computed() > Seconds(0) ? (slot - exchanged) / row.computed().value() : 0.0;
  for (int layer = 0; layer < layers; ++layer) {
    const Ticks first = start + static_cast<Ticks>(slot * layer + row.before.value() * stretch);
    const Ticks sent = first + ticks_of(row.dispatch);
    const Ticks second = sent + static_cast<Ticks>(row.between.value() * stretch);
    places.push_back({first, sent, true, forward});
    places.push_back({second, second + ticks_of(row.combine), false, forward});
  }
}

Row forward_row(const ExpertLayer& layer) {
  return {layer.before, layer.experts, Seconds(0), layer.dispatch, layer.combine};
}

// Only the input gradient if `weights` is false.
Row backward_row(const ExpertLayer& layer, bool weights) {
  const auto with = [weights](Seconds input, Seconds weight) { return weights ? input + weight : input; };
  return {Seconds(0), with(layer.experts_input, layer.experts_weight), with(layer.before_input, layer.before_weight),
          layer.dispatch, layer.combine};
}

// The layer with its computation times multiplied by `share`.
ExpertLayer computing(ExpertLayer layer, double share) {
  for (Seconds* piece : {&layer.before, &layer.experts, &layer.experts_input, &layer.experts_weight,
                         &layer.before_input, &layer.before_weight}) {
    *piece = *piece * share;
  }
  return layer;
}

// Scales the layer's computation until its pair takes `time`. Bisection works because more computation never makes a
// pair shorter.
ExpertLayer filling(const ExpertLayer& layer, int layers, Seconds time) {
  double low = 0.0;
  double high = 1.0;
  constexpr double kMostStretched = 1e6;
  while (high < kMostStretched && paired_layers(computing(layer, high), layers).time < time) high *= 2.0;
  constexpr int kHalvings = 40;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2.0;
    (paired_layers(computing(layer, middle), layers).time < time ? low : high) = middle;
  }
  return computing(layer, low);
}

class ExchangeSpans {
 public:
  explicit ExchangeSpans(const CostsByStage& stages) : stages_(stages) {}

  // Exchanges of an unpaired pass.
  std::vector<Place> of_pass(const Span& span) const {
    const StageCosts& stage = stages_[span.action.stage];
    std::vector<Place> places;
    if (stage.expert_layers == 0 || span.kind == SpanKind::kWeightGradient) return places;
    const ExpertLayer& layer = stage.expert_layer;
    const Ticks end = span.end - span.start;
    if (span.kind == SpanKind::kForward) {
      add_rows(forward_row(layer), stage.expert_layers, 0, end, true, places);
      return places;
    }
    const Ticks start = redone(stage, places);
    add_rows(backward_row(layer, span.kind == SpanKind::kBackward), stage.expert_layers, start, end, false, places);
    return places;
  }

  // Exchanges of a pair. If one half has more layers than the other, its extra layers run unpaired, after the others.
  std::vector<Place> of_pair(const Span& first, const Span& second) const {
    const Span& forward = first.kind == SpanKind::kForward ? first : second;
    const Span& backward = first.kind == SpanKind::kForward ? second : first;
    const StageCosts& ahead = stages_[forward.action.stage];
    const StageCosts& back = stages_[backward.action.stage];
    const int paired = std::min(ahead.expert_layers, back.expert_layers);
    const int more = std::max(ahead.expert_layers, back.expert_layers) - paired;
    const bool forward_has_more = ahead.expert_layers > back.expert_layers;
    const ExpertLayer& layer = forward_has_more ? ahead.expert_layer : back.expert_layer;
    std::vector<Place> places;
    if (paired + more == 0) return places;
    const Ticks start = redone(back, places);
    const Row alone = forward_has_more ? forward_row(layer) : backward_row(layer, true);
    const Ticks end = first.end - first.start - ticks_of(forward_has_more ? layer.forward() : layer.backward()) * more;
    if (more > 0) add_rows(alone, more, end, first.end - first.start, forward_has_more, places);
    if (paired == 0) return places;
    const Seconds time((static_cast<double>(end - start)) / kTicksPerSecond);
    for (const PairedLayers::Exchange& exchange : paired_layers(filling(layer, paired, time), paired).exchanges) {
      places.push_back(
          {start + ticks_of(exchange.start), start + ticks_of(exchange.end), exchange.dispatches, exchange.forward});
    }
    return places;
  }

 private:
  // Adds the exchanges of a backward pass's recomputation and returns its end.
  static Ticks redone(const StageCosts& stage, std::vector<Place>& places) {
    const Ticks time = ticks_of(stage.recompute.total());
    if (stage.recompute.comm.ep > Seconds(0)) {
      add_rows(forward_row(stage.expert_layer), stage.expert_layers, 0, time, true, places);
    }
    return time;
  }

  const CostsByStage& stages_;
};

}  // namespace

std::string describe_deadlock(const LoweredStep& step, const EngineResult& result) {
  std::string text;
  const std::size_t named = std::min(result.blocked.size(), kBlockedStreamsNamed);
  for (std::size_t index = 0; index < named; ++index) {
    const BlockedStream& blocked = result.blocked[index];
    if (index > 0) text += "; ";
    text += fmt::format("rank {} cannot start {}", step.streams[blocked.stream].rank,
                        describe_task(step.labels[blocked.head]));
    if (blocked.awaited != blocked.head)
      text += fmt::format(", which needs {}", describe_task(step.labels[blocked.awaited]));
  }
  if (named < result.blocked.size())
    text += fmt::format("; and {} more ranks are blocked", result.blocked.size() - named);
  return text;
}

Timeline make_timeline(const Program& program, const StepTimes& times, const LoweredStep& step,
                       const EngineResult& result) {
  if (result.deadlocked()) {
    throw ConfigError(Diagnostic{"schedule", "deadlock: " + describe_deadlock(step, result), "",
                                 "reorder the actions so that each comes after those it needs"});
  }
  return TimelineBuilder(program, times, step, result).build();
}

Timeline simulate(const Program& program, const StepTimes& times) {
  const LoweredStep step = lower(program, times);
  return make_timeline(program, times, step, run(step.graph));
}

std::size_t add_exchange_spans(const CostsByStage& stages, std::size_t most, Timeline& timeline) {
  const ExchangeSpans exchanges(stages);
  std::vector<std::vector<Span>> added(timeline.ranks.size());
  std::size_t count = 0;
  // All passes of a stage, and all pairs of two stages, differ only in their start.
  std::map<std::pair<std::pair<int, int>, Ticks>, std::vector<Place>> known;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    const std::vector<Span>& spans = timeline.ranks[rank];
    for (std::size_t index = 0; index < spans.size(); ++index) {
      const Span& span = spans[index];
      if (!is_action(span.kind)) continue;
      const bool pair = span.action.overlaps_next && index + 1 < spans.size();
      const Span& second = pair ? spans[index + 1] : span;
      const auto number = [](const Span& of) {
        return of.action.stage * static_cast<int>(kActionKinds.size()) + static_cast<int>(of.action.kind);
      };
      const std::pair<std::pair<int, int>, Ticks> key{{number(span), pair ? number(second) : -1},
                                                      span.end - span.start};
      const auto [found, is_new] = known.try_emplace(key);
      if (is_new) found->second = pair ? exchanges.of_pair(span, second) : exchanges.of_pass(span);
      for (const Place& place : found->second) {
        const bool first_half = !pair || (span.kind == SpanKind::kForward) == place.forward;
        Action action = first_half ? span.action : second.action;
        action.overlaps_next = false;
        added[rank].push_back({span.start + place.start, span.start + place.end, action,
                               place.dispatches ? SpanKind::kDispatch : SpanKind::kCombine, StreamKind::kExperts});
      }
      count += found->second.size();
      if (pair) ++index;
    }
  }
  if (count == 0 || count > most) return count;
  for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    std::vector<Span>& spans = timeline.ranks[rank];
    spans.insert(spans.end(), added[rank].begin(), added[rank].end());
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  }
  return count;
}

}  // namespace flopcast
