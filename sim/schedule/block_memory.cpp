#include "sim/schedule/block_memory.hpp"

#include <algorithm>

namespace flopcast {

namespace {

// Halves of activations that a rank holds in the steady state when microbatches come `period` slots apart.
int steady_peak(const std::vector<BlockEntry>& entries, int period, const ActivationRule& rule) {
  int peak = 0;
  for (const BlockEntry& now : entries) {
    int held = 0;
    for (const BlockEntry& entry : entries) {
      // Repetitions until now, relative to those of `now`; the changes of one microbatch add up to nothing.
      const int distance = now.offset - entry.offset;
      const int repeated = distance >= 0 ? distance / period : -((period - 1 - distance) / period);
      held += rule.change(entry.action.kind) * repeated;
    }
    peak = std::max(peak, held);
  }
  return peak;
}

bool fits(const BuildingBlock& block, int period, const ActivationRule& rule) {
  return std::all_of(block.ranks.begin(), block.ranks.end(), [&](const std::vector<BlockEntry>& entries) {
    return rule.allows(steady_peak(entries, period, rule));
  });
}

}  // namespace

void stretch_to_fit(BuildingBlock& block, const ActivationRule& rule) {
  if (!rule.limit || fits(block, block.period, rule)) return;
  int too_short = block.period;
  int enough = block.period;
  for (const std::vector<BlockEntry>& entries : block.ranks) enough = std::max(enough, entries.back().offset + 1);
  while (enough - too_short > 1) {
    const int middle = too_short + (enough - too_short) / 2;
    (fits(block, middle, rule) ? enough : too_short) = middle;
  }
  block.period = enough;
}

}  // namespace flopcast
