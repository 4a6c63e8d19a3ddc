#pragma once

#include <array>
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
/// policies; a local search (squeeze.hpp) starts from the best orders. A block that needs more memory than the rule
/// allows is repeated less often. All of it is bounded by counts of actions: the same request always gives the same
/// order.
Program search_blocks(const BlockSearch& search, const ScheduleRequest& request);

/// What a request's variant says its memory limit counts: "full" or none microbatches of `chunks` activations, held
/// until W; "half" the same, of which I gives one half back; "chunks" like half, but single activations.
ActivationRule rule_of_variant(const ScheduleRequest& request, int chunks);

/// Refuses a limit below one microbatch, with which nothing could run.
std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request);

}  // namespace flopcast
