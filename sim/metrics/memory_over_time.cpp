#include "sim/metrics/memory_over_time.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

namespace {

struct Change {
  Ticks time;
  std::int64_t held;   ///< how many more microbatches the stage holds
  std::int64_t split;  ///< of how many more only the weight gradient is missing
  std::uint16_t stage;
};

std::vector<Change> changes_of(const std::vector<Span>& spans, bool frees_in_pairs,
                               const std::vector<HeldBytes>& held) {
  std::vector<Change> changes;
  const Span* ahead = nullptr;  // the forward half of a pair whose backward half is freed first
  for (const Span& span : spans) {
    if (!is_action(span.kind)) continue;
    if (frees_in_pairs && span.kind == SpanKind::kForward && span.action.overlaps_next) {
      ahead = &span;
      continue;
    }
    const std::uint16_t stage = span.action.stage;
    const bool splits = held.at(stage).after_input_gradient != held.at(stage).from_forward;
    if (span.kind == SpanKind::kForward) changes.push_back({span.start, 1, 0, stage});
    if (span.kind == SpanKind::kBackward) changes.push_back({span.end, -1, 0, stage});
    if (ahead != nullptr) changes.push_back({ahead->end, 1, 0, ahead->action.stage});
    ahead = nullptr;
    if (span.kind == SpanKind::kInputGradient && splits) changes.push_back({span.end, 0, 1, stage});
    if (span.kind == SpanKind::kWeightGradient) changes.push_back({span.end, -1, splits ? -1 : 0, stage});
  }
  // Stable: at one instant the order of execution decides, in which a chunk is freed after it was allocated.
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  return changes;
}

}  // namespace

RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes) {
  std::vector<HeldBytes> held;
  for (const double bytes : held_bytes) held.push_back({bytes, bytes});
  return memory_over_time(timeline, rank, base_bytes, held);
}

// Counts chunks rather than adding up bytes, so that the curve returns to its base exactly.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<HeldBytes>& held_bytes) {
  RankMemory memory;
  std::vector<std::int64_t> held(held_bytes.size());
  std::vector<std::int64_t> split(held_bytes.size());
  std::vector<std::uint16_t> stages;
  const std::vector<Change> changes =
      changes_of(timeline.ranks.at(static_cast<std::size_t>(rank)), timeline.frees_in_pairs, held_bytes);
  for (const Change& change : changes) stages.push_back(change.stage);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  memory.points.push_back(MemoryPoint{0, base_bytes});
  memory.peak_bytes = base_bytes;
  memory.held_at_peak = held;
  for (const Change& change : changes) {
    held[change.stage] += change.held;
    split[change.stage] += change.split;
    double bytes = base_bytes;
    for (const std::uint16_t stage : stages) {
      const HeldBytes& each = held_bytes[stage];
      bytes += static_cast<double>(held[stage]) * each.from_forward +
               static_cast<double>(split[stage]) * (each.after_input_gradient - each.from_forward);
    }
    if (memory.points.back().time == change.time) {
      memory.points.back().bytes = bytes;
    } else {
      memory.points.push_back(MemoryPoint{change.time, bytes});
    }
    if (bytes <= memory.peak_bytes) continue;
    memory.peak_bytes = bytes;
    memory.held_at_peak = held;
  }
  return memory;
}

}  // namespace flopcast
