#pragma once

#include <string>
#include <vector>

#include "sim/forecast/result.hpp"
#include "sim/forecast/terms.hpp"

namespace flopcast {

/// A part of the step's time in two layouts.
struct ComparedTerm {
  TermId id = TermId::kCompute;
  std::string name;
  double a_s = 0.0;
  double b_s = 0.0;
  double delta_s() const { return b_s - a_s; }
};

/// The breakdown of two results term by term, bubbles by cause; each column sums to its step time, so the deltas sum
/// to the difference.
std::vector<ComparedTerm> compare_terms(const Result& a, const Result& b);

/// The terms with a delta of at least `share` of a's step time, the largest first, those in favour of `a` and those
/// against it.
struct Reasons {
  std::vector<ComparedTerm> in_favour;
  std::vector<ComparedTerm> against;
};
Reasons reasons_for(const Result& a, const Result& b, double share);

}  // namespace flopcast
