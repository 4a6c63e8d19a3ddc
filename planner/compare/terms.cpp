#include "planner/compare/terms.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace flopcast {

namespace {

// Seconds of the compared terms, in their order.
std::vector<double> compared_seconds(const Result& result) {
  std::vector<double> seconds;
  for (const TermId id : compared_terms()) seconds.push_back(step_term(id).seconds(result));
  // Rounding of the sum is the largest term's: it must be somewhere.
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  *std::max_element(seconds.begin(), seconds.end()) += result.iteration.time_s - sum;
  return seconds;
}

}  // namespace

std::vector<ComparedTerm> compare_terms(const Result& a, const Result& b) {
  const std::vector<double> first = compared_seconds(a);
  const std::vector<double> second = compared_seconds(b);
  std::vector<ComparedTerm> terms;
  for (std::size_t index = 0; index < first.size(); ++index) {
    const StepTerm& term = step_term(compared_terms()[index]);
    terms.push_back({term.id, term.name, first[index], second[index]});
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
