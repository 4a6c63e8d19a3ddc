#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "sim/timeline.hpp"

namespace flopcast {

/// One piece of work on the critical path.
struct CriticalStep {
  int rank = 0;  ///< of a collective, the rank on which the path arrives
  Span span;
  Ticks wait = 0;  ///< before it, unexplained by anything on the path; 0 in a simulated timeline
  Ticks time = 0;  ///< its part on the path: until its end, or until the reduction that runs beside the rest of it
  Ticks lag = 0;   ///< after it: the transfer to the next step
};

/// A chain of spans, each started by the one before, that explains the makespan:
///   sum over steps of wait + time + lag = makespan, exactly.
/// Shortening anything on it shortens the run until another chain takes over.
struct CriticalPath {
  std::vector<CriticalStep> steps;  ///< from first to last
  Ticks wait = 0;
  Ticks lag = 0;
  std::array<Ticks, 10> time_by_kind{};  ///< by SpanKind; an overlapped pair counts for its first half

  Ticks total() const;
};

/// Of all chains of constraints (order on a stream, transfers, flush order, collectives) from time 0 to the last end,
/// the one with the least unexplained wait: a shortest path in an acyclic graph whose edge from u to v costs start(v) -
/// end(u) - lag. Every link of a simulated timeline is tight, so there the wait is 0; in a measured one it is the time
/// that the model cannot explain. Linear in spans and transfers.
CriticalPath critical_path(const Timeline& timeline);

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
