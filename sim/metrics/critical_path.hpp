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

}  // namespace flopcast
