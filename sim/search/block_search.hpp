#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

/// The repeating pattern of a schedule, as in Qi 2024, arXiv 2405.15362, section 2: when each rank works on one
/// microbatch, in slots of equal length. Microbatch k follows the same pattern k periods later.
///
/// A microbatch passes the ranks in legs: one leg of forwards per chunk, then one leg of backwards per chunk in reverse
/// order. Within leg i the next rank follows at least steps[i] slots later, and the next leg at least gaps[i] slots
/// later. An action takes the first slot from there on that is free on its rank in every period; a full backward takes
/// two in a row. Weight gradients then take the first free slots after their input gradients.
struct BlockShape {
  std::array<int, 4> steps = {1, 1, 1, 1};
  std::array<int, 3> gaps = {1, 1, 1};
};

struct BlockEntry {
  Action action;  ///< for microbatch 0
  ChunkIndex chunk;
  int offset = 0;  ///< in slots
};

struct BuildingBlock {
  int period = 0;                         ///< slots from one microbatch to the next
  ByRank<std::vector<BlockEntry>> ranks;  ///< in order of offset, indexed by rank
};

/// One chunk per rank, or two on the V-shaped placement. `split`: input and weight gradients are separate actions.
BuildingBlock building_block(int ranks, int chunks, bool split, const BlockShape& shape);

/// The intended order of actions, indexed by rank.
using Plan = std::vector<std::vector<Action>>;

/// The block repeated for each of `microbatches` microbatches.
Plan repeat(const BuildingBlock& block, int microbatches);

/// Every combination of steps and gaps up to the given ones, for one chunk or two.
std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap);

/// The shapes tried on the V-shaped placement.
std::vector<BlockShape> v_shapes(int ranks);

/// Lengthens the block's period until, with a full pipeline, it fits into the memory that the rule allows.
void lengthen_period_to_fit(BuildingBlock& block, const ActivationRule& rule);

/// The inputs of a search for an order.
struct BlockSearch {
  Program empty;                   ///< the placement of stages, without actions
  int chunks = 1;                  ///< 1, or 2 on the V-shaped placement
  bool split = true;               ///< input and weight gradients are separate actions
  std::vector<BlockShape> shapes;  ///< candidates
  ActivationRule rule;
  OrderGoal goal;
  std::vector<Program> rivals;  ///< complete orders that satisfy the rule, also candidates
};

/// The best order found for the goal under the request's times (F = I = W and zero latency if it has none). Squeezes
/// every shape on a shorter pipeline run first, then the best ones in full, in slots and in simulated time under
/// several policies; a local search (shorten) then starts from the best orders. A block that needs more memory than the
/// rule allows is repeated less often. All work is bounded by counts of actions, so that the same request always gives
/// the same order.
Program search_blocks(const BlockSearch& search, const ScheduleRequest& request);

/// Unit of a request's memory limit, by variant: "full" or none counts microbatches of `chunks` activations, held until
/// W; "half" counts the same, but I frees one half; "chunks" is like half, but counts single activations.
ActivationRule rule_of_variant(const ScheduleRequest& request, int chunks);

/// Refuses a limit below one microbatch, under which nothing could run.
std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request);

struct SqueezePolicy {
  /// Weight gradients keep their place in the plan (input gradients may overtake them); otherwise they fill idle time
  /// and run before a forward that needs their memory.
  bool weights_in_order = false;
  /// Time by which an action that is moved forward may delay the one that is due, in quarters of its own duration.
  int patience = 0;
  /// Total time, from a rank's first action on, that the rank may idle while it has a weight gradient to run instead.
  std::optional<Ticks> most_idle;
  /// Moves only weight gradients; otherwise waits for the next action of the plan.
  bool passes_in_order = false;
};

/// An order that does not improve on `beat` is useless.
struct SqueezeTarget {
  OrderGoal goal;
  OrderTimes beat;
};

struct Squeezed {
  std::optional<Program> program;
  std::size_t placed = 0;  ///< number of actions placed before the order was complete or given up
};

/// Runs a plan as early as possible and returns the resulting order. In simulated time each rank takes the next action
/// of the plan; if its input has not arrived, the rank takes the next action whose input has, provided that memory
/// stays within the rule until the plan has caught up. `empty` has the placement of stages and no actions. Returns no
/// program if the plan itself needs more memory than the rule allows, or as soon as the target, if given, can no longer
/// be met.
Squeezed squeeze(const Program& empty, int microbatches, const Plan& plan, const StepTimes& times,
                 const ActivationRule& rule, const SqueezePolicy& policy,
                 const std::optional<SqueezeTarget>& target = std::nullopt);

/// Repeats the block `microbatches` times and moves every action, in the order of their slots, to the first free slot
/// in which its input is available; a forward only as far as memory stays within the limit (without a limit, within the
/// needs of the block itself). Qi 2024, arXiv 2405.15362, section 2 describes this as squeezing a repeated block.
///
/// `empty` has the placement of stages and no actions. This ignores real times, while squeeze() in simulated time is
/// greedy; neither is always better. Returns nullopt if the block needs more memory than the limit.
std::optional<Plan> squeeze_slots(const Program& empty, int microbatches, const BuildingBlock& block,
                                  const ActivationRule& rule);

/// A bounded local search that starts from several orders of the same actions, the best one first, and returns the best
/// order seen, which is never worse than the first. It is a tabu search that exchanges adjacent actions on the longest
/// paths, as Nowicki and Smutnicki 1996 (Management Science 42(6)) do for the job shop problem, first for the first
/// criterion of the goal, then for the second without loss of the first. Memory stays within the rule.
///
/// Ends when no order can be better (no rank idles between its earliest start and its end), or after timing
/// `most_actions` actions, so that the same orders always give the same result. Needs at least one program; each of
/// them must pass find_fault and satisfy the rule.
Program shorten(const std::vector<Program>& programs, int microbatches, const StepTimes& times,
                const ActivationRule& rule, const OrderGoal& goal, std::size_t most_actions);

}  // namespace flopcast
