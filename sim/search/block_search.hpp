#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/program/request.hpp"
#include "sim/search/building_block.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {

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
/// policies; a local search (shorten.hpp) starts from the best orders. A block that needs more memory than the rule
/// allows is repeated less often. All of it is bounded by counts of actions: the same request always gives the same
/// order.
Program search_blocks(const BlockSearch& search, const ScheduleRequest& request);

/// What a request's variant says its memory limit counts: "full" or none microbatches of `chunks` activations, held
/// until W; "half" the same, of which I gives one half back; "chunks" like half, but single activations.
ActivationRule rule_of_variant(const ScheduleRequest& request, int chunks);

/// Refuses a limit below one microbatch, with which nothing could run.
std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request);

}  // namespace flopcast
