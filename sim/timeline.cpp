#include "sim/timeline.hpp"

#include <algorithm>
#include <array>

namespace flopcast {

std::string_view name_of(SpanKind kind) {
  constexpr std::array<std::string_view, kSpanKindCount> kNames = {"forward",
                                                                   "backward",
                                                                   "input gradient",
                                                                   "weight gradient",
                                                                   "send",
                                                                   "gradient reduction",
                                                                   "embedding reduction",
                                                                   "gradient norm",
                                                                   "optimizer",
                                                                   "parameter gather",
                                                                   "dispatch",
                                                                   "combine"};
  return kNames.at(static_cast<std::size_t>(kind));
}

std::string_view name_of(StreamKind kind) {
  constexpr std::array<std::string_view, kStreamKindCount> kNames = {"compute", "gradient", "pipeline", "experts"};
  return kNames.at(static_cast<std::size_t>(kind));
}

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
