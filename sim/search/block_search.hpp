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

/// The repeating pattern of a schedule as Qi 2024, arXiv 2405.15362, section 2 describes it: when each rank works on
/// one microbatch, in slots of equal length. Microbatch k does the same k periods later.
///
/// One microbatch passes the ranks in legs: for each chunk its forwards, then for each chunk in reverse its backwards.
/// Within leg i the next rank follows at least steps[i] slots later, the next leg at least gaps[i] slots later; an
/// action takes the first slot from there on that its rank has free in every period, a full backward two in a row.
/// Weight gradients then take the first free slots after their input gradients.
struct BlockShape {
  std::array<int, 4> steps = {1, 1, 1, 1};
  std::array<int, 3> gaps = {1, 1, 1};
};

struct BlockEntry {
  Action action;  ///< of microbatch 0
  ChunkIndex chunk;
  int offset = 0;  ///< slots
};

struct BuildingBlock {
  int period = 0;                         ///< slots between a microbatch and the next
  ByRank<std::vector<BlockEntry>> ranks;  ///< by rank, in order of offset
};

/// One chunk per rank, or two on the V map. `split`: input and weight gradients apart.
BuildingBlock building_block(int ranks, int chunks, bool split, const BlockShape& shape);

/// By rank, the actions it intends to run, in order.
using Plan = std::vector<std::vector<Action>>;

/// The block, repeated `microbatches` times.
Plan repeat(const BuildingBlock& block, int microbatches);

/// Every combination of these steps and gaps, for one chunk or for two.
std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap);

/// What is tried on the V map.
std::vector<BlockShape> v_shapes(int ranks);

/// Repeats the block less often, until it fits into the memory of the rule once the pipeline is full.
void stretch_to_fit(BuildingBlock& block, const ActivationRule& rule);

/// What a search for an order starts from.
struct BlockSearch {
  Program empty;                   ///< the stage map, without actions
  int chunks = 1;                  ///< 1, or 2 on the V map
  bool split = true;               ///< input and weight gradients apart
  std::vector<BlockShape> shapes;  ///< candidates
  ActivationRule rule;
  OrderGoal goal;
  std::vector<Program> rivals;  ///< complete orders that keep the rule, candidates too
};

/// The best order found for the goal under the request's times (F = I = W and no latency without any). Every shape is
/// squeezed on a shorter pipeline run first, the best ones in full, in slots and in simulated time under several
/// policies; a local search (shorten) starts from the best orders. A block that needs more memory than the rule
/// allows is repeated less often. All of it is bounded by counts of actions: the same request always gives the same
/// order.
Program search_blocks(const BlockSearch& search, const ScheduleRequest& request);

/// What a request's variant says its memory limit counts: "full" or none microbatches of `chunks` activations, held
/// until W; "half" the same, of which I gives one half back; "chunks" like half, but single activations.
ActivationRule rule_of_variant(const ScheduleRequest& request, int chunks);

/// Refuses a limit below one microbatch, with which nothing could run.
std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request);

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
