#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "reports/timeline/pass_parts.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A value over time on each rank, drawn as one counter track a rank.
struct TraceCounter {
  struct Point {
    Ticks time = 0;
    double value = 0.0;  ///< holds from here to the next point
  };
  std::string name;                       ///< with its unit: "memory GiB"
  std::string key;                        ///< what the value is of: "activations"
  std::vector<std::vector<Point>> ranks;  ///< by pipeline rank, in order of time
};

struct TraceOptions {
  /// One name a rank, "stage 3 (dp0 tp0) node 1"; empty: "rank 3".
  std::vector<std::string> rank_names;
  std::vector<TraceCounter> counters;
  std::vector<std::pair<std::string, std::string>> other_data;  ///< tool, command …, beside the title
  /// What actions consist of, drawn inside their slices as long as each takes, one after the other: compute,
  /// recomputation, collectives inside the pass. They tell how much, not when. With more slices than this none is
  /// drawn, and otherData says so.
  PassParts inside;
  std::size_t max_inside = 300'000;
  /// Messages that share links of a fabric, drawn as a process of their own behind the ranks, a thread a row; none with
  /// more messages than max_inside.
  std::vector<SharedMessages> messages;
  /// Perfetto slows down under many arrows: with more transfers than this none is drawn, and otherData says so.
  std::size_t max_flows = 20'000;
};

/// What a forecast's trace shows beside its timeline: memory over time, what passes consist of, of how many GPUs a rank
/// tells, and messages on shared links, with what each takes longer than alone.
TraceOptions trace_options_of(const Forecast& forecast);

/// JSON in Chrome's trace event format, for ui.perfetto.dev and chrome://tracing: a process a rank, a thread a stream
/// (tid 0 compute, 2 pipeline, 3 gradient; the second half of an overlapped pair on tid 10), so that the slices of a
/// thread never overlap; an X event a span named "F 5" (Perfetto colours by the name without its digits), arrows for
/// transfers, counters where their value changes. Events are in order of time.
///
/// Times are microseconds with three decimals: whole nanoseconds, cut off. Slices end a nanosecond early, so that none
/// overlaps the next where a reader adds start and duration as floating-point numbers. A unit of an abstract schedule
/// is written as 1 us. Ticks must be a power of ten of their unit (InternalError).
///
/// An arrow leaves the slice that made the result 2 ns (2 thousandths of a unit; half the slice if that is less) before
/// its end and enters the consuming slice at its start: inside both, so that readers which count whole nanoseconds bind
/// it. The consuming slice is the first of its kind to start at or after the arrival. Transfers with either end in a
/// slice without length, in whole nanoseconds, or in none, get no arrow.
std::string write_chrome_trace(const Timeline& timeline, const TraceOptions& options);

/// A transfer between the spans that made and need its result: indices into Timeline::ranks[transfer rank].
struct Flow {
  std::size_t transfer = 0;
  std::size_t producer = 0;
  std::size_t consumer = 0;
};

/// The transfers whose two ends are compute spans of some length, in order of transfers. An activation is consumed by a
/// forward, a gradient by a full backward or an input gradient. Where an action occurs several times (more than one
/// step), the latest one that ended by the transfer's start made it, and the first one to start from its end needs it.
std::vector<Flow> bind_transfers(const Timeline& timeline);

}  // namespace flopcast
