#include "sim/metrics/critical_path.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/dag_shortest_paths.hpp>
#include <limits>
#include <numeric>
#include <utility>

#include "model/error/error.hpp"
#include "sim/metrics/span_graph.hpp"

namespace flopcast {

namespace {

using Graph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, SpanLink>;

// For each node, the node before it on the chain with the least wait.
std::vector<std::size_t> least_wait_predecessors(const SpanGraph& spans, std::vector<Ticks>& wait) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  edges.reserve(spans.links.size());
  for (const SpanLink& link : spans.links) edges.emplace_back(link.from, link.to);
  const Graph graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), spans.links.begin(),
                    spans.nodes.size());
  std::vector<std::size_t> predecessor(spans.nodes.size());
  std::iota(predecessor.begin(), predecessor.end(), std::size_t{0});
  wait.assign(spans.nodes.size(), 0);
  constexpr Ticks kUnreached = std::numeric_limits<Ticks>::max();
  boost::dag_shortest_paths(
      graph, SpanGraph::kSource,
      boost::distance_map(boost::make_iterator_property_map(wait.begin(), get(boost::vertex_index, graph)))
          .predecessor_map(boost::make_iterator_property_map(predecessor.begin(), get(boost::vertex_index, graph)))
          .weight_map(get(&SpanLink::wait, graph))
          .distance_inf(kUnreached)
          .distance_zero(Ticks{0}));
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
