#include "realrun/executor/recording.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <utility>

namespace flopcast::realrun {

void Recording::span(SpanKind kind, StreamKind stream, const Action& action, const Mark& start, const Mark& end) {
  marked_.push_back({{.action = action, .kind = kind, .stream = stream}, start, end});
}

void Recording::span(SpanKind kind, StreamKind stream, const Interval& interval) {
  span(kind, stream, {}, interval.start, interval.end);
}

void Recording::sent(const MessageKey& key, const Action& produced_by, int peer, const Mark& at) {
  sent_.push_back({{key, produced_by, peer}, at});
}

void Recording::received(const MessageKey& key, const Action& produced_by, int peer, const Mark& at) {
  received_.push_back({{key, produced_by, peer}, at});
}

std::vector<TransferEnd> Recording::resolve(const std::vector<MarkedEnd>& ends) {
  std::vector<TransferEnd> resolved;
  for (const MarkedEnd& marked : ends) {
    resolved.push_back(marked.end);
    resolved.back().at = device_.time_of(marked.at);
  }
  return resolved;
}

RankRecord Recording::take() {
  RankRecord record;
  for (const MarkedSpan& marked : std::exchange(marked_, {})) {
    record.spans.push_back(marked.span);
    record.spans.back().start = device_.time_of(marked.start);
    record.spans.back().end = device_.time_of(marked.end);
  }
  std::stable_sort(record.spans.begin(), record.spans.end(),
                   [](const Span& a, const Span& b) { return a.start < b.start; });
  record.sent = resolve(std::exchange(sent_, {}));
  record.received = resolve(std::exchange(received_, {}));
  return record;
}

namespace {

void add_transfers(const std::vector<RankRecord>& ranks, Ticks origin, Timeline& timeline) {
  std::map<std::pair<int, MessageKey>, Ticks> arrivals;  // by receiving rank
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TransferEnd& end : ranks[rank].received) arrivals[{static_cast<int>(rank), end.key}] = end.at;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const TransferEnd& end : ranks[rank].sent) {
      const auto arrival = arrivals.find({end.peer, end.key});
      if (arrival == arrivals.end()) continue;  // the run ended before
      timeline.transfers.push_back({.start = end.at - origin,
                                    .end = arrival->second - origin,
                                    .produced_by = end.produced_by,
                                    .to_stage = end.key.stage,
                                    .from_rank = static_cast<std::uint32_t>(rank),
                                    .to_rank = static_cast<std::uint32_t>(end.peer)});
    }
  }
  std::stable_sort(timeline.transfers.begin(), timeline.transfers.end(),
                   [](const Transfer& a, const Transfer& b) { return a.start < b.start; });
}

// A collective between pipeline ranks begins when its last member has come; until then the others wait.
void begin_with_the_last(Timeline& timeline) {
  std::vector<Span> reductions;
  for (const std::vector<Span>& spans : timeline.ranks) {
    std::copy_if(spans.begin(), spans.end(), std::back_inserter(reductions),
                 [](const Span& span) { return span.kind == SpanKind::kEmbeddingReduction; });
  }
  for (std::vector<Span>& spans : timeline.ranks) {
    for (Span& span : spans) {
      if (span.kind != SpanKind::kEmbeddingReduction) continue;
      for (const Span& other : reductions) {
        if (other.start < span.end && other.end > span.start) span.start = std::max(span.start, other.start);
      }
    }
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
  }
}

}  // namespace

Timeline merge_records(const std::vector<RankRecord>& by_pipeline_rank) {
  Ticks origin = std::numeric_limits<Ticks>::max();
  for (const RankRecord& record : by_pipeline_rank) {
    for (const Span& span : record.spans) origin = std::min(origin, span.start);
  }
  Timeline timeline;
  timeline.time_unit = "s";
  timeline.units_per_tick = 1e-12;
  for (const RankRecord& record : by_pipeline_rank) {
    timeline.ranks.push_back(record.spans);
    for (Span& span : timeline.ranks.back()) {
      span.start -= origin;
      span.end -= origin;
    }
  }
  begin_with_the_last(timeline);
  add_transfers(by_pipeline_rank, origin, timeline);
  return timeline;
}

}  // namespace flopcast::realrun
