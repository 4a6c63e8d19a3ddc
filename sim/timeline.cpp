#include "sim/timeline.hpp"

#include <algorithm>
#include <array>

namespace flopcast {

int WeightTrack::version(const Span& span) const {
  const auto& passes = span.kind == SpanKind::kForward ? forward : backward;
  return passes.at(span.action.stage).at(span.action.microbatch);
}

Ticks Timeline::makespan() const {
  Ticks latest = 0;
  for (const std::vector<Span>& spans : ranks) {
    for (const Span& span : spans) latest = std::max(latest, span.end);
  }
  return latest;
}

}  // namespace flopcast
