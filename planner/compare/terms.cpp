#include "planner/compare/terms.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace flopcast {

namespace {

using Column = std::vector<std::pair<const char*, double>>;

Column column_of(const Result& result) {
  const Breakdown& spent = result.breakdown;
  const BubbleResult& bubble = result.bubble;
  Column column = {{"compute", spent.compute_s},
                   {"recomputation", spent.recompute_s},
                   {"tensor-parallel communication", spent.tp_comm_s},
                   {"context-parallel communication", spent.cp_comm_s},
                   {"expert-parallel communication", spent.ep_comm_s},
                   {"pipeline communication", spent.pp_comm_s},
                   {"data-parallel communication", spent.dp_comm_s},
                   {"optimizer", spent.optimizer_s},
                   {"offloaded activations", spent.offload_s},
                   {"bubble: warm-up", bubble.warmup_s},
                   {"bubble: cool-down", bubble.cooldown_s},
                   {"bubble: uneven stages", bubble.imbalance_s},
                   {"bubble: dependencies", bubble.dependency_s}};
  // Rounding of the sum is the largest term's: it must be somewhere.
  double sum = 0.0;
  auto* largest = &column.front();
  for (auto& term : column) {
    sum += term.second;
    if (term.second > largest->second) largest = &term;
  }
  largest->second += result.iteration.time_s - sum;
  return column;
}

}  // namespace

std::vector<ComparedTerm> compare_terms(const Result& a, const Result& b) {
  const Column first = column_of(a);
  const Column second = column_of(b);
  std::vector<ComparedTerm> terms;
  for (std::size_t index = 0; index < first.size(); ++index) {
    terms.push_back({first[index].first, first[index].second, second[index].second});
  }
  return terms;
}

Reasons reasons_for(const Result& a, const Result& b, double share) {
  Reasons reasons;
  for (const ComparedTerm& term : compare_terms(a, b)) {
    if (std::abs(term.delta_s()) < share * a.iteration.time_s) continue;
    (term.delta_s() > 0.0 ? reasons.in_favour : reasons.against).push_back(term);
  }
  const auto larger = [](const ComparedTerm& one, const ComparedTerm& other) {
    return std::abs(one.delta_s()) > std::abs(other.delta_s());
  };
  std::stable_sort(reasons.in_favour.begin(), reasons.in_favour.end(), larger);
  std::stable_sort(reasons.against.begin(), reasons.against.end(), larger);
  return reasons;
}

}  // namespace flopcast
