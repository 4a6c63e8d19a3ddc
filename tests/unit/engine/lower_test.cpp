#include "sim/lower/lower.hpp"
#include "tests/support/lower_replicas.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

Program program_of(const std::string& csv, const std::vector<Chain>& chains = {}) {
  return parse_csv(csv, "test.csv", chains);
}

// F 10, B 20, I 12, W 8 on every stage.
StepTimes times_of(const Program& program, Ticks latency) {
  StepTimes times;
  times.stages.assign(program.rank_of_stage.size(), StageTimes{10, 20, 12, 8, {}});
  times.boundaries.assign(program.rank_of_stage.size() - 1, BoundaryTimes{latency, 2 * latency});
  return times;
}

struct Expected {
  std::string what;
  Ticks start;
  Ticks end;
};

std::string describe(const Span& span) {
  if (is_action(span.kind)) return to_string(span.action);
  return span.kind == SpanKind::kSend ? "send " + to_string(span.action) : std::string(name_of(span.kind));
}

void expect_spans(const std::vector<Span>& spans, const std::vector<Expected>& expected) {
  ASSERT_EQ(spans.size(), expected.size());
  for (std::size_t index = 0; index < spans.size(); ++index) {
    EXPECT_EQ(describe(spans[index]), expected[index].what);
    EXPECT_EQ(spans[index].start, expected[index].start) << expected[index].what;
    EXPECT_EQ(spans[index].end, expected[index].end) << expected[index].what;
  }
}

TEST(Lower, LatencyIsALagAndLeavesTheSenderFree) {
  const Program program = program_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const Timeline timeline = simulate(program, times_of(program, 3));
  expect_spans(timeline.ranks[0], {{"0F0", 0, 10}, {"0F1", 10, 20}, {"0B0", 49, 69}, {"0B1", 79, 99}});
  expect_spans(timeline.ranks[1], {{"1F0", 13, 23}, {"1B0", 23, 43}, {"1F1", 43, 53}, {"1B1", 53, 73}});
  ASSERT_EQ(timeline.transfers.size(), 4U);
  EXPECT_EQ(timeline.transfers[2].start, 43);
  EXPECT_EQ(timeline.transfers[2].end, 49);
  EXPECT_EQ(timeline.transfers[2].from_rank, 1U);
  EXPECT_EQ(timeline.transfers[2].to_rank, 0U);
  EXPECT_EQ(timeline.transfers[2].to_stage, 0U);
}

TEST(Lower, ABlockingSendOccupiesTheSenderAndItsReceiverWaitsForItsEnd) {
  const Program program = program_of("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  StepTimes times = times_of(program, 3);
  times.blocking_sends = true;
  const Timeline timeline = simulate(program, times);
  expect_spans(
      timeline.ranks[0],
      {{"0F0", 0, 10}, {"send 0F0", 10, 13}, {"0F1", 13, 23}, {"send 0F1", 23, 26}, {"0B0", 49, 69}, {"0B1", 85, 105}});
  expect_spans(
      timeline.ranks[1],
      {{"1F0", 13, 23}, {"1B0", 23, 43}, {"send 1B0", 43, 49}, {"1F1", 49, 59}, {"1B1", 59, 79}, {"send 1B1", 79, 85}});
  ASSERT_EQ(timeline.transfers.size(), 4U);
  EXPECT_EQ(timeline.transfers[0].start, 10);
  EXPECT_EQ(timeline.transfers[0].end, 13);
}

TEST(Lower, NothingIsSentBetweenStagesOfOneRank) {
  const Program program = program_of("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n");  // V placement: 1 and 2 share a rank
  const Timeline timeline = simulate(program, times_of(program, 5));
  expect_spans(timeline.ranks[1], {{"1F0", 15, 25}, {"2F0", 25, 35}, {"2B0", 80, 100}, {"1B0", 100, 120}});
  EXPECT_EQ(timeline.transfers.size(), 4U);
}

TEST(Lower, InputGradientsReleaseThePreviousStageBeforeTheWeightGradient) {
  const Program program = program_of("0F0,0I0,0W0\n1F0,1I0,1W0\n");
  const Timeline timeline = simulate(program, times_of(program, 0));
  expect_spans(timeline.ranks[0], {{"0F0", 0, 10}, {"0I0", 32, 44}, {"0W0", 44, 52}});
  expect_spans(timeline.ranks[1], {{"1F0", 10, 20}, {"1I0", 20, 32}, {"1W0", 32, 40}});
}

TEST(Lower, AnOverlappedPairWaitsForBothHalvesAndEndsForBoth) {
  // Rank 1 runs (1F1;1B0): 1F1 is ready at 20, 1B0 at 20; rank 0 needs 1B0, which ends with the pair.
  const Program program = program_of("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n");
  StepTimes times = times_of(program, 0);
  const Timeline sum = simulate(program, times);
  expect_spans(sum.ranks[1], {{"1F0", 10, 20}, {"1F1", 20, 50}, {"1B0", 20, 50}, {"1B1", 50, 70}});
  times.stages[1].fused = 24;
  const Timeline fused = simulate(program, times);
  expect_spans(fused.ranks[1], {{"1F0", 10, 20}, {"1F1", 20, 44}, {"1B0", 20, 44}, {"1B1", 44, 64}});
  expect_spans(fused.ranks[0], {{"0F0", 0, 10}, {"0F1", 10, 20}, {"0B0", 44, 64}, {"0B1", 64, 84}});
}

TEST(Lower, ChainsOfABidirectionalScheduleDoNotWaitForEachOther) {
  const Program program = program_of("0F0,3F1,3B1,0B0\n1F0,2F1,1B0,2B1\n", {{0, 1}, {2, 3}});
  // Stage 1 ends one chain and stage 2 begins the other, on the same rank.
  const Timeline timeline = simulate(program, times_of(program, 0));
  EXPECT_EQ(timeline.ranks[1][0].start, 10);
  EXPECT_EQ(timeline.ranks[1][1].start, 20);
}

TEST(Lower, TheFlushRunsAfterTheLastActionInItsOrder) {
  const Program program = program_of("0F0,0B0\n1F0,1B0\n");
  StepTimes times = times_of(program, 0);
  times.flush = {FlushTimes{7, 4, 2, 5, 6}, FlushTimes{30, 4, 2, 5, 6}};
  const Timeline timeline = simulate(program, times);
  expect_spans(timeline.ranks[0], {{"0F0", 0, 10},
                                   {"0B0", 40, 60},
                                   {"gradient reduction", 60, 67},
                                   {"embedding reduction", 70, 74},
                                   {"gradient norm", 74, 76},
                                   {"optimizer", 76, 81},
                                   {"parameter gather", 81, 87}});
  expect_spans(timeline.ranks[1], {{"1F0", 10, 20},
                                   {"1B0", 20, 40},
                                   {"gradient reduction", 40, 70},
                                   {"embedding reduction", 70, 74},
                                   {"gradient norm", 74, 76},
                                   {"optimizer", 76, 81},
                                   {"parameter gather", 81, 87}});
  EXPECT_EQ(timeline.ranks[0].back().stream, StreamKind::kGradient);
  EXPECT_EQ(timeline.ranks[0][5].stream, StreamKind::kCompute);
}

TEST(Lower, AFlushWithoutCollectivesLeavesRanksApart) {
  const Program program = program_of("0F0,0B0\n1F0,1B0\n");
  StepTimes times = times_of(program, 0);
  times.flush = {FlushTimes{0, 0, 0, 5, 0}, FlushTimes{0, 0, 0, 5, 0}};
  const Timeline timeline = simulate(program, times);
  expect_spans(timeline.ranks[0], {{"0F0", 0, 10}, {"0B0", 40, 60}, {"optimizer", 60, 65}});
  expect_spans(timeline.ranks[1], {{"1F0", 10, 20}, {"1B0", 20, 40}, {"optimizer", 40, 45}});
}

TEST(Lower, TheEmbeddingIsNotReducedWhenFirstAndLastStageShareARank) {
  const Program program = program_of("0F0,1F0,1B0,0B0\n");
  StepTimes times = times_of(program, 0);
  times.flush = {FlushTimes{1, 100, 0, 0, 0}};
  EXPECT_EQ(simulate(program, times).makespan(), 61);
}

TEST(Lower, ACyclicOrderNamesTheActionsThatWait) {
  const Program program = program_of("0B0,0F0\n1F0,1B0\n");
  const StepTimes times = times_of(program, 0);
  try {
    simulate(program, times);
    FAIL() << "no deadlock";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.diagnostic().problem.find("rank 0 cannot start 0B0"), std::string::npos)
        << error.diagnostic().problem;
    EXPECT_NE(error.diagnostic().problem.find("rank 1 cannot start 1F0, which needs 0F0"), std::string::npos);
  }
}

Program two_stages(const std::vector<std::vector<const char*>>& ranks) {
  Program program;
  program.rank_of_stage = {0, 1};
  program.chains = {{0, 1}};
  for (const auto& cells : ranks) {
    program.ranks.emplace_back();
    for (const char* cell : cells) program.ranks.back().push_back(parse_action(cell).value());
  }
  return program;
}

TEST(Lower, MissingAndRepeatedActionsAreNamed) {
  const Program missing = two_stages({{"0F0", "0B0"}, {"1F0", "1F1", "1B0", "1B1"}});
  EXPECT_THROW(lower(missing, times_of(missing, 0)), ConfigError);
  const Program repeated = two_stages({{"0F0", "0F0", "0B0"}, {"1F0", "1B0"}});
  EXPECT_THROW(lower(repeated, times_of(repeated, 0)), ConfigError);
  const Program gap = two_stages({{"0F90000000"}, {"1F90000000"}});
  EXPECT_THROW(lower(gap, times_of(gap, 0)), ConfigError);
}

// Two stages, two data-parallel and two tensor-parallel ranks. Actions take 10 and 20, the collectives after them 1 and
// 2: 1F0 starts at 11 + 3, 1B0 ends at 47, 0B0 at 47 + 6 + 22 = 75.
TEST(LowerReplicas, EveryRankTakesPartInItsCollectives) {
  const Program program = program_of("0F0,0B0\n1F0,1B0\n");
  StepTimes times = times_of(program, 3);
  times.flush = {FlushTimes{7, 4, 2, 5, 6}, FlushTimes{40, 4, 2, 5, 6}};
  Replicas replicas;
  replicas.data_parallel = 2;
  replicas.tensor_parallel = 2;
  replicas.collectives.assign(2, StageTimes{1, 2, 0, 0, {}});
  const TaskGraph graph = lower_replicas(program, times, replicas);
  graph.check();
  ASSERT_EQ(graph.stream_count(), 8U);
  ASSERT_EQ(graph.task_count(), 8U * 9U);
  const EngineResult result = run(graph);
  ASSERT_FALSE(result.deadlocked());
  for (StreamId stream = 0; stream < 8; ++stream) {
    const TaskId first = graph.first_task(stream);
    const bool is_first_stage = stream < 4;
    const std::vector<Ticks> expected = is_first_stage ? std::vector<Ticks>{0, 10, 53, 73, 75, 87, 91, 93, 98}
                                                       : std::vector<Ticks>{14, 24, 25, 45, 47, 87, 91, 93, 98};
    for (TaskId task = 0; task < 9; ++task)
      EXPECT_EQ(result.start[first + task], expected[task]) << stream << " " << task;
  }
  EXPECT_EQ(result.makespan, 104);
  EXPECT_EQ(stream_of(replicas, 1, 0, 1), 5U);
}

TEST(LowerReplicas, WhatItCannotExpressIsRefused) {
  const Program program = program_of("0F0,0F1,0B0,0B1\n1F0,(1F1;1B0)OVERLAP_F_B,1B1\n");
  EXPECT_THROW(lower_replicas(program, times_of(program, 0), Replicas{}), ConfigError);
}

}  // namespace
}  // namespace flopcast
