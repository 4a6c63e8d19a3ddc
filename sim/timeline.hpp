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
  kDispatch,  ///< tokens to the ranks of their experts, or the gradients of what comes back
  kCombine,   ///< what the experts made of them back, or the gradients of the tokens
};
constexpr bool is_action(SpanKind kind) {
  return kind <= SpanKind::kWeightGradient;
}
/// Runs inside an action, beside its computation or while that waits.
constexpr bool is_exchange(SpanKind kind) {
  return kind == SpanKind::kDispatch || kind == SpanKind::kCombine;
}
/// Whether Span::action says what the span belongs to.
constexpr bool names_an_action(SpanKind kind) {
  return kind <= SpanKind::kSend || is_exchange(kind);
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
/// The words of every legend, trace and table.
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

/// Something a rank did from start to end.
struct Span {
  Ticks start = 0;
  Ticks end = 0;
  Action action;  ///< what was computed; of a send, what was sent, of an exchange, for what; unused by the flush
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
  bool frees_in_pairs = false;           ///< the program's
  int model_copies = 1;                  ///< 2 for a bidirectional schedule, whose ranks hold a stage of each

  int rank_count() const { return static_cast<int>(ranks.size()); }
  Ticks makespan() const;
};

}  // namespace flopcast
