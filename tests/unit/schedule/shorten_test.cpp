#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/families.hpp"
#include "sim/search/block_search.hpp"
#include "sim/search/order_times.hpp"

namespace flopcast {
namespace {

constexpr std::size_t kEnough = 10'000;

Action forward(int rank, int microbatch) {
  return forward_action(StageIndex(rank), MicrobatchIndex(microbatch));
}
Action input_gradient(int rank, int microbatch) {
  return input_gradient_action(StageIndex(rank), MicrobatchIndex(microbatch));
}
Action weight_gradient(int rank, int microbatch) {
  return weight_gradient_action(StageIndex(rank), MicrobatchIndex(microbatch));
}

StepTimes unit_times(std::size_t stages) {
  StepTimes times;
  times.stages.assign(stages, StageTimes{1, 2, 1, 1, std::nullopt});
  times.boundaries.resize(stages - 1);
  return times;
}

// Rank 1 makes rank 0 wait: I0 could run in the third slot, and I1 before W0.
Program wasteful_order() {
  Program program = empty_loop("zb-auto", {.pipeline_ranks = 2, .microbatches = 2});
  program.ranks[0] = {forward(0, 0),         forward(0, 1),        input_gradient(0, 0),
                      weight_gradient(0, 0), input_gradient(0, 1), weight_gradient(0, 1)};
  program.ranks[1] = {forward(1, 0),         forward(1, 1),        input_gradient(1, 0),
                      weight_gradient(1, 0), input_gradient(1, 1), weight_gradient(1, 1)};
  return program;
}

TEST(Shorten, FindsTheShortestOrderOfTwoMicrobatchesOnTwoRanks) {
  const StepTimes times = unit_times(2);
  const Program before = wasteful_order();
  EXPECT_EQ(time_order(before, 2, times).makespan, 8);
  // F0 F1 on rank 0, then one slot until I0 arrives: 7 in all, which F0 I0 F1 I1 W0 W1 on rank 1 achieves.
  const OrderTimes bound = order_bound(before, 2, times, {}, true);
  EXPECT_EQ(bound.makespan, 7);
  EXPECT_EQ(bound.span, 7);
  const Program after = shorten({before}, 2, times, {}, {}, kEnough);
  EXPECT_FALSE(find_fault(after).has_value());
  EXPECT_EQ(time_order(after, 2, times).makespan, 7);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(std::is_permutation(after.ranks[rank].begin(), after.ranks[rank].end(), before.ranks[rank].begin(),
                                    before.ranks[rank].end()));
  }
}

TEST(Shorten, LeavesAnOrderThatMemoryAllowsNoOther) {
  Program program = empty_loop("zb-auto", {.pipeline_ranks = 2, .microbatches = 2});
  for (int rank = 0; rank < 2; ++rank) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      for (const Action& action :
           {forward(rank, microbatch), input_gradient(rank, microbatch), weight_gradient(rank, microbatch)}) {
        program.ranks[static_cast<std::size_t>(rank)].push_back(action);
      }
    }
  }
  const ActivationRule one_microbatch{2, false};
  EXPECT_EQ(write_csv(shorten({program}, 2, unit_times(2), one_microbatch, {}, kEnough)), write_csv(program));
}

TEST(OrderBound, CountsWhatMemoryMakesARankWaitFor) {
  // Rank 0 of four: F0, at most four, and the first gradient back after 4 F and 3 I: (p - 1) slots lost, as in zb-h1.
  const Program stages = empty_loop("zb-auto", {.pipeline_ranks = 4, .microbatches = 8});
  EXPECT_EQ(order_bound(stages, 8, unit_times(4), {8, false}, true).span, 3 * 8 + 3);
  EXPECT_EQ(order_bound(stages, 8, unit_times(4), {}, true).span, 3 * 8);
  EXPECT_EQ(order_bound(stages, 8, unit_times(4), {}, true).makespan, 3 * 8 + 3);
  // Full backwards of the last rank must still return: 1f1b's (m + p - 1)(F + B).
  EXPECT_EQ(order_bound(stages, 8, unit_times(4), {}, false).makespan, (8 + 3) * 3);
}

// One rank, slots F . I . W . ., a microbatch every six slots.
TEST(SqueezeSlots, MovesEveryActionToTheFirstFreeSlot) {
  BuildingBlock block;
  block.period = 6;
  block.ranks = {{{forward(0, 0), ChunkIndex(), 0},
                  {input_gradient(0, 0), ChunkIndex(), 2},
                  {weight_gradient(0, 0), ChunkIndex(), 7}}};
  const Program empty = empty_loop("zb-auto", {.pipeline_ranks = 1, .microbatches = 2});
  // F1 comes before W0, so two activations are needed.
  const auto plan = squeeze_slots(empty, 2, block, {4, false});
  ASSERT_TRUE(plan.has_value());
  Program program = empty;
  program.ranks = *plan;
  EXPECT_EQ(write_csv(program), "0F0,0I0,0F1,0W0,0I1,0W1\n");
  EXPECT_FALSE(squeeze_slots(empty, 2, block, {2, false}).has_value());
}

}  // namespace
}  // namespace flopcast
