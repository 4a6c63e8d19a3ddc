#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/forecast/prepare.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// What part of an action's time goes where.
struct PassPart {
  std::string name;  ///< "input gradient: tensor-parallel communication"
  TermId id = TermId::kCompute;
  double seconds = 0.0;  ///< below zero: hidden behind another part
};
/// By letter and stage: "F0".
using PassParts = std::map<std::string, std::vector<PassPart>>;

/// The parts of every stage's actions. They sum to the action's time, but for rounding to ticks: a full backward pass
/// has what it hides behind its weight gradient as a negative part. Left out: when in the pass each of them happens,
/// which is layer by layer and too fine to draw.
PassParts pass_parts(const PreparedStep& step);
/// The key of a span's parts; empty for what is no action.
std::string pass_key(const Span& span);
/// The same, one part a term, of the terms that take any time: compute, recomputation, then what is sent inside passes.
std::vector<PassPart> parts_by_term(const std::vector<PassPart>& parts);

}  // namespace flopcast
