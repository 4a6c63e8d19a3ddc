#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tuple>

#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// Memory that a rank may hold, counted in halves of one chunk's activation: a forward allocates two. A full backward
/// frees two; W frees what I has not freed.
struct ActivationRule {
  std::optional<int> limit;      ///< absent: no limit
  bool half_freed_at_i = false;  ///< I frees one half, as 2401.10241 counts; otherwise W frees both

  bool allows(int held) const { return !limit || held <= *limit; }
  /// Halves that an action allocates minus those it frees.
  int change(ActionKind kind) const {
    constexpr int kWhole = 2;
    const int freed_at_i = half_freed_at_i ? 1 : 0;
    if (kind == ActionKind::kForward) return kWhole;
    if (kind == ActionKind::kInputGradient) return -freed_at_i;
    return kind == ActionKind::kWeightGradient ? freed_at_i - kWhole : -kWhole;
  }
};

/// End times of a program with one chain and without overlapped pairs, where transfers cost latency only.
struct OrderTimes {
  Ticks makespan = 0;
  Ticks span = 0;  ///< the longest time from a rank's first start to its last end
};

/// Criterion by which orders are compared: a shorter makespan, then a shorter span; or the other way round.
struct OrderGoal {
  bool span_first = false;
  /// An order that exceeds this makespan is worse than any that does not, whatever its span. Absent: no bound.
  std::optional<Ticks> most_makespan;

  bool prefers(const OrderTimes& a, const OrderTimes& b) const {
    const auto key = [this](const OrderTimes& times) {
      const Ticks excess = most_makespan ? std::max<Ticks>(0, times.makespan - *most_makespan) : 0;
      return std::tuple(excess, span_first ? times.span : times.makespan, span_first ? times.makespan : times.span);
    };
    return key(a) < key(b);
  }
};

/// Times at which the input of each F and each B or I arrives, for a program with one chain and without overlapped
/// pairs, where transfers cost latency only.
class Arrivals {
 public:
  static constexpr Ticks kNotYet = -1;

  /// Only the stages of `stages` are read; `times` must outlive this object.
  Arrivals(const Program& stages, int microbatches, const StepTimes& times);

  /// 0 for W, which needs no transferred input.
  Ticks at(const Action& action) const {
    return action.kind == ActionKind::kWeightGradient ? Ticks{0} : inputs_[action];
  }

  /// Records the result of an action that ended at `end`, and calls receive(rank, at) if the result goes to another
  /// rank.
  template <class Receive>
  void hand_on(const Action& action, Ticks end, const Receive& receive) {
    const Needs::Neighbour& to = needs_.result_of(action);
    Action next = action;
    if (!to) {
      // At the end of the chain the microbatch turns around: its first backward waits only for its own forward.
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

/// The program must pass find_fault. A search times thousands of orders, so this is faster than the engine, which also
/// handles streams, flushes and pairs.
OrderTimes time_order(const Program& program, int microbatches, const StepTimes& times);

/// Lower bound for all orders of one chain: a rank starts once its first input can arrive, works without a break, and
/// until its first gradient can return has only forwards, as many as its memory holds. Full backwards (`split` false)
/// must then pass the preceding stages. Not always attained.
///
/// Only the stages of `program` are read.
OrderTimes order_bound(const Program& program, int microbatches, const StepTimes& times, const ActivationRule& rule,
                       bool split);

/// A list schedule: a free rank runs an action that is ready, preferring backwards to forwards, earlier microbatches to
/// later ones and deeper stages to shallower ones. Transfers take no time.
struct GreedyRule {
  int microbatches = 1;    ///< per chain
  int together = 1;        ///< microbatches whose forwards run in a row, as if they were one; divides the number above
  int most_in_flight = 1;  ///< groups of a chain between their first forward and their last backward
  int forward = 1;         ///< time of one microbatch on one stage
  int backward = 2;
  /// Activations that a rank may hold at once; a forward leaves room for one of each later stage of the rank, so that
  /// every admitted microbatch can complete. At least the number of stages per rank. Absent: no limit.
  std::optional<int> most_held = std::nullopt;
};

/// Adds the actions to an empty program. Time and memory are linear in their number, up to a logarithmic factor.
void fill_greedily(Program& program, const GreedyRule& rule);

}  // namespace flopcast
