// Ranks that fail, fall silent or hang: the others stop within their patience and report which rank waited for what.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/text/error.hpp"
#include "tests/realrun/lossy_transport.hpp"
#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

TrainingPlan four_ranks() {
  ScheduleRequest request;
  request.pipeline_ranks = 4;
  request.microbatches = 6;
  return plan_for(tiny_transformer(4), *find_schedule("1f1b"), request);
}

struct Outcome {
  std::string failure;
  std::vector<RankResult> results;
};

// Rank 1 decides for each of its messages whether to send it.
Outcome run_with_fault(const TrainingPlan& plan, const std::function<bool(const MessageKey&)>& rank_1_may_send) {
  Outcome outcome;
  outcome.results.resize(static_cast<std::size_t>(plan.ranks()));
  try {
    run_threads(plan.ranks(), {.patience = std::chrono::milliseconds(300)}, [&](RankTransport& transport) {
      LossyTransport lossy(transport,
                           [&](const MessageKey& key) { return transport.rank() != 1 || rank_1_may_send(key); });
      train_rank(plan, lossy, outcome.results[static_cast<std::size_t>(transport.rank())]);
    });
  } catch (const EnvironmentError& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

TEST(Faults, ARankThatThrowsIsNamedWithItsAction) {
  const Outcome outcome = run_with_fault(four_ranks(), [](const MessageKey& key) -> bool {
    if (key.microbatch == 3 && key.activation) throw std::runtime_error("the disk is full");
    return true;
  });
  EXPECT_EQ(outcome.failure, "rank 1 failed in 1F3: the disk is full");
}

TEST(Faults, APeerThatNeverSendsIsFoundOut) {
  const Outcome outcome =
      run_with_fault(four_ranks(), [](const MessageKey& key) { return key.microbatch != 2 || !key.activation; });
  EXPECT_NE(outcome.failure.find("is stuck in "), std::string::npos) << outcome.failure;
  EXPECT_NE(outcome.failure.find("it has waited 300 ms for the "), std::string::npos) << outcome.failure;
  EXPECT_NE(outcome.failure.find("from rank "), std::string::npos) << outcome.failure;
}

TEST(Faults, WhatWasMeasuredBeforeStays) {
  int messages = 0;  // of rank 1 only: 6 activations and 6 gradients per step
  const Outcome outcome = run_with_fault(four_ranks(), [&](const MessageKey& /*key*/) {
    if (++messages > 30) throw std::runtime_error("killed");
    return true;
  });
  EXPECT_NE(outcome.failure.find("killed"), std::string::npos) << outcome.failure;
  EXPECT_EQ(finished_steps(outcome.results), 2U);
  const Timeline timeline = timeline_of(outcome.results, 1);
  EXPECT_EQ(timeline.rank_count(), 4);
  EXPECT_GT(timeline.makespan(), 0);
}

TEST(Faults, AnInterruptionIsNamedWithRankAndAction) {
  const TrainingPlan plan = four_ranks();
  std::vector<RankResult> results(4);
  std::atomic<int> interruption{0};
  std::string failure;
  try {
    run_threads(4, {.patience = std::chrono::seconds(30), .interruption = &interruption},
                [&](RankTransport& transport) {
                  LossyTransport watched(transport, [&](const MessageKey& key) {
                    if (key.stage == 3 && key.microbatch == 2) interruption = 15;
                    return true;
                  });
                  train_rank(plan, watched, results[static_cast<std::size_t>(transport.rank())]);
                });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  EXPECT_EQ(failure.rfind("stopped by signal 15 while rank ", 0), 0U) << failure;
  EXPECT_EQ(finished_steps(results), 0U);
}

TEST(Faults, ARankThatComputesForEverIsLeftBehind) {
  std::atomic<bool> released{false};
  std::string told;
  EXPECT_THROW(
      run_threads(2,
                  {.patience = std::chrono::milliseconds(200),
                   .abandon =
                       [&](const std::string& failure) {
                         told = failure;
                         released = true;  // a program would end the process here
                       }},
                  [&](RankTransport& transport) {
                    const Group group = transport.form_group(Axis::kData, {0, 1});
                    if (transport.rank() == 0) transport.run(group, {.kind = CollectiveKind::kBarrier});
                    transport.note({.kind = Activity::Kind::kAction, .action = {4, 1, ActionKind::kBackward, false}});
                    while (!released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                  }),
      EnvironmentError);
  EXPECT_NE(told.find("rank 0 is stuck in"), std::string::npos) << told;
  EXPECT_NE(told.find("rank 1 has not returned from 1B4"), std::string::npos) << told;
}

TEST(Faults, BetweenStepsAllRanksHaveTheStepBefore) {
  const TrainingPlan plan = four_ranks();
  std::vector<RankResult> results;
  std::vector<std::size_t> seen;
  train_on_threads(plan, {}, results, [&](RankTransport& transport) {
    if (transport.rank() != 2) return;
    seen.push_back(finished_steps(results));
    for (const RankResult& rank : results) EXPECT_EQ(rank.steps.size(), seen.back());
  });
  EXPECT_EQ(seen, (std::vector<std::size_t>{1, 2}));
}

TEST(Faults, AMemberThatMissesACollectiveIsNamed) {
  std::string failure;
  try {
    run_threads(3, {.patience = std::chrono::milliseconds(200)}, [](RankTransport& transport) {
      const Group group = transport.form_group(Axis::kData, {0, 1, 2});
      if (transport.rank() != 2) transport.run(group, {.kind = CollectiveKind::kBarrier});
    });
  } catch (const EnvironmentError& error) {
    failure = error.what();
  }
  EXPECT_NE(failure.find("rank 2"), std::string::npos) << failure;
}

TEST(Faults, AFailureDuringAStartedCollectiveEndsTheWait) {
  EXPECT_THROW(run_threads(2, {.patience = std::chrono::seconds(30)},
                           [](RankTransport& transport) {
                             const Group group = transport.form_group(Axis::kData, {0, 1});
                             if (transport.rank() == 1) throw std::runtime_error("gone");
                             const Buffer buffer = allocate_host(16);
                             transport.wait(transport.start(
                                 group, {.kind = CollectiveKind::kAllReduce, .input = buffer, .output = buffer}));
                           }),
               EnvironmentError);
}

}  // namespace
}  // namespace flopcast::realrun
