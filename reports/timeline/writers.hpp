#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reports/svg/canvas.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/run/run.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Visits every span of a timeline, rank by rank.
template <class Visit>
void each_span(const Timeline& timeline, const Visit& visit) {
  for (const std::vector<Span>& spans : timeline.ranks) {
    for (const Span& span : spans) visit(span);
  }
}

/// One letter per kind, the same in every drawing: F B I W as in schedules, S send, R gradient reduction, E embedding
/// reduction, N gradient norm, O optimizer, G parameter gather, D dispatch, C combine.
char letter_of(SpanKind kind);
/// The Okabe-Ito hue of a kind, mixed with white for later chunks: evenly up to 60 % for the last of `chunks`.
Rgb fill_color(SpanKind kind, ChunkIndex chunk, int chunks);
/// The class of a rectangle: the letter and, from chunk 1 on, the chunk: "F", "B2".
std::string css_class(SpanKind kind, ChunkIndex chunk);

/// "3", or "3.1" for slice 1 of microbatch 3 if microbatches are cut.
std::string number_text(const Action& action, int slices_per_microbatch);
/// "microbatch 3", or "microbatch 3, slice 1".
std::string unit_words(const Action& action, int slices_per_microbatch);

/// Index of the span's stage among its rank's stages, stage / ranks; 0 for the first and for the kinds of the flush. If
/// weights are tracked, ranks have one stage each, and this is the version of an action's weights modulo three.
ChunkIndex chunk_of(const Span& span, const Timeline& timeline);
inline constexpr int kVersionShades = 3;
/// 1 + the largest chunk.
int chunk_count(const Timeline& timeline);
/// The newest version of the weights that an action of the timeline uses; 0 if weights are not tracked.
int newest_version(const Timeline& timeline);
/// "version 1, 4, 7 …": the versions of the weights that share a shade, up to the newest.
std::string version_words(int shade, int newest);
/// The kinds that occur, in the order of SpanKind.
std::vector<SpanKind> kinds_present(const Timeline& timeline);

/// Two spans of one stream that run at the same time (an overlapped pair) cannot share a lane of a drawing. lane_of[i]
/// is the lowest lane of its stream that is free when spans[i] starts: 0 unless there are such pairs.
std::vector<int> assign_lanes(const std::vector<Span>& spans);

/// The unit in which numbers are shown, and the length of a tick in it.
struct DisplayUnit {
  double per_tick = 1.0;
  std::string name;  ///< "s", "ms", "us", "ns", "ps", or the timeline's own unit; empty for an abstract schedule
};
/// Seconds are shown in the largest unit in which `largest` is at least 1; other units are kept.
DisplayUnit display_unit(const Timeline& timeline, Ticks largest);
/// "3.1 ms", "33": rounded to `digits` significant digits, never in scientific notation, without trailing zeros.
std::string time_text(double ticks, const DisplayUnit& unit, int digits = 4);

/// Mean letter width of Helvetica, as a fraction of the text size.
inline constexpr double kLetterShare = 0.56;
/// Width in pixels of a label of digits and capitals in Helvetica.
double label_width(std::string_view label, double size);
/// "2" or, with letters, "F2" for an action; the letter alone for other spans.
std::string label_of(const Span& span, int slices, bool letters);
/// A span's kind, place, start and duration. `weights` may be null.
std::string span_tooltip(const Span& span, int slices, const WeightTrack* weights, const DisplayUnit& unit);

/// Fraction of ranks · makespan in which a rank's compute stream is idle; 0 for an empty timeline.
double idle_share(const Timeline& timeline);

/// A part of an action's time, and the term that it belongs to.
struct PassPart {
  std::string name;  ///< "input gradient: tensor-parallel communication"
  TermId id = TermId::kCompute;
  double seconds = 0.0;  ///< negative: hidden behind another part
};
/// Keyed by letter and stage: "F0".
using PassParts = std::map<std::string, std::vector<PassPart>>;

/// The parts of every stage's actions. They sum to the action's time, apart from rounding to ticks: a full backward
/// pass has what it hides behind its weight gradient as a negative part. Left out: when each part happens within the
/// pass, which is layer by layer and too fine to draw.
PassParts pass_parts(const PreparedStep& step);
/// The key of a span's parts; empty if the span is not an action.
std::string pass_key(const Span& span);
/// Merges the parts into one per term with non-zero time: compute, recomputation, then communication inside passes.
std::vector<PassPart> parts_by_term(const std::vector<PassPart>& parts);

struct SvgOptions : FigureStyle {
  std::string title = {};     ///< empty: the timeline's own; none above several timelines
  std::string subtitle = {};  ///< empty: ranks and makespan
};

/// A figure as in the pipeline papers: one row per rank, time to the right, forward blue, backward orange (Okabe-Ito
/// colours), later chunks of a rank lighter, idle light grey. Gradient and pipeline streams are thin lanes below their
/// rank's row, and the halves of an overlapped pair share the row's height. Weight gradients, sends and what follows
/// the passes are hatched, and actions carry letter and number if all of their kind have room for them, so that a grey
/// print is readable; no text is smaller than kSmallestText. Every rectangle of at least 1.2 px has its action, start
/// and duration as a tooltip; smaller ones are drawn together, and spans below 0.2 px are merged into the kind that
/// takes most of each 0.2 px. Valid XML, self-contained, the same bytes for the same input.
std::string write_svg(const Timeline& timeline, const SvgOptions& options);
/// Timelines below each other over one time axis, so that lengths compare. They must share unit and tick
/// (InternalError).
std::string write_svg(const std::vector<Timeline>& timelines, const SvgOptions& options);

struct TerminalOptions {
  int width = 80;      ///< columns of the terminal, labels included
  bool color = false;  ///< ANSI 256 colours, chosen to be distinguishable for colour-blind readers
  bool ascii = false;  ///< ASCII characters only
  bool legend = true;  ///< explanation of the signs below the drawing
};

/// One row per rank, time to the right:
///   rank 0 |0123······0─1─2─3─|
///   rank 1 |·012 ...
/// A forward is its microbatch number and blanks, a backward its number and a rule, input and weight gradients the
/// number and I or W; every other kind is its letter (letter_of); a dot is idle. Chunks after the first of a rank are
/// distinguished by colour, and the odd ones by subscript digits if the terminal has them.
///
/// Numbered and exact if all times are multiples of a column and the drawing fits. Otherwise starts and ends are
/// rounded to the nearest column. If an action has no room for its number, every column is the letter of the kind that
/// takes most of it. Numbers longer than their action shrink to their last digit, and the legend says so. Work on other
/// streams is shown where the compute stream is idle; the halves of an overlapped pair are drawn one after the other.
/// The last line holds the scale. Ends with a newline; an empty timeline is its title and "nothing ran".
std::string draw_timeline(const Timeline& timeline, const TerminalOptions& options);

/// A value over time on each rank, drawn as one counter track per rank.
struct TraceCounter {
  struct Point {
    Ticks time = 0;
    double value = 0.0;  ///< holds from here to the next point
  };
  std::string name;                       ///< with its unit: "memory GiB"
  std::string key;                        ///< the quantity: "activations"
  std::vector<std::vector<Point>> ranks;  ///< by pipeline rank, in order of time
};

struct TraceOptions {
  /// One name per rank, "stage 3 (dp0 tp0) node 1"; empty: "rank 3".
  std::vector<std::string> rank_names;
  std::vector<TraceCounter> counters;
  std::vector<std::pair<std::string, std::string>> other_data;  ///< tool, command …, besides the title
  /// The parts of actions, drawn inside their slices with their durations, one after the other: compute, recomputation,
  /// collectives inside the pass. They show how much, not when. With more slices than max_inside none is drawn, and
  /// otherData says so.
  PassParts inside;
  std::size_t max_inside = 300'000;
  /// Messages that share links of a fabric, drawn as a separate process after the ranks, one thread per row; left out
  /// if there are more messages than max_inside.
  std::vector<SharedMessages> messages;
  /// Perfetto slows down with many arrows: with more transfers than this none is drawn, and otherData says so.
  std::size_t max_flows = 20'000;
};

/// The contents of a forecast's trace besides its timeline: memory over time, the parts of passes, the number of GPUs
/// that a rank represents, and messages on shared links with their slowdown.
TraceOptions trace_options_of(const Forecast& forecast);

/// JSON in Chrome's trace event format, for ui.perfetto.dev and chrome://tracing: a process per rank, a thread per
/// stream (tid 0 compute, 2 pipeline, 3 gradient; the second half of an overlapped pair on tid 10), so that the slices
/// of a thread never overlap; an X event per span named "F 5" (Perfetto colours by the name without its digits), arrows
/// for transfers, counters where their value changes. Events are in order of time.
///
/// Times are microseconds with three decimals: whole nanoseconds, truncated. Slices end a nanosecond early, so that
/// none overlaps the next if a reader adds start and duration as floating-point numbers. A unit of an abstract schedule
/// is written as 1 us. Ticks must be a power of ten of their unit (InternalError).
///
/// An arrow leaves the slice that made the result 2 ns (2 thousandths of a unit; half the slice if that is less) before
/// its end and enters the consuming slice at its start: inside both, so that readers that count whole nanoseconds bind
/// it. The consuming slice is the first of its kind to start at or after the arrival. Transfers without a slice at
/// either end, or with a slice of less than a whole nanosecond, get no arrow.
std::string write_chrome_trace(const Timeline& timeline, const TraceOptions& options);

/// A transfer between the span that made a result and the span that needs it: indices into Timeline::ranks[transfer
/// rank].
struct Flow {
  std::size_t transfer = 0;
  std::size_t producer = 0;
  std::size_t consumer = 0;
};

/// The transfers whose ends are both compute spans of non-zero length, in order of transfers. A forward consumes an
/// activation; a full backward or an input gradient consumes a gradient. If an action occurs several times (more than
/// one step), the producer is the latest one that ended by the transfer's start, the consumer the first one to start at
/// or after its end.
std::vector<Flow> bind_transfers(const Timeline& timeline);

/// A step for packet-level simulators: a Chakra execution trace of every device (MLCommons,
/// schema/protobuf/et_def.proto 0.0.4: length-prefixed protobuf messages), which ASTRA-sim reads together with the
/// groups and the network below.
///
/// A device's trace is a chain in the order of its rank's actions. An action is its incoming messages (COMM_RECV), its
/// computation (COMP) with its collectives (COMM_COLL), and its outgoing messages (COMM_SEND, at once). For
/// --replay-only, `duration_micros` is how long a rank computes or waits, rounded; absent if all of it is hidden. Sizes
/// are buffers as nccl-tests prints them. Collectives of one axis in one pass form one node of their kind: tensor
/// parallelism an all-reduce, with sequence parallelism an all-gather and a reduce-scatter; context parallelism an
/// all-gather, ulysses an all-to-all; experts an all-to-all; sharded weights an all-gather. After the last action: the
/// gradients (all-reduce, or reduce-scatter if they or the optimizer are sharded), the optimizer, and the gather of
/// sharded weights. Left out: the overlap of collectives inside a pass (here they follow each other), reductions of
/// tied embeddings and of the gradient norm. Throws ConfigError for an asynchronous schedule, a rank that the job does
/// not have, replicas of single stages, and layouts whose collectives have no such form: grids of tensor_parallel,
/// folded experts, and parameter servers.
std::string chakra_trace(const Forecast& forecast, int rank);

/// JSON of ASTRA-sim's --comm-group-configuration: {"7": [0, 8], …}, the groups of all devices' collectives.
std::string chakra_groups(const Forecast& forecast);

/// YAML of ASTRA-sim's analytical --network-configuration: nodes as switches, with the network cards of a device
/// between them; bandwidths in GB/s (2^30) per direction, latencies in ns.
std::string chakra_network(const Forecast& forecast);

/// The history of a whole training run, one row per week (or hour, quarter of a day, day, four weeks, half a year: the
/// shortest that needs at most 20 rows), followed by the share of it spent training:
///   week  1 |██▇████▅█…| 94 %
/// A cell is as high as the share of its time spent training, in eighths, or a digit for tenths if only ASCII may be
/// written (# for all); if one kind of loss takes more than half of a cell, its letter. Times count from the start of
/// the run. Lost work is drawn before the failure that caused it.
std::string draw_life(const RunLife& life, const std::string& title, const TerminalOptions& options);

/// The same as a figure: each row shows the time spent training, with the losses stacked above it by kind.
std::string write_life_svg(const RunLife& life, const std::string& title, bool dark_mode = true);
/// The figure as a page that loads nothing. `answer` is a line above it.
std::string write_life_page(const RunLife& life, const std::string& title, const std::string& answer);

}  // namespace flopcast
