#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sim/schedule/building_block.hpp"
#include "sim/schedule/catalogue.hpp"
#include "sim/schedule/squeeze.hpp"

namespace flopcast {

/// What a search for an order starts from.
struct BlockSearch {
  Program empty;                   ///< the stage map, without actions
  int chunks = 1;                  ///< 1, or 2 on the V map
  bool split = true;               ///< input and weight gradients apart
  std::vector<BlockShape> shapes;  ///< candidates
  ActivationRule rule;
  std::vector<Program> rivals;  ///< complete orders that keep the rule, candidates too
};

/// The candidate with the shortest makespan under the request's times (F = I = W and no latency without any), among
/// equals the one with the shortest span, among equals the first. Every shape is squeezed on a shorter pipeline run
/// first, the best ones in full under several policies, as many as a fixed count of actions allows: the same request
/// always gives the same order. A block that needs more memory than the rule allows is repeated less often.
Program search_blocks(const BlockSearch& search, const ScheduleRequest& request);

/// Every combination of these steps and gaps, for one chunk or for two.
std::vector<BlockShape> all_shapes(int chunks, int largest_step, int largest_gap);

/// What is tried on the V map.
std::vector<BlockShape> v_shapes(int ranks);

/// An absent limit is none; a limit counts microbatches, each of them `chunks` activations.
std::optional<int> limit_in_halves(const ScheduleRequest& request, int chunks);

/// Refuses a limit below one microbatch, with which nothing could run.
std::optional<ScheduleRefusal> refuse_memory_limit(std::string_view name, const ScheduleRequest& request);

}  // namespace flopcast
