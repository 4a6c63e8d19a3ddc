#include "sim/engine/engine.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace flopcast {
namespace {

std::vector<Ticks> starts_of(const TaskGraph& graph, const EngineResult& result) {
  std::vector<Ticks> starts;
  for (TaskId task = 0; task < graph.task_count(); ++task) starts.push_back(result.start[task]);
  return starts;
}

std::vector<Ticks> run_starts(TaskGraph& graph) {
  graph.finish();
  graph.check();
  const EngineResult result = run(graph);
  EXPECT_FALSE(result.deadlocked());
  return starts_of(graph, result);
}

TEST(Engine, AnEmptyGraphTakesNoTime) {
  TaskGraph graph;
  graph.finish();
  EXPECT_EQ(run(graph).makespan, 0);
}

TEST(Engine, AStreamRunsItsTasksInOrder) {
  TaskGraph graph;
  graph.begin_stream();
  const CostId three = graph.add_cost(3, 0);
  graph.add_task(three);
  graph.add_task(three);
  graph.add_task(0, {});
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{0, 3, 6}));
}

TEST(Engine, ADependencyDelaysByItsLag) {
  TaskGraph graph;
  const StreamId waiting = graph.begin_stream();
  graph.add_task(graph.add_cost(5, 2), 1, 1);  // task 1 ends at 4, plus 2
  const StreamId first = graph.begin_stream();
  graph.add_task(graph.add_cost(4, 0));
  EXPECT_EQ(waiting, 0U);
  EXPECT_EQ(first, 1U);
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{6, 0}));
}

TEST(Engine, ALagWithoutAnythingToWaitForDoesNotDelay) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(5, 0));
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{0}));
}

TEST(Engine, ALagOfMinusTheDurationIsStartToStart) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(3, 0));
  graph.add_task(graph.add_cost(10, 0));  // 3 to 13
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, -10), 1, 0);
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{0, 3, 3}));
}

TEST(Engine, ALagMayPointAtAnEarlierTaskOfTheSameStream) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(2, 0));
  graph.add_task(graph.add_cost(2, 7), 0, 0);
  graph.add_task(1, {Dependency{0, 0, 20}});
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{0, 9, 22}));
}

TEST(Engine, ATaskWaitsForTheLatestOfItsDependencies) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(1, {Dependency{1, 1, 10}, Dependency{2, 2, 0}, Dependency{3, 3, 1}});
  for (const Ticks duration : {4, 12, 14}) {
    graph.begin_stream();
    graph.add_task(graph.add_cost(duration, 0));
  }
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{15, 0, 0, 0}));  // 4 + 10, 12 + 0, 14 + 1
}

TEST(Engine, ACollectiveStartsWithItsLastPartAndHoldsEveryStream) {
  TaskGraph graph;
  const CollectiveId all = graph.add_collective(5);
  graph.begin_stream();
  graph.add_task(graph.add_cost(3, 0));
  graph.add_part(all, {});
  graph.add_task(graph.add_cost(1, 0));
  graph.begin_stream();
  graph.add_part(all, {});
  graph.begin_stream();
  graph.add_part(all, {Dependency{0, 0, 4}});  // ready at 7, when the last of the three is
  graph.add_task(graph.add_cost(2, 0));
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{0, 7, 12, 7, 7, 12}));
}

TEST(Engine, OthersMayWaitForAPartThatAnotherStreamCompleted) {
  TaskGraph graph;
  const CollectiveId pair = graph.add_collective(5);
  graph.begin_stream();
  graph.add_part(pair, {});
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 2), 0, 0);
  graph.begin_stream();
  graph.add_task(graph.add_cost(3, 0));
  graph.add_part(pair, {});
  EXPECT_EQ(run_starts(graph), (std::vector<Ticks>{3, 10, 0, 3}));
}

TEST(Engine, ACycleIsReportedWithTheTasksThatWait) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 0));
  graph.add_task(graph.add_cost(1, 0), 3, 1);
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 0), 1, 0);
  graph.add_task(graph.add_cost(1, 0));
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 0));
  graph.finish();
  const EngineResult result = run(graph);
  ASSERT_EQ(result.blocked.size(), 2U);
  EXPECT_EQ(result.blocked[0].stream, 0U);
  EXPECT_EQ(result.blocked[0].head, 1U);
  EXPECT_EQ(result.blocked[0].awaited, 3U);
  EXPECT_EQ(result.blocked[1].head, 2U);
  EXPECT_EQ(result.blocked[1].awaited, 1U);
}

TEST(Engine, CollectivesInOppositeOrderDeadlock) {
  TaskGraph graph;
  const CollectiveId first = graph.add_collective(1);
  const CollectiveId second = graph.add_collective(1);
  graph.begin_stream();
  graph.add_part(first, {});
  graph.add_part(second, {});
  graph.begin_stream();
  graph.add_part(second, {});
  graph.add_part(first, {});
  graph.finish();
  const EngineResult result = run(graph);
  ASSERT_EQ(result.blocked.size(), 2U);
  EXPECT_EQ(result.blocked[0].head, result.blocked[0].awaited);
}

TEST(Engine, ATaskThatWaitsForItselfIsADeadlock) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 0), 0, 0);
  graph.finish();
  EXPECT_EQ(run(graph).blocked.size(), 1U);
}

TEST(Engine, TimesBeyondSixtyThreeBitsAreRefused) {
  constexpr Ticks kHuge = std::numeric_limits<Ticks>::max() / 2;
  TaskGraph fits;
  fits.begin_stream();
  fits.add_task(fits.add_cost(kHuge, 0));
  fits.add_task(fits.add_cost(kHuge, 0));
  fits.finish();
  EXPECT_EQ(run(fits).makespan, 2 * kHuge);
  TaskGraph overflows;
  overflows.begin_stream();
  for (int task = 0; task < 3; ++task) overflows.add_task(overflows.add_cost(kHuge, 0));
  overflows.finish();
  EXPECT_THROW(static_cast<void>(run(overflows)), TimeOverflow);
}

TEST(Engine, AResultCanBeReusedForAnotherGraph) {
  EngineResult result;
  for (const int tasks : {5, 2, 9}) {
    TaskGraph graph;
    graph.begin_stream();
    const CostId cost = graph.add_cost(3, 0);
    for (int task = 0; task < tasks; ++task) graph.add_task(cost);
    graph.finish();
    run(graph, result);
    EXPECT_EQ(result.makespan, 3 * tasks);
  }
}

TEST(Engine, CheckRefusesALagThatPrecedesTheStart) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(3, 0));
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, -4), 0, 0);
  graph.finish();
  EXPECT_THROW(graph.check(), InternalError);
}

TEST(Engine, CheckRefusesADependencyOnAnotherStreamThanNamed) {
  TaskGraph graph;
  graph.begin_stream();
  graph.add_task(graph.add_cost(3, 0));
  graph.begin_stream();
  graph.add_task(graph.add_cost(1, 0), 0, 1);
  graph.finish();
  EXPECT_THROW(graph.check(), InternalError);
}

}  // namespace
}  // namespace flopcast
