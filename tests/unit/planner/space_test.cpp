// Layouts of a question: a listed split has one number of stages, and a single rank also has a schedule.
#include "planner/space/space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text/error.hpp"
#include "tests/unit/planner/questions.hpp"

namespace flopcast {
namespace {

std::set<int> stage_counts(const LayoutSpace& space) {
  std::set<int> counts;
  for (const LayoutGroup& group : space.groups) {
    for (const LayoutMember& member : space.members[group.members]) counts.insert(group.pp * member.chunks);
  }
  return counts;
}

std::set<std::string> schedules_on_one_rank(const PlanQuestion& question) {
  const LayoutSpace space = enumerate_layouts(question.job, question.space);
  std::set<std::string> names;
  for (const LayoutGroup& group : space.groups) {
    if (group.pp > 1) continue;
    for (const LayoutMember& member : space.members[group.members])
      names.insert(question.space.schedules[member.schedule].text);
  }
  return names;
}

TEST(Space, AListedSplitHasItsNumberOfStages) {
  const PlanQuestion question = small_question(R"("global_batch_size": 16, "stage_layers": [1, 3, 3, 1])");
  const LayoutSpace space = enumerate_layouts(question.job, question.space);
  EXPECT_EQ(stage_counts(space), std::set<int>{4});
  const auto counted = std::find_if(space.rejected.begin(), space.rejected.end(), [](const RejectedLayouts& one) {
    return one.reason == "stage_layers does not match the number of stages";
  });
  ASSERT_NE(counted, space.rejected.end());
  EXPECT_GT(counted->count, 0);
}

TEST(Space, AListedSplitMustSuitTheModelAndWhatIsFixed) {
  const auto problem_of = [](const std::string& layout) -> std::string {
    try {
      small_question(R"("global_batch_size": 16, )" + layout);
    } catch (const ConfigError& error) {
      return error.diagnostic().problem;
    }
    return "";
  };
  EXPECT_EQ(problem_of(R"("stage_layers": [4, 5])"), "[4, 5] sums to 9, but the model has 8 layers");
  EXPECT_EQ(problem_of(R"("stage_layers": [4, 4], "pp": 4)"), "[4, 4] lists 2 stages, which does not match pp 4");
  EXPECT_EQ(problem_of(R"("stage_layers": [4, 4], "pp": 2, "vpp": 2)"),
            "[4, 4] lists 2 stages, which does not match pp 2 · vpp 2");
  EXPECT_EQ(problem_of(R"("stage_layers": [3, 5], "pp": 2)"), "");
}

TEST(Space, OneRankHasAScheduleThatTakesChunks) {
  PlanQuestion question = small_question();
  question.space.schedules = {schedule_choice("interleaved"), schedule_choice("zbv")};
  EXPECT_EQ(schedules_on_one_rank(question), std::set<std::string>{"interleaved"});
  question.space.schedules = {schedule_choice("1f1b"), schedule_choice("interleaved")};
  EXPECT_EQ(schedules_on_one_rank(question), std::set<std::string>{"1f1b"});
  question.space.vpp = {2};
  EXPECT_EQ(schedules_on_one_rank(question), std::set<std::string>{"interleaved"});
}

TEST(Space, AHugeBatchHasFewLayouts) {
  const PlanQuestion question = small_question(R"("global_batch_size": 1000000000)");
  const LayoutSpace space = enumerate_layouts(question.job, question.space);
  ASSERT_FALSE(space.groups.empty());
  for (const LayoutGroup& group : space.groups) {
    EXPECT_EQ(1'000'000'000 % (group.dp * group.micro_batch_size), 0);
    EXPECT_LE(group.microbatches, 16'384);
  }
}

// Folded over tensor-parallel ranks: experts are spread over more ranks than there are replicas.
TEST(Space, ExpertsAreFoldedWhereTokensAreSplit) {
  PlanQuestion question = small_expert_question();
  int folded = 0;
  int beyond_replicas = 0;
  for (const LayoutGroup& group : enumerate_layouts(question.job, question.space).groups) {
    if (group.etp == 0) {
      EXPECT_LE(group.ep, group.dp * group.cp);
      continue;
    }
    ++folded;
    EXPECT_EQ(group.etp, 1);
    EXPECT_GT(group.tp, 1);
    EXPECT_TRUE(group.sequence_parallel);
    EXPECT_EQ(group.tp * group.cp * group.dp % group.ep, 0);
    beyond_replicas += group.ep > group.dp * group.cp ? 1 : 0;
  }
  EXPECT_GT(folded, 0);
  EXPECT_GT(beyond_replicas, 0);
  question.space.etp = {2};
  const LayoutSpace shared = enumerate_layouts(question.job, question.space);
  EXPECT_FALSE(shared.groups.empty());
  for (const LayoutGroup& group : shared.groups) {
    EXPECT_EQ(group.tp % 2, 0);
    EXPECT_EQ(layout_of(question.job.layout, question.space, group, shared.members[group.members].front(), 4).etp, 2);
  }
}

// Only layouts that the job's reader also accepts.
TEST(Space, FormsThatFewLayoutsCanHave) {
  const auto groups_of = [](const std::string& layout, int nodes) {
    PlanQuestion question = small_question(R"("global_batch_size": 16, )" + layout);
    question.job.cluster.nodes = nodes;
    return enumerate_layouts(question.job, question.space).groups;
  };
  const auto ulysses = groups_of(R"("context_parallel": "ulysses")", 2);
  ASSERT_FALSE(ulysses.empty());
  for (const LayoutGroup& group : ulysses) {
    EXPECT_GT(group.cp, 1);
    EXPECT_EQ(16 / group.tp % group.cp, 0);
  }
  const auto grid = groups_of(R"("tensor_parallel": "2.5d", "tensor_depth": 2)", 2);
  ASSERT_FALSE(grid.empty());
  for (const LayoutGroup& group : grid) EXPECT_TRUE(group.tp == 2 || group.tp == 8) << group.tp;
  const auto checkpoints = groups_of(R"("partition_checkpoints": true)", 2);
  ASSERT_FALSE(checkpoints.empty());
  for (const LayoutGroup& group : checkpoints) {
    EXPECT_EQ(group.recompute, Recompute::kFull);
    EXPECT_GT(group.tp, 1);
    EXPECT_FALSE(group.sequence_parallel);
  }
  PlanQuestion one_process = small_question(R"("global_batch_size": 16)");
  one_process.job.layout.data_parallel = DataParallel::kDataParallel;
  EXPECT_TRUE(enumerate_layouts(one_process.job, one_process.space).groups.empty());
  one_process.job.cluster.nodes = 1;
  for (const LayoutGroup& group : enumerate_layouts(one_process.job, one_process.space).groups) EXPECT_EQ(group.dp, 8);
}

}  // namespace
}  // namespace flopcast
