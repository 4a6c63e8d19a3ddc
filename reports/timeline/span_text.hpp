#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "reports/svg/canvas.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// One letter a kind, the same in every drawing: F B I W as schedules write them, S send, R gradient reduction,
/// E embedding reduction, N gradient norm, O optimizer, G parameter gather, D dispatch, C combine.
char letter_of(SpanKind kind);
/// The Okabe-Ito hue of a kind, mixed with white for later chunks: evenly up to 60 % for the last of `chunks`.
Rgb fill_color(SpanKind kind, ChunkIndex chunk, int chunks);
/// The class of a rectangle: letter and, from chunk 1 on, the chunk: "F", "B2".
std::string css_class(SpanKind kind, ChunkIndex chunk);

/// "3", or "3.1" for slice 1 of microbatch 3 where microbatches are cut.
std::string number_text(const Action& action, int slices_per_microbatch);
/// "microbatch 3", or "microbatch 3, slice 1".
std::string unit_words(const Action& action, int slices_per_microbatch);

/// Which of its rank's stages a span belongs to, stage / ranks: 0 for the first and for the kinds of the flush. Where
/// weights are tracked, ranks have one stage each, and this is the version of an action's weights, in turns of three.
ChunkIndex chunk_of(const Span& span, const Timeline& timeline);
inline constexpr int kVersionShades = 3;
/// 1 + the largest chunk.
int chunk_count(const Timeline& timeline);
/// The newest weights that an action of the timeline is computed with; 0 where none are tracked.
int newest_version(const Timeline& timeline);
/// "version 1, 4, 7 …" of the weights: those of a shade up to the newest.
std::string version_words(int shade, int newest);
/// In the order of SpanKind.
std::vector<SpanKind> kinds_present(const Timeline& timeline);

/// Two spans of one stream that run at the same time (an overlapped pair) cannot share a lane of a drawing. lane_of[i]
/// is the lowest lane of its stream that is free when spans[i] starts: 0 unless there are such pairs.
std::vector<int> assign_lanes(const std::vector<Span>& spans);

/// What one tick is in the unit that numbers are shown in.
struct DisplayUnit {
  double per_tick = 1.0;
  std::string name;  ///< "s", "ms", "us", "ns", "ps", or the timeline's own; empty for an abstract schedule
};
/// Seconds are shown in the largest unit in which `largest` is at least 1; any other unit as it is.
DisplayUnit display_unit(const Timeline& timeline, Ticks largest);
/// "3.1 ms", "33": rounded to `digits` significant digits, never in scientific notation, no trailing zeros.
std::string time_text(double ticks, const DisplayUnit& unit, int digits = 4);

/// Share of ranks · makespan in which a rank's compute stream runs nothing; 0 for an empty timeline.
double idle_share(const Timeline& timeline);

/// What part of an action's time goes where.
struct PassPart {
  std::string name;  ///< "input gradient: tensor-parallel communication"
  TermId id = TermId::kCompute;
  double seconds = 0.0;  ///< below zero: hidden behind another part
};
/// By letter and stage: "F0".
using PassParts = std::map<std::string, std::vector<PassPart>>;

/// The parts of every stage's actions. They sum to the action's time, but for rounding to ticks: a full backward pass
/// has what it hides behind its weight gradient as a negative part. Left out: when in the pass each of them happens,
/// which is layer by layer and too fine to draw.
PassParts pass_parts(const PreparedStep& step);
/// The key of a span's parts; empty for what is no action.
std::string pass_key(const Span& span);
/// The same, one part a term, of the terms that take any time: compute, recomputation, then what is sent inside passes.
std::vector<PassPart> parts_by_term(const std::vector<PassPart>& parts);

}  // namespace flopcast
