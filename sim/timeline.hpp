#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/action.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

enum class SpanKind : std::uint8_t {
  kForward,
  kBackward,
  kInputGradient,
  kWeightGradient,
  kSend,                ///< a send that occupies its rank
  kGradientReduction,   ///< data parallel
  kEmbeddingReduction,  ///< tied embeddings, first and last rank
  kGradientNorm,
  kOptimizer,
  kParameterGather,
};
constexpr bool is_action(SpanKind kind) {
  return kind <= SpanKind::kWeightGradient;
}
/// Of an action's span.
constexpr SpanKind span_kind(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return SpanKind::kForward;
    case ActionKind::kBackward:
      return SpanKind::kBackward;
    case ActionKind::kInputGradient:
      return SpanKind::kInputGradient;
    case ActionKind::kWeightGradient:
      break;
  }
  return SpanKind::kWeightGradient;
}
/// "forward", "gradient reduction" …: the words of every legend, trace and table.
std::string_view name_of(SpanKind kind);

/// The queues of a device. Work on one stream runs in order, one at a time.
enum class StreamKind : std::uint8_t { kCompute, kGradient, kPipeline };
std::string_view name_of(StreamKind kind);

/// Something a rank did from start to end.
struct Span {
  Ticks start = 0;
  Ticks end = 0;
  Action action;  ///< what was computed; for a send, what was sent; unused by the kinds of the flush
  SpanKind kind = SpanKind::kForward;
  StreamKind stream = StreamKind::kCompute;
};

/// An activation or gradient on its way between two ranks.
struct Transfer {
  Ticks start = 0;
  Ticks end = 0;
  Action produced_by;  ///< the action whose result travels
  std::uint16_t to_stage = 0;
  std::uint32_t from_rank = 0;
  std::uint32_t to_rank = 0;
};

/// The weights of an asynchronous schedule, which change while the pipeline stays full.
struct WeightTrack {
  std::vector<std::vector<int>> forward;  ///< by stage and microbatch: the version that the pass is computed with
  std::vector<std::vector<int>> backward;
  std::vector<std::vector<Ticks>> updates;  ///< by rank: when its weights change; the updates take no time here

  /// Of an action's span.
  int version(const Span& span) const;
};

/// What happened when, forecast or measured: the only thing that reports, charts and comparisons read.
struct Timeline {
  std::string title;
  std::string time_unit;                 ///< "s" for a job; empty for an abstract schedule in the user's own units
  double units_per_tick = 1e-6;          ///< 1e-12 for a job
  std::vector<std::vector<Span>> ranks;  ///< by pipeline rank; spans in order of start, then of end
  std::vector<Transfer> transfers;       ///< in order of start
  int slices_per_microbatch = 1;         ///< the program's: actions number slices, where microbatches are cut
  std::optional<WeightTrack> weights;    ///< of an asynchronous schedule of the catalogue
  int model_copies = 1;                  ///< 2 for a bidirectional schedule, whose ranks hold a stage of each

  int rank_count() const { return static_cast<int>(ranks.size()); }
  Ticks makespan() const;
};

}  // namespace flopcast
