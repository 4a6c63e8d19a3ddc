// Bytes that expert-parallel ranks actually send, compared with the model's prediction for the same job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/realrun/plans.hpp"
#include "tests/realrun/step_volumes.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

PreparedStep expert_job(const std::string& layout, const std::string& experts) {
  return prepare(job_from(fmt::format(R"({{"model": {{"layers": 4, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24,
                                           "sequence_length": 16, "tied_embeddings": false, "gated_mlp": true,
                                           "biases": false, "norm": "rmsnorm", "positions": "rotary",
                                           "experts": {{"count": 4, "top_k": 2, "ffn": 8{}}}}},
                             "cluster": {{"name": "dgx-a100-80g", "nodes": 1}},
                             "layout": {{"schedule": "1f1b", "global_batch_size": 16, {}}},
                             "training": {{"precision": "fp32", "stack": "pytorch-ddp"}}}})",
                                      experts, layout)),
                 no_files);
}

/// Bytes by axis that a rank of a pipeline stage sends in a step.
struct SentByAxis {
  double tp = 0;
  double cp = 0;
  double ep = 0;
  double dp = 0;
};

SentByAxis predicted_by_axis(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  const StageCosts& stage = step.costs.stages[static_cast<std::size_t>(pipeline_rank)];
  const double microbatches = layout.microbatches();
  SentByAxis sent{microbatches * stage.sent.tp.sent_per_rank.value(),
                  microbatches * stage.sent.cp.sent_per_rank.value(),
                  microbatches * stage.sent.ep.sent_per_rank.value(),
                  microbatches * stage.sent.dp.sent_per_rank.value() +
                      step.costs.ranks[static_cast<std::size_t>(pipeline_rank)].dp.sent_per_rank.value()};
  // The run does not compute a gradient norm.
  const double norm_ranks = layout.tp * layout.pp * layout.gradient_shards();
  sent.dp -= 2.0 * (norm_ranks - 1) / norm_ranks * kFloatBytes;
  // It exchanges row counts, also between ranks that share experts, which the model omits.
  const int first = pipeline_rank * step.job.model.layers / layout.pp;
  const double passes = microbatches * step.job.model.expert_layers(first, step.job.model.layers / layout.pp);
  const double counts = step.job.model.experts->count * 4.0;
  sent.ep += passes * counts / layout.ep * (layout.ep - 1);
  if (layout.sequence_parallel) sent.tp += passes * counts * (layout.expert_tensor_ranks() - 1);
  return sent;
}

int compare_experts(const std::string& layout, const std::string& experts, bool balanced) {
  const PreparedStep step = expert_job(layout, experts);
  RunSettings settings;
  settings.steps = 1;
  TrainingPlan plan = plan_from_job(step, settings);
  plan.network.balanced_routing = balanced;
  const std::vector<RankResult> ranks = train_on_threads(plan, {});
  for (const RankResult& rank : ranks) {
    const std::string what = fmt::format("{}{}, rank {}", layout, experts, rank.rank);
    const SentByAxis sent = predicted_by_axis(step, rank.pipeline_rank);
    const SentTraffic& traffic = rank.steps.front().traffic;
    const auto bytes = [&traffic](Axis axis) { return static_cast<double>(traffic.bytes_of(axis)); };
    EXPECT_NEAR(bytes(Axis::kTensor), sent.tp + partial_bytes(step, rank), 1e-6) << what;
    EXPECT_NEAR(bytes(Axis::kContext), sent.cp, 1e-6) << what;
    EXPECT_NEAR(bytes(Axis::kExpert), sent.ep, 1e-6) << what;
    EXPECT_NEAR(bytes(Axis::kData), sent.dp, 1e-6) << what;
  }
  return static_cast<int>(ranks.size());
}

TEST(ExpertTraffic, IsTheModelsWhereExpertsHaveAsMuchToDo) {
  int compared = 0;
  for (const char* experts : {"", R"(, "shared": 1, "shared_ffn": 6, "first_dense_layers": 1)"}) {
    for (const char* degrees : {R"("ep": 1)", R"("ep": 2)", R"("ep": 4)", R"("ep": 2, "tp": 2)", R"("ep": 2, "pp": 2)",
                                R"("ep": 2, "pp": 2, "tp": 2)"}) {
      for (const int zero : {0, 1, 3}) {
        compared += compare_experts(fmt::format(R"({}, "zero": {})", degrees, zero), experts, true);
      }
    }
  }
  EXPECT_GE(compared, 288);
}

constexpr const char* kSharedLayouts[] = {R"("ep": 1, "tp": 2)",
                                          R"("ep": 2, "tp": 2)",
                                          R"("ep": 2, "tp": 2, "pp": 2)",
                                          R"("ep": 2, "tp": 2, "etp": 1)",
                                          R"("ep": 4, "tp": 2, "etp": 1, "pp": 2)",
                                          R"("ep": 2, "tp": 4, "etp": 2)",
                                          R"("ep": 1, "tp": 4, "etp": 2)",
                                          R"("ep": 1, "tp": 4, "etp": 1, "pp": 2)",
                                          R"("ep": 4, "tp": 2, "etp": 1, "cp": 2, "pp": 2)",
                                          R"("ep": 2, "tp": 2, "cp": 2, "pp": 2)"};

// Ranks route separate rows, and those that share experts gather them.
TEST(ExpertTraffic, OfSequenceParallelRanksIsTheModels) {
  int compared = 0;
  for (const char* experts : {"", R"(, "shared": 2, "shared_ffn": 6, "first_dense_layers": 1)"}) {
    for (const char* degrees : kSharedLayouts) {
      for (const int zero : {0, 1, 3}) {
        compared +=
            compare_experts(fmt::format(R"({}, "sequence_parallel": true, "zero": {})", degrees, zero), experts, true);
      }
    }
  }
  EXPECT_EQ(compared, 2 * 10 * 3 * 8);
}

TEST(ExpertTraining, OfSequenceParallelRanksIsOneRanks) {
  for (const char* experts : {"", R"(, "shared": 2, "shared_ffn": 6, "first_dense_layers": 1)"}) {
    for (const char* degrees : kSharedLayouts) {
      const std::string layout = fmt::format(R"({}, "sequence_parallel": true)", degrees);
      const TrainingPlan plan = plan_from_job(expert_job(layout, experts), {.steps = 2});
      expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), layout + experts);
    }
  }
}

// Selects two of four experts from one group of two; groups of a single expert, or all groups, impose no restriction.
TEST(ExpertTraining, GroupsAreChosenBeforeExperts) {
  const auto losses = [](const std::string& layout, const std::string& groups) {
    return mean_losses(train_on_threads(plan_from_job(expert_job(layout, groups), {.steps = 3}), {}));
  };
  const std::string one = R"(, "groups": 2, "group_top_k": 1)";
  const std::vector<double> from_all = losses(R"("ep": 1)", "");
  EXPECT_NE(losses(R"("ep": 1)", one), from_all);
  EXPECT_EQ(losses(R"("ep": 1)", R"(, "groups": 2, "group_top_k": 2)"), from_all);
  EXPECT_EQ(losses(R"("ep": 1)", R"(, "groups": 4, "group_top_k": 2)"), from_all);
  for (const char* layout : {R"("ep": 2)", R"("ep": 4, "pp": 2)", R"("ep": 2, "tp": 2, "sequence_parallel": true)"}) {
    const TrainingPlan plan = plan_from_job(expert_job(layout, one), {.steps = 2});
    expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), layout);
  }
}

constexpr const char* kHierarchies[] = {R"("cp": 4)",
                                        R"("cp": 8)",
                                        R"("cp": 4, "tp": 2)",
                                        R"("cp": 4, "ep": 4, "pp": 2)",
                                        R"("cp": 4, "tp": 2, "zigzag": false)",
                                        R"("cp": 4, "ep": 2)"};

TEST(ContextTraining, OfAHierarchyIsOneRanksAndSendsTheModels) {
  for (const char* degrees : kHierarchies) {
    const std::string layout = fmt::format(R"({}, "context_parallel": "hierarchical", "context_inner": 2)", degrees);
    compare_experts(layout, "", true);
    const TrainingPlan plan = plan_from_job(expert_job(layout, ""), {.steps = 2});
    expect_same_training(train_on_threads(serial_plan(plan), {}), train_on_threads(plan, {}), layout);
  }
}

// In addition to the traffic of experts between neighbours of both axes.
TEST(ContextTraffic, IsTheModels) {
  int compared = 0;
  for (const char* form : {R"("context_parallel": "ring")", R"("context_parallel": "ring", "zigzag": false)",
                           R"("context_parallel": "allgather")", R"("context_parallel": "ulysses")"}) {
    for (const char* degrees : {R"("cp": 2, "ep": 2)", R"("cp": 4, "ep": 1)", R"("cp": 2, "ep": 4, "pp": 2)",
                                R"("cp": 2, "ep": 2, "tp": 2)"}) {
      for (const int zero : {0, 1, 3}) {
        compared += compare_experts(fmt::format(R"({}, {}, "zero": {})", form, degrees, zero), "", true);
      }
    }
  }
  EXPECT_EQ(compared, 4 * 4 * 3 * 8);
}

// Padding rows are sent as well.
TEST(ExpertTraffic, IsTheModelsWhereExpertsHaveACapacity) {
  for (const char* factor : {"1.0", "1.25", "2.0"}) {
    compare_experts(R"("ep": 4, "pp": 2)", fmt::format(R"(, "capacity_factor": {})", factor), false);
  }
}

// Routing is uneven: ranks send amounts other than the even share, and every rank receives what was sent to it.
TEST(ExpertTraffic, FollowsTheRouterOtherwise) {
  const PreparedStep step = expert_job(R"("ep": 4, "pp": 2)", "");
  RunSettings settings;
  settings.steps = 1;
  const std::vector<RankResult> ranks = train_on_threads(plan_from_job(step, settings), {});
  bool differs = false;
  for (const RankResult& rank : ranks) {
    const auto bytes = static_cast<double>(rank.steps.front().traffic.bytes_of(Axis::kExpert));
    const double even = predicted_by_axis(step, rank.pipeline_rank).ep;
    differs = differs || bytes != even;
    EXPECT_NEAR(bytes / even, 1.0, 0.4) << "rank " << rank.rank;
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace flopcast::realrun
