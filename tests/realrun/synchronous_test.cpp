// Every synchronous schedule trains as one rank does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <map>

#include "tests/realrun/plans.hpp"

namespace flopcast::realrun {
namespace {

struct Case {
  const ScheduleInfo* info = nullptr;
  ScheduleRequest request;
};

// Whatever the catalogue offers for that many ranks: each variant, with m a multiple of p and not.
std::vector<Case> synchronous_cases(int pipeline_ranks) {
  std::vector<Case> cases;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    if (info.asynchronous) continue;
    std::vector<std::string> variants(info.variants.begin(), info.variants.end());
    if (variants.empty()) variants.emplace_back();
    for (const std::string& variant : variants) {
      for (const int chunks : {1, 2, 3}) {
        int taken = 0;
        for (const int microbatches : {2 * pipeline_ranks + 2, 2 * pipeline_ranks, 2 * pipeline_ranks + 1, 4}) {
          ScheduleRequest request;
          request.pipeline_ranks = pipeline_ranks;
          request.microbatches = microbatches;
          request.chunks = chunks;
          request.variant = variant;
          if (chunks > 1 && !info.uses_chunks) continue;
          if (taken < 2 && !refuse_request(info, request)) {
            cases.push_back({&info, request});
            ++taken;
          }
        }
      }
    }
  }
  return cases;
}

std::string name_of_case(const Case& entry, const TrainingPlan& plan) {
  return fmt::format("{} {} p={} m={} v={} dp={} tp={} zero={}{}{}", entry.info->name, entry.request.variant,
                     entry.request.pipeline_ranks, entry.request.microbatches, entry.request.chunks, plan.dp, plan.tp,
                     plan.zero, plan.sequence_parallel ? " sp" : "", plan.network.tied ? " tied" : "");
}

// Runs every case in a layout and compares it with one rank; prints how many there were.
void expect_equal_to_one_rank(int pipeline_ranks, const std::function<void(TrainingPlan&)>& lay_out) {
  std::map<int, std::vector<RankResult>> references;  // by microbatches of a step
  int compared = 0;
  for (const Case& entry : synchronous_cases(pipeline_ranks)) {
    TrainingPlan plan = plan_for(tiny_transformer(), *entry.info, entry.request);
    lay_out(plan);
    const TrainingPlan serial = serial_plan(plan);
    std::vector<RankResult>& reference = references[serial.microbatches()];
    if (reference.empty()) reference = train_on_threads(serial, {});
    expect_same_training(reference, train_on_threads(plan, {}), name_of_case(entry, plan));
    ++compared;
  }
  std::cout << compared << " runs equal to one rank\n";
  EXPECT_GT(compared, 5);
}

TEST(SynchronousRun, TwoPipelineRanks) {
  expect_equal_to_one_rank(2, [](TrainingPlan&) {});
}

TEST(SynchronousRun, FourPipelineRanksWithTiedEmbeddings) {
  expect_equal_to_one_rank(4, [](TrainingPlan& plan) { plan.network.tied = true; });
}

TEST(SynchronousRun, TwoReplicasOfTwoPipelineRanks) {
  expect_equal_to_one_rank(2, [](TrainingPlan& plan) {
    plan.dp = 2;
    plan.bucket_bytes = 600;
    plan.network.tied = true;
  });
}

}  // namespace
}  // namespace flopcast::realrun
