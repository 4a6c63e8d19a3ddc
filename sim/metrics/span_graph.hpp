#pragma once

#include <cstddef>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast {

/// A span that others may wait for. Both halves of an overlapped pair are one node, and so are all parts of a
/// collective.
struct SpanNode {
  const Span* span = nullptr;  ///< null for the source
  int rank = 0;
};

/// `to` cannot start before `from` has ended and `lag` has passed; it started `wait` later than that. Where `to` needs
/// only the first part of `from`, as a reduction of gradients does that are ready early, the lag is negative.
struct SpanLink {
  std::size_t from = 0;
  std::size_t to = 0;
  Ticks lag = 0;
  Ticks wait = 0;
};

/// The constraints between the spans of a timeline. Node 0, the source, ends at time 0 and precedes everything.
struct SpanGraph {
  static constexpr std::size_t kSource = 0;
  std::vector<SpanNode> nodes;
  std::vector<SpanLink> links;
  std::vector<std::vector<std::size_t>> node_of;  ///< by rank and position among the rank's spans
};

/// Order on a stream; transfers; a rank's flush, whose spans follow each other and its last action, or, while that is
/// under way, what of it was done when the reduction began; and the collectives (embedding reduction, gradient norm),
/// which wait for all of their ranks.
SpanGraph build_span_graph(const Timeline& timeline);

}  // namespace flopcast
