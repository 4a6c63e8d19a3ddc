// Exact algorithms compared with all splits: no contiguous split is better than theirs.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "model/partition/pipedream_planner.hpp"

namespace flopcast {
namespace {

// Uses the full size range from the first case on, because small cases are uninteresting here.
int draw(int smallest, int beyond) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(smallest, beyond));
}

void for_every_split(int layers, int parts, int least, std::vector<int>& sizes,
                     const std::function<void(const std::vector<int>&)>& visit) {
  if (parts == 1) {
    if (layers < least) return;
    sizes.push_back(layers);
    visit(sizes);
    sizes.pop_back();
    return;
  }
  for (int size = least; size <= layers; ++size) {
    sizes.push_back(size);
    for_every_split(layers - size, parts - 1, least, sizes, visit);
    sizes.pop_back();
  }
}

double dearest(const std::vector<double>& costs) {
  return *std::max_element(costs.begin(), costs.end());
}

RC_GTEST_PROP(MinMaxPartition, IsTheBestOfAllSplits, ()) {
  const int layers = draw(1, 13);
  const int parts = draw(1, std::min(layers, 5) + 1);
  std::vector<double> costs;
  for (int layer = 0; layer < layers; ++layer) costs.push_back(draw(0, 30));
  const std::vector<int> found = min_max_partition(costs, parts);
  double best = std::numeric_limits<double>::infinity();
  std::vector<int> sizes;
  std::vector<int> earliest;  // the lexicographically largest of the best splits
  for_every_split(layers, parts, 1, sizes, [&](const std::vector<int>& split) {
    const double cost = dearest(part_costs(costs, split));
    if (cost > best) return;
    earliest = cost < best ? split : std::max(earliest, split);
    best = cost;
  });
  RC_ASSERT(dearest(part_costs(costs, found)) == best);
  RC_ASSERT(found == earliest);
}

SplitCosts random_costs(int ranks, int chunks, int layers, bool alike) {
  SplitCosts costs;
  costs.model_stages = ranks * chunks;
  std::vector<double> layer;
  for (int index = 0; index < layers; ++index) layer.push_back(alike ? 4.0 : draw(1, 9));
  for (int stage = 0; stage < costs.model_stages; ++stage) {
    costs.rank_of_stage.push_back(stage % ranks);
    const bool edge = stage == 0 || stage + 1 == costs.model_stages;
    costs.fixed.push_back(edge ? draw(0, 20) : 0.0);
    costs.layer.push_back(layer);
    const double slower = alike ? 1.0 : draw(1, 4);
    for (double& time : costs.layer.back()) time *= slower;
  }
  return costs;
}

std::vector<int> all_in_the_first(int layers, int stages) {
  std::vector<int> counts(static_cast<std::size_t>(stages), 0);
  counts.front() = layers;
  return counts;
}

void expect_best(const SplitCosts& costs, int layers) {
  const std::vector<int> found = balanced_split(costs, all_in_the_first(layers, costs.model_stages));
  RC_ASSERT(std::accumulate(found.begin(), found.end(), 0) == layers);
  const SplitQuality quality = quality_of(costs, found);
  std::vector<int> sizes;
  for_every_split(layers, costs.model_stages, 0, sizes,
                  [&](const std::vector<int>& split) { RC_ASSERT(!quality_of(costs, split).better_than(quality)); });
}

RC_GTEST_PROP(BalancedSplit, IsTheBestWithOneStageARank, ()) {
  const int layers = draw(1, 10);
  const int ranks = draw(1, 5);
  expect_best(random_costs(ranks, 1, layers, *rc::gen::arbitrary<bool>()), layers);
}

RC_GTEST_PROP(BalancedSplit, IsTheBestOfChunksWhenLayersAreAlike, ()) {
  const int layers = draw(1, 11);
  const int ranks = draw(1, 4);
  expect_best(random_costs(ranks, 2, layers, true), layers);
}

// Brute-force recurrence on a chain of layers: all splits into stages, all distributions of the workers.
double brute_force(const CutStates& cuts, int workers, double bandwidth) {
  const int layers = static_cast<int>(cuts.states.size());
  const auto before = [&](int layer, auto part) {
    return layer == 0 ? 0.0 : (cuts.states[static_cast<std::size_t>(layer - 1)].*part).value();
  };
  double best = std::numeric_limits<double>::infinity();
  for (int parts = 1; parts <= std::min(layers, workers); ++parts) {
    std::vector<int> sizes;
    for_every_split(layers, parts, 1, sizes, [&](const std::vector<int>& split) {
      std::vector<int> given;
      for_every_split(workers, parts, 1, given, [&](const std::vector<int>& replicas) {
        double slowest = 0.0;
        int begin = 0;
        for (int part = 0; part < parts; ++part) {
          const int end = begin + split[static_cast<std::size_t>(part)];
          const double m = replicas[static_cast<std::size_t>(part)];
          const double time = before(end, &CutState::time) - before(begin, &CutState::time);
          const double weights = before(end, &CutState::parameters) - before(begin, &CutState::parameters);
          slowest = std::max(slowest, std::max(time, 2.0 * (m - 1) * weights / bandwidth) / m);
          if (end < layers) slowest = std::max(slowest, 2.0 * before(end, &CutState::crossing) / bandwidth);
          begin = end;
        }
        best = std::min(best, slowest);
      });
    });
  }
  return best;
}

RC_GTEST_PROP(PipeDreamPlanner, IsTheBestOfAllPlans, ()) {
  const int layers = draw(1, 8);
  std::string text;
  std::string edges;
  for (int layer = 0; layer < layers; ++layer) {
    text += "node" + std::to_string(layer) + " -- L -- forward_compute_time=" + std::to_string(draw(0, 9)) +
            ", backward_compute_time=1, activation_size=" + std::to_string(draw(0, 9)) +
            ", parameter_size=" + std::to_string(draw(0, 20)) + "\n";
    if (layer > 0) edges += "\tnode" + std::to_string(layer - 1) + " -- node" + std::to_string(layer) + "\n";
  }
  const CutStates cuts = cut_states(read_layer_graph(text + edges, "drawn.txt"));
  const int workers = draw(1, 6);
  const double bandwidth = 1000.0 * draw(1, 20);
  const auto plan = plan_pipeline(cuts, {{workers, BytesPerSecond(bandwidth)}}, {});
  RC_ASSERT(plan.has_value());
  const double best = brute_force(cuts, workers, bandwidth);
  RC_ASSERT(std::abs(plan->time_per_minibatch.value() - best) <= 1e-12 * (1.0 + best));
  int used = 0;
  for (const PlannedStage& stage : plan->stages) used += stage.replicas;
  RC_ASSERT(used == workers);
}

}  // namespace
}  // namespace flopcast
