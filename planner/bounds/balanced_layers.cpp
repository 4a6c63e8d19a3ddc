#include "planner/bounds/balanced_layers.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>

#include "model/layout/layout.hpp"
#include "model/partition/balanced_split.hpp"

namespace flopcast {

namespace {

double seconds_of(const StageCosts& costs) {
  return (costs.forward.total() + costs.recompute.total() + costs.input_gradient.total() +
          costs.weight_gradient.total() - costs.tp_hidden)
      .value();
}

// Where stages sit between the embedding and the head: their cost is so many layers.
struct Ends {
  double layer = 0.0;
  double first = 0.0;
  double last = 0.0;
};

bool layers_are_alike(const Job& job) {
  const int with_experts = job.model.expert_layers(0, job.model.layers);
  return with_experts == 0 || with_experts == job.model.layers;
}

// From three stages of the even split, of which an inner one has layers alone.
Ends ends_of(const StepCosts& uniform) {
  const std::size_t last = uniform.stages.size() - 1;
  const StageCosts& inner = uniform.stages[1];
  Ends ends;
  ends.layer = seconds_of(inner) / inner.layers;
  ends.first = seconds_of(uniform.stages[0]) - ends.layer * uniform.stages[0].layers;
  ends.last = seconds_of(uniform.stages[last]) - ends.layer * uniform.stages[last].layers;
  return ends;
}

}  // namespace

std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform) {
  const int count = stages.model_stages;
  const int layers = job.model.layers;
  const std::vector<int> even = even_stage_layers(layers, count);
  const bool simple = count > 2 && stages.copies() == 1 && layers_are_alike(job) && !job.cluster.uneven();
  if (!simple) return balanced_split(split_costs(job, stages), even);
  const Ends ends = ends_of(uniform);
  using Quality = std::tuple<double, double, int>;  // dearest stage, squares, layers of the first
  std::vector<int> best;
  Quality best_quality;
  const int most = layers / count + 1;
  for (int first = std::max(0, most - 1 - static_cast<int>(ends.first / ends.layer) - 1); first <= most; ++first) {
    for (int last = std::max(0, most - 1 - static_cast<int>(ends.last / ends.layer) - 1); last <= most; ++last) {
      const int inner = layers - first - last;
      if (inner < 0) continue;
      const int low = inner / (count - 2);
      const int higher = inner % (count - 2);
      const double first_s = ends.first + first * ends.layer;
      const double last_s = ends.last + last * ends.layer;
      const double high_s = ends.layer * (low + (higher > 0 ? 1 : 0));
      const double low_s = ends.layer * low;
      const double squares =
          first_s * first_s + last_s * last_s + higher * high_s * high_s + (count - 2 - higher) * low_s * low_s;
      const Quality quality{std::max({first_s, last_s, high_s}), squares, first};
      if (!best.empty() && quality >= best_quality) continue;
      best_quality = quality;
      best = even_stage_layers(inner, count - 2);
      best.insert(best.begin(), first);
      best.push_back(last);
    }
  }
  return best;
}

}  // namespace flopcast
