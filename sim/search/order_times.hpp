#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>

#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// What a rank may hold, counted in halves of one chunk's activation: a forward takes two. A full backward gives two
/// back, W what I has not.
struct ActivationRule {
  std::optional<int> limit;      ///< absent: no limit
  bool half_freed_at_i = false;  ///< I gives one half back, as 2401.10241 counts; otherwise W gives both

  bool allows(int held) const { return !limit || held <= *limit; }
  /// Halves that an action takes, less those it gives back.
  int change(ActionKind kind) const {
    constexpr int kWhole = 2;
    const int freed_at_i = half_freed_at_i ? 1 : 0;
    if (kind == ActionKind::kForward) return kWhole;
    if (kind == ActionKind::kInputGradient) return -freed_at_i;
    return kind == ActionKind::kWeightGradient ? freed_at_i - kWhole : -kWhole;
  }
};

/// When a program of one chain and without overlapped pairs ends, transfers being latency only.
struct OrderTimes {
  Ticks makespan = 0;
  Ticks span = 0;  ///< the longest time from a rank's first start to its last end
};

/// What makes one order better than another: a shorter makespan, among equals a shorter span; or the other way round.
struct OrderGoal {
  bool span_first = false;
  /// An order that takes longer is worse than any that does not, whatever its span. Absent: no such bound.
  std::optional<Ticks> most_makespan;

  bool prefers(const OrderTimes& a, const OrderTimes& b) const {
    const auto key = [this](const OrderTimes& times) {
      const Ticks excess = most_makespan ? std::max<Ticks>(0, times.makespan - *most_makespan) : 0;
      return std::tuple(excess, span_first ? times.span : times.makespan, span_first ? times.makespan : times.span);
    };
    return key(a) < key(b);
  }
};

/// When what each F and each B or I takes in arrives, while a program of one chain without overlapped pairs runs and
/// transfers are latency only.
class Arrivals {
 public:
  static constexpr Ticks kNotYet = -1;

  /// `stages` is asked for its stages only; `times` has to outlive this.
  Arrivals(const Program& stages, int microbatches, const StepTimes& times);

  /// 0 for W, which takes in nothing.
  Ticks at(const Action& action) const {
    return action.kind == ActionKind::kWeightGradient ? Ticks{0} : inputs_[action];
  }

  /// Enters what an action that ended at `end` hands on, and calls receive(rank, at) when that is for another rank.
  template <class Receive>
  void hand_on(const Action& action, Ticks end, const Receive& receive) {
    const Needs::Neighbour& to = needs_.result_of(action);
    Action next = action;
    if (!to) {
      // Where the chain ends the microbatch turns round: its first backward waits for its own forward only.
      next.kind = ActionKind::kBackward;
      if (action.kind == ActionKind::kForward) inputs_[next] = end;
      return;
    }
    next.stage = to.stage;
    const Ticks at = end + needs_.result_latency(times_, action.kind, action.stage);
    inputs_[next] = at;
    if (to.crosses) receive(std::size_t{to.rank}, at);
  }

 private:
  Needs needs_;
  const StepTimes& times_;
  Inputs<Ticks> inputs_;
};

/// Expects a program that find_fault accepts. A search times thousands of orders: this is faster than the engine, which
/// knows streams, flushes and pairs.
OrderTimes time_order(const Program& program, int microbatches, const StepTimes& times);

/// What no order of one chain can fall below: a rank starts once its first input can be there, works without a break,
/// and has nothing but forwards, as many as its memory holds, until its first gradient can be back. Full backwards
/// (`split` false) still have to pass the stages before. Not always reached.
///
/// `program` is asked for its stages only.
OrderTimes order_bound(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule,
                       bool split);

/// A list schedule: whenever a rank is free it runs what is ready, backwards before forwards, earlier microbatches
/// before later ones, deeper stages before shallower ones. A transfer takes nothing.
struct GreedyRule {
  int microbatches = 1;    ///< of each chain
  int together = 1;        ///< so many microbatches run their forwards in a row, as if they were one; divides the above
  int most_in_flight = 1;  ///< groups of a chain between their first forward and their last backward
  int forward = 1;         ///< times of one microbatch on one stage
  int backward = 2;
  /// Activations that a rank holds at once; a forward leaves room for one of each of the rank's later stages, so that
  /// what was let in always gets through. At least the stages a rank has. Absent: no limit.
  std::optional<int> most_held = std::nullopt;
};

/// Gives an empty program its actions. Time and memory are linear in their number, but for a logarithm.
void fill_greedily(Program& program, const GreedyRule& rule);

}  // namespace flopcast
