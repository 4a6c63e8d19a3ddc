#include "sim/metrics/cycle_ratio.hpp"

#include <algorithm>
#include <boost/graph/compressed_sparse_row_graph.hpp>
#include <boost/graph/howard_cycle_ratio.hpp>
#include <cmath>
#include <cstdint>
#include <utility>

namespace flopcast {

namespace {

struct Weights {
  double time = 0.0;
  double advance = 0.0;
  std::size_t arc = 0;
};
using Graph = boost::compressed_sparse_row_graph<boost::directedS, boost::no_property, Weights>;

std::vector<TimedArc> howard(const std::vector<TimedArc>& arcs, std::size_t nodes) {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  std::vector<Weights> weights;
  for (std::size_t index = 0; index < arcs.size(); ++index) {
    edges.emplace_back(arcs[index].from, arcs[index].to);
    weights.push_back({static_cast<double>(arcs[index].time), static_cast<double>(arcs[index].advance), index});
  }
  const Graph graph(boost::edges_are_unsorted_multi_pass, edges.begin(), edges.end(), weights.begin(), nodes);
  std::vector<boost::graph_traits<Graph>::edge_descriptor> cycle;
  boost::maximum_cycle_ratio(graph, get(boost::vertex_index, graph), get(&Weights::time, graph),
                             get(&Weights::advance, graph), &cycle);
  std::vector<TimedArc> result;
  result.reserve(cycle.size());
  for (const auto& edge : cycle) result.push_back(arcs[graph[edge].arc]);
  return result;
}

struct Sums {
  Ticks time = 0;
  std::int64_t advance = 0;
};

Sums sums_of(const std::vector<TimedArc>& cycle) {
  Sums sums;
  for (const TimedArc& arc : cycle) {
    sums.time += arc.time;
    sums.advance += arc.advance;
  }
  return sums;
}

bool fits_into_64_bits(const std::vector<TimedArc>& arcs, const Sums& sums) {
  constexpr double kLargest = 4e18;
  double total = 0.0;
  for (const TimedArc& arc : arcs) {
    total += static_cast<double>(arc.time) * static_cast<double>(sums.advance) +
             std::abs(static_cast<double>(arc.advance)) * static_cast<double>(sums.time);
  }
  return total < kLargest;
}

// A cycle whose ratio exceeds that of `sums`; empty when there is none.
std::vector<TimedArc> better_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes, const Sums& sums) {
  std::vector<std::int64_t> longest(nodes, 0);
  std::vector<std::size_t> last_arc(nodes, arcs.size());
  std::size_t raised = nodes;
  for (std::size_t round = 0; round <= nodes; ++round) {
    raised = nodes;
    for (std::size_t index = 0; index < arcs.size(); ++index) {
      const TimedArc& arc = arcs[index];
      const std::int64_t reached = longest[arc.from] + arc.time * sums.advance - arc.advance * sums.time;
      if (reached <= longest[arc.to]) continue;
      longest[arc.to] = reached;
      last_arc[arc.to] = index;
      raised = arc.to;
    }
    if (raised == nodes) return {};
  }
  // Back far enough to be on the cycle, then once around.
  std::size_t node = raised;
  for (std::size_t step = 0; step < nodes; ++step) node = arcs[last_arc[node]].from;
  std::vector<TimedArc> cycle;
  const std::size_t end = node;
  do {
    cycle.push_back(arcs[last_arc[node]]);
    node = cycle.back().from;
  } while (node != end);
  std::reverse(cycle.begin(), cycle.end());
  return cycle;
}

}  // namespace

std::vector<TimedArc> maximum_ratio_cycle(const std::vector<TimedArc>& arcs, std::size_t nodes) {
  std::vector<TimedArc> cycle = howard(arcs, nodes);
  // It overlooks cycles that take no time at all; any cycle beats a negative ratio.
  if (cycle.empty()) cycle = better_cycle(arcs, nodes, {-1, 1});
  while (!cycle.empty() && fits_into_64_bits(arcs, sums_of(cycle))) {
    std::vector<TimedArc> better = better_cycle(arcs, nodes, sums_of(cycle));
    if (better.empty()) break;
    cycle = std::move(better);
  }
  return cycle;
}

}  // namespace flopcast
