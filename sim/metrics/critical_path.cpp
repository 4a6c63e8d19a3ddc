#include "sim/metrics/metrics.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kNoNode = std::numeric_limits<std::size_t>::max();

class Builder {
 public:
  explicit Builder(const Timeline& timeline) : timeline_(timeline), transfers_(timeline) {
    graph_.nodes.push_back(SpanNode{});
  }

  SpanGraph build() {
    graph_.node_of.resize(timeline_.ranks.size());
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) number_rank(rank);
    for (std::size_t rank = 0; rank < timeline_.ranks.size(); ++rank) link_rank(rank);
    return std::move(graph_);
  }

 private:
  void number_rank(std::size_t rank);
  void link_rank(std::size_t rank);
  void link_transfer(const Span& span, std::size_t node);
  void link_flush(std::size_t node, std::size_t compute, std::size_t flush);
  void link(std::size_t from, std::size_t to, Ticks lag);
  std::size_t add_node(const Span& span, std::size_t rank);
  std::size_t node_of(const Span& span, std::size_t rank);

  static std::uint64_t key(const Action& action, bool send) {
    return (std::uint64_t{action.microbatch} << 19) | (std::uint64_t{action.stage} << 3) |
           (static_cast<std::uint64_t>(action.kind) << 1) | std::uint64_t{send};
  }

  const Timeline& timeline_;
  AwaitedTransfers transfers_;
  SpanGraph graph_;
  std::unordered_map<std::uint64_t, std::size_t> producers_;  // nodes of transferred results, by key
  std::size_t embedding_ = kNoNode;
  std::size_t norm_ = kNoNode;
};

std::size_t Builder::add_node(const Span& span, std::size_t rank) {
  graph_.nodes.push_back(SpanNode{&span, static_cast<int>(rank)});
  return graph_.nodes.size() - 1;
}

std::size_t Builder::node_of(const Span& span, std::size_t rank) {
  if (span.kind != SpanKind::kEmbeddingReduction && span.kind != SpanKind::kGradientNorm) return add_node(span, rank);
  std::size_t& shared = span.kind == SpanKind::kGradientNorm ? norm_ : embedding_;
  if (shared == kNoNode) shared = add_node(span, rank);
  return shared;
}

void Builder::number_rank(std::size_t rank) {
  const std::vector<Span>& spans = timeline_.ranks[rank];
  bool second_half = false;
  std::size_t pass = kNoNode;
  for (const Span& span : spans) {
    if (is_exchange(span.kind) && pass != kNoNode) {
      graph_.node_of[rank].push_back(pass);  // it is a part of its pass
      continue;
    }
    const std::size_t node = second_half ? graph_.node_of[rank].back() : node_of(span, rank);
    graph_.node_of[rank].push_back(node);
    second_half = is_action(span.kind) && span.action.overlaps_next;
    if (is_action(span.kind) || span.kind == SpanKind::kSend) {
      producers_[key(span.action, span.kind == SpanKind::kSend)] = node;
      pass = node;
    }
  }
}

void Builder::link(std::size_t from, std::size_t to, Ticks lag) {
  const Ticks end = from == SpanGraph::kSource ? 0 : graph_.nodes[from].span->end;
  graph_.links.push_back(SpanLink{from, to, lag, graph_.nodes[to].span->start - end - lag});
}

void Builder::link_transfer(const Span& span, std::size_t node) {
  const Transfer* transfer = transfers_.find(span.action);
  if (transfer == nullptr) return;
  const auto send = producers_.find(key(transfer->produced_by, true));
  if (send != producers_.end()) {
    link(send->second, node, 0);
    return;
  }
  const auto action = producers_.find(key(transfer->produced_by, false));
  if (action != producers_.end()) link(action->second, node, transfer->end - transfer->start);
}

// `compute` and `flush`: what the rank started last on either stream.
void Builder::link_flush(std::size_t node, std::size_t compute, std::size_t flush) {
  const Ticks start = graph_.nodes[node].span->start;
  if (compute == kNoNode && flush == kNoNode) link(SpanGraph::kSource, node, 0);
  if (flush != kNoNode) link(flush, node, 0);
  if (compute == kNoNode) return;
  const Ticks under_way = std::max(Ticks{0}, graph_.nodes[compute].span->end - start);
  const bool queued = flush != kNoNode && graph_.nodes[flush].span->end == start;
  if (under_way == 0 || !queued) link(compute, node, -under_way);
}

void Builder::link_rank(std::size_t rank) {
  const std::vector<Span>& spans = timeline_.ranks[rank];
  std::size_t last_on_compute = kNoNode;
  std::size_t last_of_flush = kNoNode;
  for (std::size_t index = 0; index < spans.size(); ++index) {
    const Span& span = spans[index];
    const std::size_t node = graph_.node_of[rank][index];
    if (is_exchange(span.kind)) continue;
    if (is_action(span.kind)) link_transfer(span, node);
    if (is_action(span.kind) || span.kind == SpanKind::kSend) {
      if (node == last_on_compute) continue;
      link(last_on_compute == kNoNode ? SpanGraph::kSource : last_on_compute, node, 0);
      last_on_compute = node;
    } else {
      link_flush(node, last_on_compute, last_of_flush);
      last_of_flush = node;
    }
  }
}

}  // namespace

SpanGraph build_span_graph(const Timeline& timeline) {
  return Builder(timeline).build();
}

namespace {

using WaitGraph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, SpanLink>;

// For each node, the node before it on the chain with the least wait.
std::vector<std::size_t> least_wait_predecessors(const SpanGraph& spans, std::vector<Ticks>& wait) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  edges.reserve(spans.links.size());
  for (const SpanLink& link : spans.links) edges.emplace_back(link.from, link.to);
  const WaitGraph graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), spans.links.begin(),
                        spans.nodes.size());
  std::vector<std::size_t> predecessor(spans.nodes.size());
  std::iota(predecessor.begin(), predecessor.end(), std::size_t{0});
  wait.assign(spans.nodes.size(), 0);
  constexpr Ticks kUnreached = std::numeric_limits<Ticks>::max();
  try {
    boost::dag_shortest_paths(
        graph, SpanGraph::kSource,
        boost::distance_map(boost::make_iterator_property_map(wait.begin(), get(boost::vertex_index, graph)))
            .predecessor_map(boost::make_iterator_property_map(predecessor.begin(), get(boost::vertex_index, graph)))
            .weight_map(get(&SpanLink::wait, graph))
            .distance_inf(kUnreached)
            .distance_zero(Ticks{0}));
  } catch (const boost::not_a_dag&) {
    // Only a file that somebody changed tells of such a run.
    throw ConfigError({"timeline", "its actions wait for each other in a circle: one begins before what it needs", "",
                       "give a timeline as flopcast timeline, simulate or run wrote it"});
  }
  return predecessor;
}

}  // namespace

Ticks CriticalPath::total() const {
  return std::accumulate(time_by_kind.begin(), time_by_kind.end(), wait + lag);
}

CriticalPath critical_path(const Timeline& timeline) {
  CriticalPath path;
  const SpanGraph spans = build_span_graph(timeline);
  if (spans.nodes.size() == 1) return path;
  std::vector<Ticks> wait;
  const std::vector<std::size_t> predecessor = least_wait_predecessors(spans, wait);
  const Ticks makespan = timeline.makespan();
  std::size_t node = SpanGraph::kSource;
  for (std::size_t candidate = 1; candidate < spans.nodes.size(); ++candidate) {
    if (spans.nodes[candidate].span->end != makespan) continue;
    if (node == SpanGraph::kSource || wait[candidate] < wait[node]) node = candidate;
  }
  Ticks next_start = makespan;
  Ticks next_wait = 0;
  while (node != SpanGraph::kSource) {
    const SpanNode& current = spans.nodes[node];
    FLOPCAST_CHECK(predecessor[node] != node);
    CriticalStep step;
    step.rank = current.rank;
    step.span = *current.span;
    const Ticks left = std::min(current.span->end, next_start - next_wait);
    step.time = left - current.span->start;
    step.lag = next_start - next_wait - left;
    step.wait = wait[node] - wait[predecessor[node]];
    path.wait += step.wait;
    path.lag += step.lag;
    path.time_by_kind.at(static_cast<std::size_t>(step.span.kind)) += step.time;
    next_start = step.span.start;
    next_wait = step.wait;
    path.steps.push_back(step);
    node = predecessor[node];
  }
  std::reverse(path.steps.begin(), path.steps.end());
  return path;
}

}  // namespace flopcast
