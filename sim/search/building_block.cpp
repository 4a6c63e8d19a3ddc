#include "sim/search/block_search.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "sim/program/request.hpp"

namespace flopcast {

namespace {

constexpr int kSlotsPerChunk = 3;  // a forward, and a backward of two slots

// The slots of its period that a rank has taken.
class SlotTable {
 public:
  SlotTable(int period, int widest) : taken_(static_cast<std::size_t>(period), false), widest_(widest) {}

  // Takes the first slot from `earliest` on where `width` slots are free and the remaining ones still have room for the
  // widest action.
  int take(int earliest, int width) {
    int slot = earliest;
    while (!fits(slot, width)) ++slot;
    for (int index = 0; index < width; ++index) taken_[place(slot + index)] = true;
    return slot;
  }

 private:
  std::size_t place(int slot) const { return static_cast<std::size_t>(slot) % taken_.size(); }

  bool fits(int slot, int width) const {
    std::vector<bool> after = taken_;
    for (int index = 0; index < width; ++index) {
      if (after[place(slot + index)]) return false;
      after[place(slot + index)] = true;
    }
    return widest_ == 1 || has_no_odd_hole(after);
  }

  // Holes of odd length could not be filled with full backwards once all forwards are placed. Before that, with two
  // chunks, one forward leaves an odd hole and the other makes it even again.
  static bool has_no_odd_hole(const std::vector<bool>& taken) {
    const std::size_t period = taken.size();
    const auto free_slots = std::count(taken.begin(), taken.end(), false);
    if (free_slots % 2 != 0) return true;
    const auto first = static_cast<std::size_t>(std::find(taken.begin(), taken.end(), true) - taken.begin());
    int hole = 0;
    for (std::size_t index = 1; index <= period; ++index) {
      if (!taken[(first + index) % period]) {
        ++hole;
        continue;
      }
      if (hole % 2 != 0) return false;
      hole = 0;
    }
    return true;
  }

  std::vector<bool> taken_;
  int widest_;
};

StageIndex stage_of(int ranks, int chunks, RankIndex rank, ChunkIndex chunk) {
  return chunks == 1 ? StageIndex(int{rank}) : v_stage(ranks, rank, chunk);
}

}  // namespace

BuildingBlock building_block(int ranks, int chunks, bool split, const BlockShape& shape) {
  BuildingBlock block;
  block.period = kSlotsPerChunk * chunks;
  block.ranks.resize(static_cast<std::size_t>(ranks));
  const int backward_width = split ? 1 : 2;
  ByRank<SlotTable> tables(static_cast<std::size_t>(ranks), SlotTable(block.period, backward_width));
  int earliest = 0;
  for (int leg = 0; leg < 2 * chunks; ++leg) {
    const bool forward = leg < chunks;
    const ChunkIndex chunk(forward ? leg : 2 * chunks - 1 - leg);
    const bool downward = forward == (chunk == 0);
    for (int index = 0; index < ranks; ++index) {
      const RankIndex rank(downward ? index : ranks - 1 - index);
      const StageIndex stage = stage_of(ranks, chunks, rank, chunk);
      BlockEntry entry;
      entry.action = forward ? forward_action(stage, MicrobatchIndex())
                     : split ? input_gradient_action(stage, MicrobatchIndex())
                             : backward_action(stage, MicrobatchIndex());
      entry.chunk = chunk;
      entry.offset = tables[rank].take(earliest, forward ? 1 : backward_width);
      block.ranks[rank].push_back(entry);
      const bool last = index == ranks - 1;
      const std::size_t place = static_cast<std::size_t>(leg);
      earliest = entry.offset + (last ? (place < shape.gaps.size() ? shape.gaps[place] : 0) : shape.steps[place]);
    }
  }
  for (std::size_t rank = 0; rank < block.ranks.size(); ++rank) {
    std::vector<BlockEntry>& entries = block.ranks[rank];
    const std::size_t passes = entries.size();
    for (std::size_t index = 0; split && index < passes; ++index) {
      if (entries[index].action.kind != ActionKind::kInputGradient) continue;
      BlockEntry entry = entries[index];
      entry.action.kind = ActionKind::kWeightGradient;
      entry.offset = tables[rank].take(entry.offset + 1, 1);
      entries.push_back(entry);
    }
    std::sort(entries.begin(), entries.end(),
              [](const BlockEntry& a, const BlockEntry& b) { return a.offset < b.offset; });
  }
  return block;
}

Plan repeat(const BuildingBlock& block, int microbatches) {
  Plan plan;
  const auto count = static_cast<std::size_t>(microbatches);
  for (const std::vector<BlockEntry>& entries : block.ranks) {
    std::vector<Action>& actions = plan.emplace_back();
    actions.reserve(entries.size() * count);
    std::vector<std::size_t> repeated(entries.size(), 0);
    while (actions.size() < entries.size() * count) {
      std::size_t best = entries.size();
      long best_slot = 0;
      for (std::size_t index = 0; index < entries.size(); ++index) {
        if (repeated[index] == count) continue;
        const long slot = entries[index].offset + static_cast<long>(repeated[index]) * block.period;
        if (best != entries.size() && slot >= best_slot) continue;
        best = index;
        best_slot = slot;
      }
      Action action = entries[best].action;
      action.microbatch = static_cast<std::uint32_t>(repeated[best]++);
      actions.push_back(action);
    }
  }
  return plan;
}

std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap) {
  std::vector<BlockShape> shapes = {BlockShape{}};
  const auto vary = [&shapes](int largest, const auto& set) {
    std::vector<BlockShape> varied;
    for (int value = 1; value <= largest; ++value) {
      for (BlockShape shape : shapes) {
        set(shape, value);
        varied.push_back(shape);
      }
    }
    shapes = std::move(varied);
  };
  const auto legs = static_cast<std::size_t>(2 * chunks);
  for (std::size_t leg = 0; leg < legs; ++leg) {
    vary(largest_step, [leg](BlockShape& shape, int value) { shape.steps[leg] = value; });
    if (leg + 1 < legs) vary(largest_gap, [leg](BlockShape& shape, int value) { shape.gaps[leg] = value; });
  }
  return shapes;
}

std::vector<BlockShape> v_shapes(int ranks) {
  constexpr int kLongestStep = 2;
  // Gaps matter less the longer the legs are, and many ranks leave little time.
  constexpr int kLongPipeline = 16;
  std::vector<BlockShape> shapes = all_shapes(2, kLongestStep, ranks > kLongPipeline ? 1 : 2);
  // Found by trying all steps up to 4 and gaps up to 6 on pipelines of 2 to 8 ranks: the shapes that were best in some
  // case.
  const std::vector<BlockShape> wider = {
      {{2, 1, 2, 1}, {1, 4, 2}}, {{1, 2, 1, 2}, {1, 4, 2}}, {{1, 2, 1, 2}, {2, 4, 4}}, {{1, 2, 1, 2}, {2, 4, 1}},
      {{1, 2, 1, 2}, {4, 1, 5}}, {{1, 2, 1, 2}, {4, 4, 2}}, {{1, 3, 1, 3}, {1, 1, 1}}, {{1, 3, 1, 3}, {1, 3, 1}},
      {{1, 1, 2, 1}, {3, 5, 2}}, {{1, 1, 2, 4}, {1, 1, 1}}, {{1, 4, 2, 3}, {1, 1, 1}}, {{1, 4, 2, 4}, {1, 1, 1}},
      {{2, 2, 4, 4}, {1, 1, 1}}, {{2, 4, 2, 4}, {1, 1, 1}}, {{4, 2, 4, 2}, {1, 1, 1}}};
  shapes.insert(shapes.end(), wider.begin(), wider.end());
  return shapes;
}

namespace {

// Halves of activations that a rank holds in the steady state if microbatches are `period` slots apart.
int steady_peak(const std::vector<BlockEntry>& entries, int period, const ActivationRule& rule) {
  int peak = 0;
  for (const BlockEntry& now : entries) {
    int held = 0;
    for (const BlockEntry& entry : entries) {
      // Repetitions so far, relative to those of `now`; the changes of one microbatch add up to zero.
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

void lengthen_period_to_fit(BuildingBlock& block, const ActivationRule& rule) {
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
