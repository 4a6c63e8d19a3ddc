// The exact partition and PipeDream's planner compared with the recurrence over all cuts that they replace; fails if a
// result differs.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/job/read_job.hpp"
#include "model/partition/balanced_split.hpp"
#include "model/partition/pipedream_planner.hpp"

namespace flopcast {
namespace {

template <class Work>
double seconds_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double min_max_by_recurrence(const std::vector<double>& costs, int parts) {
  std::vector<double> prefix = {0.0};
  for (const double cost : costs) prefix.push_back(prefix.back() + cost);
  std::vector<double> row = prefix;
  for (int part = 1; part < parts; ++part) {
    std::vector<double> next(prefix.size(), std::numeric_limits<double>::infinity());
    for (std::size_t end = 1; end < prefix.size(); ++end) {
      for (std::size_t cut = 0; cut < end; ++cut)
        next[end] = std::min(next[end], std::max(row[cut], prefix[end] - prefix[cut]));
    }
    row = next;
  }
  return row.back();
}

bool report_min_max() {
  constexpr int kLayers = 10'000;
  constexpr int kStages = 64;
  std::mt19937 random(7);
  std::vector<double> costs;
  for (int layer = 0; layer < kLayers; ++layer) costs.push_back(static_cast<double>(random() % 1000));
  std::vector<int> sizes;
  const double exact = seconds_of([&] { sizes = min_max_partition(costs, kStages); });
  double expected = 0.0;
  const double naive = seconds_of([&] { expected = min_max_by_recurrence(costs, kStages); });
  const std::vector<double> sums = part_costs(costs, sizes);
  std::printf("exact partition of %d layers in %d stages: %.3f ms, recurrence %.0f ms, ratio %.0f\n", kLayers, kStages,
              exact * 1e3, naive * 1e3, naive / exact);
  return *std::max_element(sums.begin(), sums.end()) == expected;
}

double plan_by_recurrence(const CutStates& cuts, int workers, double bandwidth) {
  const std::size_t count = cuts.states.size();
  const auto stage = [&](std::size_t begin, std::size_t end, int units) {
    double time = cuts.states[end].time.value();
    double weights = cuts.states[end].parameters.value();
    if (begin > 0) {
      time -= cuts.states[begin - 1].time.value();
      weights -= cuts.states[begin - 1].parameters.value();
    }
    return std::max(time, 2.0 * (units - 1) * weights / bandwidth) / units;
  };
  std::vector<std::vector<double>> best(static_cast<std::size_t>(workers) + 1, std::vector<double>(count));
  for (int all = 1; all <= workers; ++all) {
    for (std::size_t end = 0; end < count; ++end) {
      double shortest = stage(0, end, all);
      for (std::size_t cut = 0; cut < end; ++cut) {
        for (int units = 1; units < all; ++units) {
          const double sent = 2.0 * cuts.states[cut].crossing.value() / bandwidth;
          const double before = best[static_cast<std::size_t>(all - units)][cut];
          shortest = std::min(shortest, std::max({before, sent, stage(cut + 1, end, units)}));
        }
      }
      best[static_cast<std::size_t>(all)][end] = shortest;
    }
  }
  return best[static_cast<std::size_t>(workers)][count - 1];
}

bool report_planner() {
  constexpr int kLayers = 1000;
  constexpr int kWorkers = 32;
  constexpr double kBandwidth = 1e10;
  std::mt19937 random(11);
  std::string text;
  std::string edges;
  for (int layer = 0; layer < kLayers; ++layer) {
    const std::string name = "node" + std::to_string(layer);
    text += name + " -- L -- forward_compute_time=" + std::to_string(random() % 10 + 1) +
            ", backward_compute_time=" + std::to_string(random() % 20 + 1) +
            ", activation_size=" + std::to_string(random() % 1000000) +
            ", parameter_size=" + std::to_string(random() % 10000000) + "\n";
    if (layer > 0) edges += "\tnode" + std::to_string(layer - 1) + " -- " + name + "\n";
  }
  const CutStates cuts = cut_states(read_layer_graph(text + edges, "bench"));
  double found = 0.0;
  const double planner = seconds_of([&] {
    found = plan_pipeline(cuts, {{kWorkers, BytesPerSecond(kBandwidth)}}, {})->time_per_minibatch.value();
  });
  double expected = 0.0;
  const double naive = seconds_of([&] { expected = plan_by_recurrence(cuts, kWorkers, kBandwidth); });
  std::printf("PipeDream's planner, %d layers on %d workers: %.1f ms, recurrence %.0f ms, ratio %.0f\n", kLayers,
              kWorkers, planner * 1e3, naive * 1e3, naive / planner);
  return std::abs(found - expected) <= 1e-12 * expected;
}

}  // namespace
}  // namespace flopcast

int main() {
  const bool same_split = flopcast::report_min_max();
  const bool same_plan = flopcast::report_planner();
  return same_split && same_plan ? 0 : 1;
}
