// The search finds what simulating everything finds and counts every layout once.
#include "planner/search/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>

#include "planner/plan/plan.hpp"
#include "tests/unit/planner/questions.hpp"

namespace flopcast {
namespace {

SearchResult search(const PlanQuestion& question, bool everything,
                    double longest_step_s = std::numeric_limits<double>::infinity()) {
  SearchOptions options;
  options.simulate_everything = everything;
  LayoutSearch search(question.space, options, serial_for);
  search.explore(question.job, longest_step_s, "too slow");
  return search.result();
}

std::vector<std::uint64_t> orders(const std::vector<PlannedLayout>& layouts) {
  std::vector<std::uint64_t> list;
  for (const PlannedLayout& one : layouts) list.push_back(one.order);
  return list;
}

std::int64_t rejected(const SearchResult& result) {
  return std::accumulate(result.rejected.begin(), result.rejected.end(), std::int64_t{0},
                         [](std::int64_t sum, const RejectedLayouts& one) { return sum + one.count; });
}

void expect_same_answer(const PlanQuestion& question) {
  const SearchResult bounded = search(question, false);
  const SearchResult whole = search(question, true);
  ASSERT_FALSE(whole.ranked.empty());
  EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
  EXPECT_EQ(orders(bounded.pareto), orders(whole.pareto));
  EXPECT_EQ(bounded.ranked.front().time_s, whole.ranked.front().time_s);
  EXPECT_LT(bounded.space.simulated, whole.space.simulated);
  for (const SearchResult* result : {&bounded, &whole}) {
    EXPECT_EQ(result->space.enumerated, result->space.pruned + result->space.simulated + rejected(*result));
  }
  EXPECT_EQ(bounded.space.enumerated, whole.space.enumerated);
}

TEST(Search, FindsWhatSimulatingEverythingFinds) {
  expect_same_answer(small_question());
}

TEST(Search, FindsItWhereMemoryIsTheLimit) {
  PlanQuestion question = small_question(R"("global_batch_size": 64)", R"("sequence_length": 4096)");
  question.job.cluster.device.memory_capacity = Bytes(3.5 * kGibibyte);
  const SearchResult result = search(question, false);
  std::int64_t misfits = 0;
  for (const RejectedLayouts& one : result.rejected) {
    if (one.reason == "does not fit the memory") misfits = one.count;
  }
  EXPECT_GT(misfits, 0);
  expect_same_answer(question);
}

TEST(Search, FindsItWithExpertsAndWithEverySplit) {
  expect_same_answer(small_expert_question());
  PlanQuestion paired = small_expert_question();
  paired.job.training.stack.overlap_experts = ExpertOverlap::k1f1bDelayed;
  expect_same_answer(paired);
  PlanQuestion wide = small_question(R"("global_batch_size": 8, "tp": 2, "recompute": "none")");
  wide.space.splits = all_splits();
  wide.space.uneven_chunks = true;
  expect_same_answer(wide);
}

TEST(Search, FindsItAmongAsynchronousAndBidirectionalSchedules) {
  PlanQuestion question = small_question(R"("global_batch_size": 16, "recompute": "none", "zero": 0)");
  question.space.schedules.clear();
  for (const char* name : {"1f1b", "pipedream-2bw", "chimera", "dualpipev", "hanayo", "zb-h2"}) {
    question.space.schedules.push_back(schedule_choice(name));
  }
  expect_same_answer(question);
}

TEST(Search, TiesGoToLessMemoryAndThenToTheEnumeration) {
  PlannedLayout a;
  a.score = {1.0, 1.0};
  a.memory_share = 0.5;
  a.order = 7;
  PlannedLayout b = a;
  b.order = 8;
  EXPECT_TRUE(ranks_before(a, b));
  EXPECT_FALSE(ranks_before(b, a));
  b.memory_share = 0.4;
  EXPECT_TRUE(ranks_before(b, a));
  a.score = {1.0, 0.9};
  EXPECT_TRUE(ranks_before(a, b));
}

TEST(Search, StepsThatAreTooLongAreRejected) {
  const PlanQuestion question = small_question();
  const double best = search(question, false).ranked.front().time_s;
  const SearchResult limited = search(question, false, best * 1.001);
  ASSERT_FALSE(limited.ranked.empty());
  for (const PlannedLayout& one : limited.ranked) EXPECT_LE(one.time_s, best * 1.001);
  EXPECT_TRUE(search(question, false, best * 0.999).ranked.empty());
  EXPECT_EQ(limited.space.enumerated, limited.space.pruned + limited.space.simulated + rejected(limited));
}

TEST(Plan, TheFewestGpusAreTheFirstThatFit) {
  PlanQuestion question = small_question(R"("global_batch_size": 48)", R"("sequence_length": 2048)");
  question.job.cluster.device.memory_capacity = Bytes(0.22 * kGibibyte);
  PlanOptions options;
  options.search.objective = Objective::kGpus;
  options.nodes = {1, 2, 3, 4, 5, 6};
  const SearchResult result = plan(question.job, question.space, options, serial_for);
  ASSERT_FALSE(result.ranked.empty());
  const int nodes = result.ranked.front().nodes;
  EXPECT_GT(nodes, 1);
  for (const PlannedLayout& one : result.ranked) EXPECT_EQ(one.nodes, nodes);
  PlanOptions fewer = options;
  fewer.nodes.clear();
  for (int count = 1; count < nodes; ++count) fewer.nodes.push_back(count);
  EXPECT_TRUE(plan(question.job, question.space, fewer, serial_for).ranked.empty());
}

TEST(Plan, SizesAreRankedByTheTimeOnTheClock) {
  PlanQuestion question = small_question();
  question.job.training.tokens = 1e9;
  PlanOptions options;
  options.nodes = {1, 2, 4};
  Interruptions interruptions;
  interruptions.gpu_mtbf_s = 16 * 150.0;
  options.interruptions = interruptions;
  for (const Objective objective : {Objective::kTime, Objective::kCost}) {
    options.search.objective = objective;
    options.search.simulate_everything = false;
    const SearchResult bounded = plan(question.job, question.space, options, serial_for);
    options.search.simulate_everything = true;
    const SearchResult whole = plan(question.job, question.space, options, serial_for);
    EXPECT_EQ(orders(bounded.ranked), orders(whole.ranked));
    EXPECT_EQ(orders(bounded.pareto), orders(whole.pareto));
    const auto days = [&](const PlannedLayout& one) {
      return run_length(question.job, one.time_s, one.devices, options.interruptions)->days;
    };
    const double weight = objective == Objective::kCost ? 1.0 : 0.0;
    for (const PlannedLayout& one : whole.ranked) {
      EXPECT_GE(days(one) * std::pow(one.devices, weight) * (1 + 1e-12),
                days(bounded.ranked.front()) * std::pow(bounded.ranked.front().devices, weight));
    }
    EXPECT_EQ(bounded.ranked.front().nodes, 1);
  }
  // Without failures more GPUs are faster.
  options.search.objective = Objective::kTime;
  options.search.simulate_everything = false;
  options.interruptions.reset();
  EXPECT_GT(plan(question.job, question.space, options, serial_for).ranked.front().nodes, 1);
}

// Every layout of every size that no other beats, however slow.
TEST(Plan, TheWholeFrontIsThatOfEverything) {
  const PlanQuestion question = small_question();
  PlanOptions options;
  options.nodes = {1, 2, 4};
  options.search.ranked = 3;
  options.search.pareto_reach = std::numeric_limits<double>::infinity();
  const SearchResult bounded = plan(question.job, question.space, options, serial_for);
  options.search.simulate_everything = true;
  options.search.ranked = 100'000;
  const SearchResult whole = plan(question.job, question.space, options, serial_for);
  ASSERT_EQ(static_cast<std::int64_t>(whole.ranked.size()), whole.space.simulated);
  std::set<std::uint64_t> front;
  const auto same = [](const PlannedLayout& a, const PlannedLayout& b) {
    return a.time_s == b.time_s && a.memory_share == b.memory_share && a.devices == b.devices;
  };
  for (const PlannedLayout& one : whole.ranked) {
    const bool beaten =
        std::any_of(whole.ranked.begin(), whole.ranked.end(), [&one, &same](const PlannedLayout& other) {
          if (same(one, other)) return other.order < one.order;
          return other.time_s <= one.time_s && other.memory_share <= one.memory_share && other.devices <= one.devices;
        });
    if (!beaten) front.insert(one.order);
  }
  const std::vector<std::uint64_t> found = orders(bounded.pareto);
  EXPECT_EQ(std::set<std::uint64_t>(found.begin(), found.end()), front);
  EXPECT_EQ(found.size(), front.size());
  EXPECT_LT(bounded.space.simulated, whole.space.simulated);
  EXPECT_EQ(bounded.pareto.front().nodes, 1);
  EXPECT_EQ(bounded.pareto.back().nodes, 4);
}

TEST(Plan, CostWeighsGpusAgainstTime) {
  const PlanQuestion question = small_question();
  PlanOptions options;
  options.search.objective = Objective::kCost;
  options.nodes = {1, 2};
  const SearchResult result = plan(question.job, question.space, options, serial_for);
  for (const PlannedLayout& one : result.ranked) {
    EXPECT_DOUBLE_EQ(one.score.primary, one.time_s * one.devices);
    EXPECT_GE(one.score.primary, result.ranked.front().score.primary);
  }
}

}  // namespace
}  // namespace flopcast
