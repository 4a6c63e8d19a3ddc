#include "sim/search/block_search.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace flopcast {

namespace {

struct Placed {
  std::size_t slot = 0;
  Action action;
};

// Free slots of a rank, for actions that take `width` slots in a row.
class FreeSlots {
 public:
  FreeSlots(std::size_t slots, std::size_t width) : next_(slots + width), width_(width) {
    std::iota(next_.begin(), next_.end(), std::size_t{0});
  }

  // The first free slot from `slot` on.
  std::size_t first_from(std::size_t slot) {
    std::size_t first = slot;
    while (next_[first] != first) first = next_[first];
    while (next_[slot] != first) slot = std::exchange(next_[slot], first);
    return first;
  }

  void take(std::size_t slot) {
    for (std::size_t start = slot - std::min(slot, width_ - 1); start <= slot; ++start) {
      if (next_[start] == start) next_[start] = start + 1;
    }
  }

 private:
  std::vector<std::size_t> next_;  // the slot itself if it is free, otherwise one not beyond the next free one
  std::size_t width_;
};

// Activations that a rank holds in each slot, counting the actions moved so far.
class SlotMemory {
 public:
  // Changes the count from `slot` on, which may precede earlier additions.
  void add(std::size_t slot, int change) {
    if (held_.size() < slot) held_.resize(slot, held_at_end_);
    for (std::size_t index = slot; index < held_.size(); ++index) held_[index] += change;
    held_at_end_ += change;
  }

  // The first slot of [earliest, latest] from which on the count stays within `most` until `latest`.
  std::size_t first_within(std::size_t earliest, std::size_t latest, int most) const {
    if (latest <= earliest || (latest > held_.size() && held_at_end_ > most)) return latest;
    std::size_t slot = std::min(latest, std::max(earliest, held_.size()));
    while (slot > earliest && held_[slot - 1] <= most) --slot;
    return slot;
  }

 private:
  std::vector<int> held_;
  int held_at_end_ = 0;  // in every slot beyond held_
};

class SlotSqueezer {
 public:
  SlotSqueezer(const Program& empty, int microbatches, const BuildingBlock& block, const ActivationRule& rule)
      : needs_(empty),
        microbatches_(static_cast<std::size_t>(microbatches)),
        rule_(rule),
        ends_(empty.rank_of_stage.size() * microbatches_ * kKinds, 0),
        last_end_(empty.rank_of_stage.size() * kKinds, 0) {
    lay_out(block);
  }

  std::optional<Plan> run() {
    const int peak = peak_in_place();
    limit_ = rule_.limit.value_or(peak);
    if (peak > limit_) return std::nullopt;
    prepare();
    for (const auto& [placed, rank] : in_order_of_slots()) move_forward(placed, ranks_[rank]);
    Plan plan(ranks_.size());
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      std::vector<Placed>& moved = ranks_[rank].moved;
      std::sort(moved.begin(), moved.end(), [](const Placed& a, const Placed& b) { return a.slot < b.slot; });
      for (const Placed& placed : moved) plan[rank].push_back(placed.action);
    }
    return plan;
  }

 private:
  static constexpr std::size_t kKinds = 3;
  static constexpr std::size_t kWidest = 2;

  struct Rank {
    std::vector<Placed> placed;
    std::vector<Placed> moved;
    std::vector<FreeSlots> free;  // indexed by width minus one
    SlotMemory memory;
  };

  static std::size_t place_of(ActionKind kind) {
    return kind == ActionKind::kForward ? 0 : kind == ActionKind::kWeightGradient ? 2 : 1;
  }
  static std::size_t width_of(ActionKind kind) { return kind == ActionKind::kBackward ? kWidest : 1; }
  // First slot in which the action changes the number of activations held.
  static std::size_t effective(const Placed& placed) {
    return placed.action.kind == ActionKind::kForward ? placed.slot : placed.slot + width_of(placed.action.kind);
  }
  std::size_t& end_of(std::size_t stage, std::uint32_t microbatch, ActionKind kind) {
    return ends_[(stage * microbatches_ + microbatch) * kKinds + place_of(kind)];
  }
  std::size_t& last_end_of(const Action& action) { return last_end_[action.stage * kKinds + place_of(action.kind)]; }

  void lay_out(const BuildingBlock& block) {
    ranks_.resize(block.ranks.size());
    for (std::size_t rank = 0; rank < block.ranks.size(); ++rank) {
      ranks_[rank].placed.reserve(block.ranks[rank].size() * microbatches_);
      for (const BlockEntry& entry : block.ranks[rank]) {
        for (std::size_t microbatch = 0; microbatch < microbatches_; ++microbatch) {
          Placed placed{static_cast<std::size_t>(entry.offset) + microbatch * static_cast<std::size_t>(block.period),
                        entry.action};
          placed.action.microbatch = static_cast<std::uint32_t>(microbatch);
          slots_ = std::max(slots_, placed.slot + kWidest);
          ranks_[rank].placed.push_back(placed);
        }
      }
    }
  }

  // Maximum that a rank holds while no action is moved: an activation exists from the slot of its forward to the end of
  // the action that frees it.
  int peak_in_place() const {
    int peak = 0;
    std::vector<int> held;
    for (const Rank& rank : ranks_) {
      held.assign(slots_ + 1, 0);
      for (const Placed& placed : rank.placed) held[effective(placed)] += rule_.change(placed.action.kind);
      std::partial_sum(held.begin(), held.end(), held.begin());
      peak = std::max(peak, *std::max_element(held.begin(), held.end()));
    }
    return peak;
  }

  void prepare() {
    for (Rank& rank : ranks_) {
      rank.moved.reserve(rank.placed.size());
      for (std::size_t width = 1; width <= kWidest; ++width) rank.free.emplace_back(slots_, width);
    }
  }

  std::vector<std::pair<Placed, std::size_t>> in_order_of_slots() const {
    std::vector<std::vector<std::pair<Placed, std::size_t>>> by_slot(slots_);
    std::vector<std::pair<Placed, std::size_t>> all;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (const Placed& placed : ranks_[rank].placed) by_slot[placed.slot].emplace_back(placed, rank);
    }
    for (const auto& slot : by_slot) all.insert(all.end(), slot.begin(), slot.end());
    return all;
  }

  std::size_t ready_at(const Action& action) {
    if (const Needs::Neighbour& from = needs_.input_of(action)) {
      return end_of(from.stage, action.microbatch, action.kind);
    }
    const std::optional<ActionKind> needed = needed_on_stage(action.kind);
    return needed ? end_of(action.stage, action.microbatch, *needed) : 0;
  }

  // Actions that were not moved yet occupy this slot or later ones, so only moved actions are in the way.
  void move_forward(Placed placed, Rank& rank) {
    const Action& action = placed.action;
    const std::size_t width = width_of(action.kind);
    const int change = rule_.change(action.kind);
    std::size_t to = std::min(placed.slot, std::max(ready_at(action), last_end_of(action)));
    if (action.kind == ActionKind::kForward) to = rank.memory.first_within(to, placed.slot, limit_ - change);
    placed.slot = std::min(placed.slot, rank.free[width - 1].first_from(to));
    for (std::size_t slot = placed.slot; slot < placed.slot + width; ++slot) {
      for (FreeSlots& free : rank.free) free.take(slot);
    }
    rank.memory.add(effective(placed), change);
    end_of(action.stage, action.microbatch, action.kind) = placed.slot + width;
    last_end_of(action) = placed.slot + width;
    rank.moved.push_back(placed);
  }

  Needs needs_;
  std::size_t microbatches_;
  ActivationRule rule_;
  std::size_t slots_ = 0;
  int limit_ = 0;
  std::vector<Rank> ranks_;
  std::vector<std::size_t> ends_;
  std::vector<std::size_t> last_end_;
};

}  // namespace

std::optional<Plan> squeeze_slots(const Program& empty, int microbatches, const BuildingBlock& block,
                                  const ActivationRule& rule) {
  return SlotSqueezer(empty, microbatches, block, rule).run();
}

}  // namespace flopcast
