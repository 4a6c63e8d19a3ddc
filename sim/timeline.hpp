#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

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
  kDispatch,  ///< tokens sent to the ranks of their experts; backward: gradients of the expert outputs
  kCombine,   ///< expert outputs sent back; backward: gradients of the tokens
};
constexpr bool is_action(SpanKind kind) {
  return kind <= SpanKind::kWeightGradient;
}
/// True for exchanges, which run inside an action: overlapped with its computation or while the computation waits.
constexpr bool is_exchange(SpanKind kind) {
  return kind == SpanKind::kDispatch || kind == SpanKind::kCombine;
}
/// True if Span::action names the action that the span belongs to.
constexpr bool names_an_action(SpanKind kind) {
  return kind <= SpanKind::kSend || is_exchange(kind);
}
/// Returns the span kind of an action.
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
/// Names used in every legend, trace and table.
template <>
struct EnumNames<SpanKind> {
  static constexpr std::string_view kNames[] = {"forward",
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
};
inline constexpr std::size_t kSpanKindCount = std::size(EnumNames<SpanKind>::kNames);

/// The queues of a device. Work on one stream runs in order, one at a time.
enum class StreamKind : std::uint8_t { kCompute, kGradient, kPipeline, kExperts };
template <>
struct EnumNames<StreamKind> {
  static constexpr std::string_view kNames[] = {"compute", "gradient", "pipeline", "experts"};
};
inline constexpr std::size_t kStreamKindCount = std::size(EnumNames<StreamKind>::kNames);

/// One activity of a rank, from start to end.
struct Span {
  Ticks start = 0;
  Ticks end = 0;
  Action action;  ///< whose computation, sent result or exchange this is; unused by the flush
  SpanKind kind = SpanKind::kForward;
  StreamKind stream = StreamKind::kCompute;
};

/// An activation or gradient in transit between two ranks.
struct Transfer {
  Ticks start = 0;
  Ticks end = 0;
  Action produced_by;  ///< the action whose result travels
  std::uint16_t to_stage = 0;
  std::uint32_t from_rank = 0;
  std::uint32_t to_rank = 0;
};

/// Weight versions of an asynchronous schedule, whose weights change while the pipeline stays full.
struct WeightTrack {
  std::vector<std::vector<int>> forward;  ///< indexed by stage and microbatch: version that the pass uses
  std::vector<std::vector<int>> backward;
  std::vector<std::vector<Ticks>> updates;  ///< indexed by rank: times of its weight updates, which take no time

  /// Weight version that the action of the span uses.
  int version(const Span& span) const;
};

/// Everything that happened and when, forecast or measured. Reports, charts and comparisons read nothing else.
struct Timeline {
  std::string title;
  std::string time_unit;                 ///< "s" for a job; empty for an abstract schedule in the user's units
  double units_per_tick = 1e-6;          ///< 1e-12 for a job
  std::vector<std::vector<Span>> ranks;  ///< indexed by pipeline rank; spans in order of start, then of end
  std::vector<Transfer> transfers;       ///< in order of start
  int slices_per_microbatch = 1;         ///< as in the program; more than 1: actions are those of slices
  std::optional<WeightTrack> weights;    ///< only for an asynchronous schedule of the catalogue
  bool backward_frees_first = false;     ///< as in the program
  int model_copies = 1;                  ///< 2 for a bidirectional schedule, whose ranks hold a stage of each copy

  int rank_count() const { return static_cast<int>(ranks.size()); }
  Ticks makespan() const;
};

}  // namespace flopcast
