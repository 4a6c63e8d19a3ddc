#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/cost/stage_costs.hpp"
#include "model/workload/operators.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

std::string moe_job(const std::string& model, const std::string& layout) {
  return R"({"model": )" + model + R"(, "cluster": "4xdgx-h100", "layout": )" + layout +
         R"(, "training": {"sequence_length": 4096}})";
}

StepCosts costs_of(const Job& job, const std::vector<int>& layers) {
  StageMap map;
  map.model_stages = static_cast<int>(layers.size());
  for (int stage = 0; stage < map.model_stages; ++stage) map.rank_of_stage.push_back(stage);
  return price_step(job, map, layers);
}

// Two all-to-alls forward and two backward of b·s·k·h·(ep-1)/ep elements (notes of GShard 2006.16668).
TEST(Experts, ExchangeWhatGShardCounts) {
  const Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
  const StepCosts costs = costs_of(job, {32});
  const double expected = 32.0 * 4 * (4096.0 * 2 * 4096 * 2) * 7 / 8;
  EXPECT_DOUBLE_EQ(costs.stages[0].sent.ep.sent_per_rank.value(), expected);
  EXPECT_DOUBLE_EQ(costs.stages[0].forward.comm.ep.value() + costs.stages[0].input_gradient.comm.ep.value(),
                   costs.stages[0].sent.ep.time.value());
  EXPECT_GT(costs.stages[0].forward.comm.ep.value(), 0.0);

  const Job apart = job_from(moe_job(R"("mixtral-8x7b")", R"({"tp": 2, "sequence_parallel": true, "ep": 8,
                                                              "global_batch_size": 16})"));
  EXPECT_DOUBLE_EQ(costs_of(apart, {32}).stages[0].sent.ep.sent_per_rank.value(), expected / 2);
  const Job alone = job_from(moe_job(R"("mixtral-8x7b")", R"({"global_batch_size": 32})"));
  EXPECT_EQ(costs_of(alone, {32}).stages[0].sent.ep.sent_per_rank.value(), 0.0);
}

// A quarter more rows: sent, multiplied and kept, but no more useful work (GShard 2006.16668 §2.2).
TEST(Experts, CapacityPadsAndDrops) {
  const auto with = [](const std::string& capacity) {
    Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
    if (!capacity.empty()) job.model.experts->capacity_factor = std::stod(capacity);
    return costs_of(job, {32}).stages[0];
  };
  const StageCosts plain = with("");
  const StageCosts padded = with("1.25");
  const StageCosts dropping = with("0.5");
  EXPECT_NEAR(padded.sent.ep.sent_per_rank / plain.sent.ep.sent_per_rank, 1.25, 1e-12);
  EXPECT_NEAR(padded.model_flops / plain.model_flops, 1.0, 1e-12);
  EXPECT_GT(padded.forward.compute.value(), plain.forward.compute.value());
  EXPECT_GT(padded.activation.value(), plain.activation.value());
  EXPECT_NEAR(dropping.sent.ep.sent_per_rank / plain.sent.ep.sent_per_rank, 0.5, 1e-12);
  EXPECT_LT(dropping.model_flops.value(), plain.model_flops.value());
  EXPECT_NEAR(with("1").forward.compute / plain.forward.compute, 1.0, 1e-12);
}

TEST(Experts, AreSplitOverTheirRanks) {
  const std::string all = R"({"global_batch_size": 32})";
  const std::string split = R"({"ep": 4, "global_batch_size": 32})";
  const StageCosts whole = costs_of(job_from(moe_job(R"("mixtral-8x7b")", all)), {32}).stages[0];
  const StageCosts part = costs_of(job_from(moe_job(R"("mixtral-8x7b")", split)), {32}).stages[0];
  EXPECT_DOUBLE_EQ(part.expert_parameters * 4, whole.expert_parameters);
  EXPECT_DOUBLE_EQ(part.parameters - part.expert_parameters, whole.parameters - whole.expert_parameters);
  EXPECT_DOUBLE_EQ(whole.expert_parameters, 32.0 * 8 * 3 * 4096 * 14336);
  EXPECT_DOUBLE_EQ(part.model_flops.value(), whole.model_flops.value());  // as many tokens meet fewer experts
}

// 6 FLOPs a token and active parameter (without embedding), and attention's 12·L·s·h.
TEST(Experts, ModelFlopsFollowTheActiveParameters) {
  const Job job = job_from(moe_job(R"("mixtral-8x7b")", R"({"ep": 8, "global_batch_size": 32})"));
  const ParameterCounts counts = count_parameters(job.model);
  const double norms = 65.0 * 4096;
  const double tokens = 32.0 * 4096;
  const double products = static_cast<double>(counts.active) - static_cast<double>(counts.embedding) - norms;
  const double attention = 12.0 * 32 * 4096 * 4096;
  EXPECT_NEAR(model_flops_per_step(job).value() / (tokens * (6 * products + attention)), 1.0, 1e-9);
}

TEST(Experts, EachStageKnowsItsKindsOfLayers) {
  const Job job = job_from(moe_job(R"("deepseek-v3")", R"({"pp": 4, "ep": 8, "global_batch_size": 32})"));
  EXPECT_EQ(job.model.expert_layers(0, 61), 58);
  EXPECT_EQ(job.model.kind_of(2), BlockKind::kDense);
  EXPECT_EQ(job.model.kind_of(3), BlockKind::kExperts);
  const StepCosts costs = costs_of(job, {2, 20, 20, 19});
  EXPECT_EQ(costs.stages[0].expert_parameters, 0.0);
  EXPECT_EQ(costs.stages[0].sent.ep.sent_per_rank.value(), 0.0);
  EXPECT_DOUBLE_EQ(costs.stages[1].expert_parameters / 19, costs.stages[2].expert_parameters / 20);
  double parameters = 0.0;
  for (const StageCosts& stage : costs.stages) parameters += stage.parameters + 7 * stage.expert_parameters;
  EXPECT_NEAR(parameters / static_cast<double>(count_parameters(job.model).total), 1.0, 1e-12);
}

TEST(Experts, EverySecondLayer) {
  const Job job = job_from(moe_job(R"({"name": "mixtral-8x7b", "experts": {"count": 8, "top_k": 2, "ffn": 1024,
                                       "every": 2}})",
                                   R"({"global_batch_size": 32})"));
  EXPECT_EQ(job.model.expert_layers(0, 32), 16);
  EXPECT_EQ(job.model.kind_of(0), BlockKind::kDense);
  EXPECT_EQ(job.model.kind_of(1), BlockKind::kExperts);
}

TEST(Experts, RefusesWhatDoesNotSplit) {
  const Diagnostic none = complaint_about(moe_job(R"("llama3-8b")", R"({"ep": 2, "global_batch_size": 32})"));
  EXPECT_EQ(none.field, "layout.ep");
  EXPECT_EQ(none.help, "valid: 1");
  const Diagnostic uneven = complaint_about(moe_job(R"("mixtral-8x7b")", R"({"ep": 16, "global_batch_size": 32})"));
  EXPECT_EQ(uneven.field, "layout.ep");
  EXPECT_EQ(uneven.help, "valid: 1, 2, 4, 8");
  const Diagnostic greedy = complaint_about(moe_job(
      R"({"name": "mixtral-8x7b", "experts": {"count": 4, "top_k": 5, "ffn": 8}})", R"({"global_batch_size": 32})"));
  EXPECT_EQ(greedy.field, "model.experts.top_k");
  const Diagnostic misspelt = complaint_about(moe_job(
      R"({"name": "mixtral-8x7b", "experts": {"count": 4, "topk": 2, "ffn": 8}})", R"({"global_batch_size": 32})"));
  EXPECT_EQ(misspelt.field, "model.experts.topk");
}

TEST(LatentAttention, HasTheShapesOfDeepSeek) {
  const Job job = job_from(moe_job(R"("deepseek-v3")", R"({"tp": 4, "global_batch_size": 32})"));
  const auto operators = block_operators(job.model, job.layout, job.training, BlockKind::kDense);
  const auto named = [&operators](std::string_view name) {
    return *std::find_if(operators.begin(), operators.end(), [name](const Operator& op) { return op.name == name; });
  };
  EXPECT_EQ(named("query down projection").shape.n, 1536);
  EXPECT_EQ(named("query down projection").parameter_copies, 4);
  EXPECT_EQ(named("query up projection").shape.n, 128 * 192 / 4);
  EXPECT_EQ(named("key-value down projection").shape.n, 576);
  EXPECT_EQ(named("key-value up projection").shape.n, 128 * 256 / 4);
  EXPECT_EQ(named("output projection").shape.k, 128 * 128 / 4);
  // 2·(qk + v) a score.
  EXPECT_DOUBLE_EQ(named("flash attention").full_attention_flops.value(), 2.0 * 32 * 4096 * 4096 * (192 + 128));
}

TEST(Transformer, BidirectionalAttentionVisitsEveryScore) {
  const Job job = job_from(R"({"model": "bert-large", "cluster": "one-gpu", "layout": {"global_batch_size": 1}})");
  for (const Operator& op : block_operators(job.model, job.layout, job.training, BlockKind::kDense)) {
    const bool fused = op.kind == OperatorKind::kFusedAttention;
    EXPECT_TRUE(!fused || op.attention_flops == op.full_attention_flops) << op.name;
  }
  EXPECT_FALSE(job.model.causal);
}

}  // namespace
}  // namespace flopcast
