#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"
#include "sim/search/block_search.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

struct SqueezePolicy {
  /// Weight gradients keep their place in the plan (input gradients may pass them); otherwise they fill idle time and
  /// come before a forward that needs their memory.
  bool weights_in_order = false;
  /// How far an action that is moved forward may delay the one that is due, in quarters of its own duration.
  int patience = 0;
  /// A rank idles no longer than this in total, from its first action on, while it has a weight gradient to run
  /// instead.
  std::optional<Ticks> most_idle;
  /// Nothing but weight gradients is moved: what the plan has next is waited for.
  bool passes_in_order = false;
};

/// An order that is not better than `beat` is of no use.
struct SqueezeTarget {
  OrderGoal goal;
  OrderTimes beat;
};

struct Squeezed {
  std::optional<Program> program;
  std::size_t placed = 0;  ///< actions, until the end or until the order was given up
};

/// The order that a plan gives once it runs as early as it can: in simulated time each rank takes what the plan has
/// next; while that has not arrived, it takes the next action that has, provided that memory stays within the rule
/// until the plan is caught up with. `empty` has the stage map and no actions. No program when the plan itself needs
/// more memory than the rule allows, or as soon as it can no longer meet the target, if there is one.
Squeezed squeeze(const Program& empty, int microbatches, const Plan& plan, const StepTimes& times,
                 const ActivationRule& rule, const SqueezePolicy& policy,
                 const std::optional<SqueezeTarget>& target = std::nullopt);

/// The block, repeated `microbatches` times, every action of it moved to the first free slot in which its input is
/// there, in the order of the slots they had; a forward no further than memory stays within the limit (without one,
/// within what the block itself needs). What Qi 2024, arXiv 2405.15362, section 2 describes as squeezing a repeated
/// block.
///
/// `empty` has the stage map and no actions. Blind to real times, where squeeze() in simulated time is greedy: neither
/// is always the better one. Nothing when the block needs more memory than the limit.
std::optional<Plan> squeeze_slots(const Program& empty, int microbatches, const BuildingBlock& block,
                                  const ActivationRule& rule);

/// A bounded local search from several orders of the same actions, the best one first: the best order seen, so never a
/// worse one than the first. A tabu search that exchanges neighbours on the longest paths, as Nowicki and Smutnicki
/// 1996 (Management Science 42(6)) do for the job shop problem, first for the first half of the goal, then for the
/// second half at no loss of the first. Memory stays within the rule.
///
/// Ends when nothing can be better (no rank idles between its earliest start and its end), or after timing
/// `most_actions` actions: the same orders always give the same result. Expects at least one program; each of them
/// passes find_fault and keeps the rule.
Program shorten(const std::vector<Program>& programs, int microbatches, const StepTimes& times,
                const ActivationRule& rule, const OrderGoal& goal, std::size_t most_actions);

}  // namespace flopcast
