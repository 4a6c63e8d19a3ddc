#include "sim/program/program.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/text/error.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {

OrderPeriod OrderPeriod::of(int microbatches_before, int microbatches_after) const {
  const int more = (microbatches_after - microbatches_before) / microbatches;
  OrderPeriod other = *this;
  other.blocks += more;
  for (std::size_t rank = 0; rank < cut.size(); ++rank) {
    const auto moved = static_cast<std::ptrdiff_t>(length[rank]) * more;
    other.cut[rank] = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(cut[rank]) + moved);
  }
  return other;
}

namespace {

class PeriodSearch {
 public:
  PeriodSearch(const Program& fewer, const Program& more) : fewer_(fewer), more_(more), needs_(fewer) {}

  std::optional<OrderPeriod> find() {
    if (fewer_.rank_of_stage != more_.rank_of_stage || fewer_.chains.size() != more_.chains.size() ||
        !fewer_.replicas_of_stage.empty() || !find_shifts()) {
      return std::nullopt;
    }
    for (std::size_t rank = 0; rank < fewer_.ranks.size(); ++rank) {
      if (!find_cut(rank)) return std::nullopt;
    }
    place_actions();
    if (!make_consistent()) return std::nullopt;
    period_.blocks = fewest_blocks();
    period_.reach = farthest_wait();
    return period_;
  }

 private:
  // Finds how many microbatches, or slices, one block advances each chain.
  bool find_shifts() {
    shift_.assign(static_cast<std::size_t>(fewer_.stage_count()), 0);
    for (const Chain& chain : fewer_.chains) {
      const int shift = more_.microbatches_of(chain) - fewer_.microbatches_of(chain);
      if (shift < 1) return false;
      for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
        shift_[static_cast<std::size_t>(stage)] = static_cast<std::uint32_t>(shift);
      }
    }
    period_.microbatches = more_.microbatch_count() - fewer_.microbatch_count();
    return true;
  }

  bool is_shifted(const Action& before, const Action& after) const {
    return before.stage == after.stage && before.kind == after.kind && before.overlaps_next == after.overlaps_next &&
           before.microbatch + shift_[before.stage] == after.microbatch;
  }

  static bool are_same(const Action& a, const Action& b) {
    return a.stage == b.stage && a.kind == b.kind && a.microbatch == b.microbatch && a.overlaps_next == b.overlaps_next;
  }

  // Finds the last place at which a block can be inserted.
  bool find_cut(std::size_t rank) {
    const std::vector<Action>& a = fewer_.ranks[rank];
    const std::vector<Action>& b = more_.ranks[rank];
    if (b.size() <= a.size()) return false;
    const std::size_t length = b.size() - a.size();
    std::size_t same = 0;
    while (same < a.size() && are_same(a[same], b[same])) ++same;
    std::size_t alike = 0;  // actions that match at the end
    while (alike < a.size() && is_shifted(a[a.size() - 1 - alike], b[b.size() - 1 - alike])) ++alike;
    const std::size_t least = std::max(length, a.size() - alike);
    for (std::size_t cut = same; cut >= least && cut + length > same; --cut) {
      if (a[cut - 1].overlaps_next) continue;
      bool repeats = true;
      for (std::size_t index = 0; repeats && index < length; ++index) {
        repeats = is_shifted(a[cut - length + index], b[cut + index]);
      }
      if (!repeats) continue;
      period_.cut.push_back(cut);
      period_.length.push_back(length);
      return true;
    }
    return false;
  }

  // Records the position of F, and of B or I, for each stage and microbatch.
  void place_actions() {
    for (const Chain& chain : fewer_.chains) {
      microbatches_ = std::max(microbatches_, static_cast<std::size_t>(fewer_.microbatches_of(chain)));
    }
    places_.assign(2 * microbatches_ * static_cast<std::size_t>(fewer_.stage_count()), 0);
    for (const std::vector<Action>& actions : fewer_.ranks) {
      for (std::size_t index = 0; index < actions.size(); ++index) {
        if (actions[index].kind == ActionKind::kWeightGradient) continue;
        places_[place_of(actions[index].kind, actions[index].stage, actions[index].microbatch)] = index;
      }
    }
  }
  std::size_t place_of(ActionKind kind, std::size_t stage, std::size_t microbatch) const {
    return (2 * stage + (kind == ActionKind::kForward ? 0 : 1)) * microbatches_ + microbatch;
  }

  // Calls visit(rank, index of an action, rank and index of the action of another rank that it waits for).
  template <class Visit>
  void for_each_wait(const Visit& visit) const {
    for (std::size_t rank = 0; rank < fewer_.ranks.size(); ++rank) {
      const std::vector<Action>& actions = fewer_.ranks[rank];
      for (std::size_t index = 0; index < actions.size(); ++index) {
        const Action& action = actions[index];
        const Needs::Neighbour& from = needs_.input_of(action);
        if (!from || from.rank == rank) continue;
        visit(rank, index, from.rank, places_[place_of(action.kind, from.stage, action.microbatch)]);
      }
    }
  }

  // Moves the cut of a rank back by whole blocks where it is too far ahead of another rank's.
  bool make_consistent() {
    constexpr int kRounds = 64;
    for (int round = 0; round < kRounds; ++round) {
      std::vector<char> early(period_.cut.size(), 0);
      bool consistent = true;
      for_each_wait([&](std::size_t rank, std::size_t index, std::size_t other, std::size_t awaited) {
        if (index >= period_.cut[rank] || awaited < period_.cut[other]) return;
        early[rank] = 1;
        consistent = false;
      });
      if (consistent) return true;
      for (std::size_t rank = 0; rank < early.size(); ++rank) {
        if (early[rank] == 0) continue;
        if (period_.cut[rank] < 2 * period_.length[rank]) return false;
        period_.cut[rank] -= period_.length[rank];
      }
    }
    return false;
  }

  int fewest_blocks() const {
    std::size_t fewest = SIZE_MAX;
    for (std::size_t rank = 0; rank < fewer_.ranks.size(); ++rank) {
      const std::vector<Action>& actions = fewer_.ranks[rank];
      const std::size_t length = period_.length[rank];
      std::size_t run = 0;
      const std::size_t last = period_.cut[rank] - length;  // actions before it have a counterpart one block later
      while (run < last && is_shifted(actions[last - 1 - run], actions[last - 1 - run + length])) ++run;
      fewest = std::min(fewest, 1 + run / length);
    }
    return static_cast<int>(fewest);
  }

  int farthest_wait() const {
    std::size_t farthest = 1;
    for_each_wait([&](std::size_t rank, std::size_t index, std::size_t other, std::size_t awaited) {
      if (index < period_.cut[rank] || awaited >= period_.cut[other]) return;
      farthest = std::max(farthest, (period_.cut[other] - 1 - awaited) / period_.length[other] + 1);
    });
    return static_cast<int>(farthest);
  }

  const Program& fewer_;
  const Program& more_;
  Needs needs_;
  OrderPeriod period_;
  std::vector<std::uint32_t> shift_;  // indexed by stage
  std::size_t microbatches_ = 0;
  std::vector<std::size_t> places_;
};

}  // namespace

std::optional<OrderPeriod> find_order_period(const Program& fewer, const Program& more) {
  return PeriodSearch(fewer, more).find();
}

}  // namespace flopcast
