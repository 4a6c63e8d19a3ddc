#include "sim/metrics/memory_over_time.hpp"

#include <algorithm>
#include <cstddef>

namespace flopcast {

namespace {

struct Change {
  Ticks time;
  bool allocates;
  std::uint16_t stage;
};

std::vector<Change> changes_of(const std::vector<Span>& spans) {
  std::vector<Change> changes;
  for (const Span& span : spans) {
    if (span.kind == SpanKind::kForward) {
      changes.push_back(Change{span.start, true, span.action.stage});
    } else if (span.kind == SpanKind::kBackward || span.kind == SpanKind::kWeightGradient) {
      changes.push_back(Change{span.end, false, span.action.stage});
    }
  }
  // Stable: at one instant the order of execution decides, in which a chunk is freed after it was allocated.
  std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
  return changes;
}

}  // namespace

// Counts chunks rather than adding up bytes, so that the curve returns to its base exactly.
RankMemory memory_over_time(const Timeline& timeline, int rank, double base_bytes,
                            const std::vector<double>& held_bytes) {
  RankMemory memory;
  std::vector<std::int64_t> held(held_bytes.size());
  std::vector<std::uint16_t> stages;
  const std::vector<Change> changes = changes_of(timeline.ranks.at(static_cast<std::size_t>(rank)));
  for (const Change& change : changes) stages.push_back(change.stage);
  std::sort(stages.begin(), stages.end());
  stages.erase(std::unique(stages.begin(), stages.end()), stages.end());
  memory.points.push_back(MemoryPoint{0, base_bytes});
  memory.peak_bytes = base_bytes;
  memory.held_at_peak = held;
  for (const Change& change : changes) {
    held.at(change.stage) += change.allocates ? 1 : -1;
    double bytes = base_bytes;
    for (const std::uint16_t stage : stages) bytes += static_cast<double>(held[stage]) * held_bytes[stage];
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
