#include "sim/lower/exchange_spans.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "model/cost/expert_costs.hpp"

namespace flopcast {

namespace {

Ticks ticks_of(Seconds time) {
  return static_cast<Ticks>(std::llround(time.value() * kTicksPerSecond));
}

// From the start of the pass, or pair, that it belongs to.
struct Place {
  Ticks start = 0;
  Ticks end = 0;
  bool dispatches = false;
  bool forward = false;
};

// One layer of a pass by itself: so much is computed before its first exchange, and so much between the two.
struct Row {
  Seconds before;
  Seconds between;
  Seconds behind;
  Seconds dispatch;
  Seconds combine;

  Seconds computed() const { return before + between + behind; }
};

// `layers` of them in [start, end), their computation stretched or shortened to fill it.
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

// An input gradient alone where `weights` is false.
Row backward_row(const ExpertLayer& layer, bool weights) {
  const auto with = [weights](Seconds input, Seconds weight) { return weights ? input + weight : input; };
  return {Seconds(0), with(layer.experts_input, layer.experts_weight), with(layer.before_input, layer.before_weight),
          layer.dispatch, layer.combine};
}

// The layer whose computation takes `share` of what it does.
ExpertLayer computing(ExpertLayer layer, double share) {
  for (Seconds* piece : {&layer.before, &layer.experts, &layer.experts_input, &layer.experts_weight,
                         &layer.before_input, &layer.before_weight}) {
    *piece = *piece * share;
  }
  return layer;
}

// Such that its pair takes `time`: by halves, since more computation never makes a pair shorter.
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

  // A pass by itself.
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

  // The layers that one of the two has more run by themselves, behind the others.
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
  // The end of a backward pass's recomputation.
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

std::size_t add_exchange_spans(const CostsByStage& stages, std::size_t most, Timeline& timeline) {
  const ExchangeSpans exchanges(stages);
  std::vector<std::vector<Span>> added(timeline.ranks.size());
  std::size_t count = 0;
  // Passes of a stage, and pairs of two, are all alike but for where they start.
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
