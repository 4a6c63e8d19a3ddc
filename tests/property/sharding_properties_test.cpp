#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "model/cost/stage_costs.hpp"
#include "model/job/read_job.hpp"
#include "model/workload/operators.hpp"

#include <nlohmann/json.hpp>

namespace flopcast {
namespace {

int power_of_two(int largest_exponent) {
  return 1 << *rc::gen::inRange(0, largest_exponent + 1);
}

// A random model whose shapes every drawn layout divides.
nlohmann::json random_model() {
  const bool gated = *rc::gen::arbitrary<bool>();
  const bool biases = *rc::gen::arbitrary<bool>();
  nlohmann::json model = {{"layers", *rc::gen::inRange(4, 12)},
                          {"hidden", 256 * *rc::gen::inRange(1, 6)},
                          {"heads", 16},
                          {"kv_heads", 8 << *rc::gen::inRange(0, 2)},
                          {"head_dim", 32 << *rc::gen::inRange(0, 2)},
                          {"ffn", 512 * *rc::gen::inRange(1, 6)},
                          {"vocab", *rc::gen::inRange(1000, 50'000)},
                          {"sequence_length", 256},
                          {"gated_mlp", gated},
                          {"biases", biases},
                          {"dropout", *rc::gen::arbitrary<bool>()},
                          {"causal", *rc::gen::arbitrary<bool>()},
                          {"embedding_norm", *rc::gen::arbitrary<bool>()},
                          {"post_norms", *rc::gen::arbitrary<bool>()},
                          {"block", *rc::gen::element("sequential", "parallel", "parallel_one_norm")},
                          {"norm", *rc::gen::element("layernorm", "rmsnorm")},
                          {"positions", *rc::gen::element("learned", "rotary", "alibi")},
                          {"tied_embeddings", *rc::gen::arbitrary<bool>()}};
  if (*rc::gen::arbitrary<bool>()) {
    model["experts"] = {{"count", 8 * *rc::gen::inRange(1, 4)},
                        {"top_k", *rc::gen::inRange(1, 8)},
                        {"ffn", 64 * *rc::gen::inRange(1, 8)},
                        {"shared", *rc::gen::inRange(0, 3)},
                        {"shared_ffn", 128},
                        {"first_dense_layers", *rc::gen::inRange(0, 4)},
                        {"every", *rc::gen::inRange(1, 3)}};
  }
  if (!biases && *rc::gen::arbitrary<bool>()) {
    model["mla"] = {{"q_lora_rank", 96 * *rc::gen::inRange(0, 3)},
                    {"kv_lora_rank", 64},
                    {"qk_nope_head_dim", 32},
                    {"qk_rope_head_dim", 16},
                    {"v_head_dim", 48}};
  } else {
    model["qk_norm"] = *rc::gen::arbitrary<bool>();
    if (!biases) model["attention_bias"] = *rc::gen::arbitrary<bool>();
  }
  return model;
}

Job random_job() {
  const nlohmann::json model = random_model();
  const int tp = power_of_two(3);
  const int pp = power_of_two(2);
  const int cp = power_of_two(1);
  const int dp = power_of_two(3);
  int ep = 1;
  if (model.contains("experts")) {
    ep = power_of_two(3);
    while (dp * cp % ep != 0) ep /= 2;
  }
  const nlohmann::json job = {
      {"model", model},
      {"cluster", {{"name", "dgx-h100"}, {"nodes", tp * pp * cp * dp}, {"devices_per_node", 1}}},
      {"layout",
       {{"tp", tp},
        {"pp", pp},
        {"cp", cp},
        {"dp", dp},
        {"ep", ep},
        {"sequence_parallel", *rc::gen::arbitrary<bool>()},
        {"micro_batch_size", *rc::gen::inRange(1, 4)},
        {"recompute", *rc::gen::element("none", "selective", "full")}}},
      {"training",
       {{"attention", *rc::gen::element("flash", "unfused")},
        {"stack", *rc::gen::element("megatron-core", "megatron-2022")}}}};
  nlohmann::json sized = job;
  sized["layout"]["global_batch_size"] = job.at("layout").at("micro_batch_size").get<int>() * dp * 4;
  return read_job(sized, Origins{});
}

Job unsharded(Job job) {
  job.layout.tp = job.layout.cp = job.layout.ep = 1;
  job.layout.sequence_parallel = false;
  return job;
}

std::vector<Operator> all_operators(const Job& job, BlockKind kind) {
  std::vector<Operator> all = block_operators(job.model, job.layout, job.training, kind);
  for (const Operator& op : embedding_operators(job.model, job.layout, job.training)) all.push_back(op);
  for (const Operator& op : head_operators(job.model, job.layout, job.training)) all.push_back(op);
  return all;
}

struct Sums {
  double flops = 0.0;
  double parameters = 0.0;
};

// Sums over all ranks of a replica; parts that are named as replicated count once.
Sums sums_of(const Job& job, BlockKind kind) {
  const double tp = job.layout.tp;
  Sums sums;
  for (const Operator& op : all_operators(job, kind)) {
    RC_ASSERT(op.work_copies == 1 || op.work_copies == job.layout.tp);
    sums.flops += forward_flops(op).value() * tp * job.layout.cp / op.work_copies;
    sums.parameters += op.parameters * tp * (op.of_experts ? job.layout.ep : 1) / op.parameter_copies;
  }
  return sums;
}

RC_GTEST_PROP(Sharding, WorkAndParametersAddUpToTheWhole, ()) {
  Job job = random_job();
  job.training.stack.vocab_divisor = 1;
  job.model.vocab = padded_vocab(job.model.vocab, 64, 1);  // no padding rows on either side
  const Job whole = unsharded(job);
  for (const BlockKind kind : {BlockKind::kDense, BlockKind::kExperts}) {
    if (kind == BlockKind::kExperts && !job.model.experts) continue;
    const Sums parts = sums_of(job, kind);
    const Sums expected = sums_of(whole, kind);
    RC_ASSERT(std::abs(parts.flops / expected.flops - 1) < 1e-9);
    RC_ASSERT(std::abs(parts.parameters / expected.parameters - 1) < 1e-9);
    const ParameterCounts counts = count_parameters(job.model);
    const double block = static_cast<double>(kind == BlockKind::kDense ? counts.block : counts.expert_block);
    const double table = job.model.tied_embeddings ? static_cast<double>(job.model.vocab) * job.model.hidden : 0.0;
    const double published = block + static_cast<double>(counts.embedding + counts.head) + table;
    RC_ASSERT(std::abs(expected.parameters / published - 1) < 1e-9);
  }
}

void expect_sane(const PassCost& pass) {
  for (const Seconds time : {pass.compute, pass.comm.tp, pass.comm.cp, pass.comm.ep}) {
    RC_ASSERT(std::isfinite(time.value()) && time.value() >= 0.0);
  }
}

RC_GTEST_PROP(Sharding, NoTermIsNegativeOrUndefined, ()) {
  const Job job = random_job();
  StageMap map;
  map.model_stages = job.layout.pp;
  for (int stage = 0; stage < job.layout.pp; ++stage) map.rank_of_stage.push_back(stage);
  const StepCosts costs = price_step(job, map, even_stage_layers(job.model.layers, job.layout.pp));
  for (const StageCosts& stage : costs.stages) {
    for (const PassCost& pass : {stage.forward, stage.recompute, stage.input_gradient, stage.weight_gradient}) {
      expect_sane(pass);
    }
    for (const double value :
         {stage.tp_hidden.value(), stage.sent.tp.sent_per_rank.value(), stage.sent.cp.sent_per_rank.value(),
          stage.sent.ep.sent_per_rank.value(), stage.sent.ep.time.value(), stage.model_flops.value(),
          stage.recompute_flops.value(), stage.activation.value(), stage.recompute_buffer.value(), stage.parameters,
          stage.expert_parameters, stage.parameters - stage.expert_parameters}) {
      RC_ASSERT(std::isfinite(value) && value >= 0.0);
    }
  }
  for (const FlushCosts& rank : costs.ranks) {
    for (const double value : {rank.gradient_reduction.value(), rank.embedding_reduction.value(),
                               rank.gradient_norm.value(), rank.optimizer.value(), rank.parameter_gather.value()}) {
      RC_ASSERT(std::isfinite(value) && value >= 0.0);
    }
  }
  const double flops = model_flops_per_step(job).value();
  RC_ASSERT(std::isfinite(flops) && flops > 0.0);
}

}  // namespace
}  // namespace flopcast
