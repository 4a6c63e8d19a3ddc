// For layouts drawn from all forms of parallelism: work is neither lost nor duplicated without being named, no term is
// negative or NaN, and the parts of a step sum to it.
#include <gtest/gtest.h>

#include <cmath>
#include <initializer_list>
#include <iostream>
#include <random>
#include <string>

#include "model/cost/data_parallel.hpp"
#include "model/workload/operators.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  std::string one_of(std::initializer_list<const char*> choices) { return choices.begin()[random_() % choices.size()]; }

 private:
  std::mt19937 random_;  // the same numbers on every platform, unlike std distributions
};

std::string random_job(Draw& draw) {
  std::string layout = R"("global_batch_size": 256)";
  const auto add = [&layout](const std::string& key, const std::string& value) {
    layout += ", \"" + key + "\": " + value;
  };
  const auto quoted = [](const std::string& text) { return '"' + text + '"'; };
  add("tp", draw.one_of({"1", "2", "4", "4", "8", "8", "16"}));
  add("pp", draw.one_of({"1", "2", "4"}));
  add("cp", draw.one_of({"1", "1", "2"}));
  const std::string form = draw.one_of({"1d", "1d", "2d", "2.5d", "3d"});
  add("tensor_parallel", quoted(form));
  if (form == "2.5d") add("tensor_depth", draw.one_of({"1", "2"}));
  if (form == "1d") add("sequence_parallel", draw.one_of({"true", "false"}));
  add("micro_batch_size", form == "1d" ? draw.one_of({"1", "2"}) : draw.one_of({"4", "8"}));
  const std::string replicas = draw.one_of({"ddp", "ddp", "ddp", "fsdp", "hsdp", "ps", "byteps", "dataparallel"});
  add("data_parallel", quoted(replicas));
  if (replicas == "ddp") add("zero", draw.one_of({"0", "0", "1", "2", "3"}));
  if (replicas == "fsdp") add("reshard_after_forward", draw.one_of({"true", "false"}));
  if (replicas == "ps" || replicas == "byteps") add("spare_hosts", draw.one_of({"0", "2", "8"}));
  add("compression", quoted(draw.one_of({"none", "none", "none", "8bit", "4bit", "topk:0.01", "powersgd:4"})));
  add("offload", quoted(draw.one_of({"none", "none", "optimizer", "activations", "all"})));
  add("recompute", quoted(draw.one_of({"none", "selective", "full"})));
  add("placement", quoted(draw.one_of({"tp-cp-dp-pp", "tp-pp-dp-cp"})));
  const std::string schedule = draw.one_of(
      {"", "", "1f1b", "pipedream", "pipedream-2bw", "bfs", "terapipe", "hanayo", "chimera", "dualpipe", "dualpipev"});
  if (!schedule.empty()) add("schedule", quoted(schedule));
  const std::string nodes = replicas == "dataparallel" ? "1" : "8";
  return R"({"model": {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 51200, "sequence_length": 1024,)"
         R"( "tied_embeddings": )" +
         draw.one_of({"true", "false"}) + R"(}, "cluster": {"name": "dgx-a100-80g", "nodes": )" + nodes +
         R"(}, "layout": {)" + layout + R"(}, "training": {"precision": "fp16", "stack": )" +
         quoted(draw.one_of({"megatron-core", "megatron-2022", "pytorch-ddp"})) + R"(, "transport": )" +
         quoted(draw.one_of({"nccl", "nccl", "gloo", "mpi"})) + "}}";
}

void expect_sound(double value, const std::string& what) {
  EXPECT_TRUE(std::isfinite(value)) << what;
  EXPECT_GE(value, 0.0) << what;
}

void check_result(const Forecast& answer, const std::string& text) {
  const Breakdown& b = answer.result.breakdown;
  double sum = 0.0;
  for (const double part : {b.compute_s, b.recompute_s, b.tp_comm_s, b.pp_comm_s, b.dp_comm_s, b.cp_comm_s, b.ep_comm_s,
                            b.optimizer_s, b.offload_s, b.bubble_s}) {
    expect_sound(part, text);
    sum += part;
  }
  EXPECT_NEAR(sum / answer.result.iteration.time_s, 1.0, 1e-9) << text;
  const CommunicationResult& sent = answer.result.communication;
  for (const Axis axis : kAxes) {
    const AxisCommunication& along = sent[axis];
    for (const double part : {along.total_s, along.exposed_s, along.bytes_sent_per_rank, along.messages}) {
      expect_sound(part, text);
    }
    EXPECT_LE(along.exposed_s, along.total_s * (1 + 1e-9) + 1e-12) << text;
  }
  for (const RankMemoryResult& rank : answer.result.memory.per_pipeline_rank) {
    for (const double part : {rank.weights_gib, rank.gradients_gib, rank.optimizer_gib, rank.activations_gib,
                              rank.weight_versions_gib, rank.workspace_gib, rank.total_gib}) {
      expect_sound(part, text);
    }
  }
}

double distinct_parameters(const std::vector<Operator>& operators, int tp) {
  double sum = 0.0;
  for (const Operator& op : operators) sum += op.parameters * tp / op.parameter_copies;
  return sum;
}

// Work and weights over all ranks are the model's, and each copy beyond the first is named.
void check_totals(const Forecast& answer, const std::string& text) {
  const Job& job = answer.step.job;
  Job alone = job;
  alone.layout = Layout();
  alone.layout.global_batch_size = job.layout.global_batch_size;
  EXPECT_NEAR(model_flops_per_step(job) / model_flops_per_step(alone), 1.0, 1e-9) << text;

  const int tp = job.layout.tp;
  const double blocks =
      distinct_parameters(block_operators(job.model, job.layout, job.training, BlockKind::kDense), tp);
  const double embedding = distinct_parameters(embedding_operators(job.model, job.layout, job.training), tp);
  const std::vector<Operator> head = head_operators(job.model, job.layout, job.training);
  // The tied table counts with the embedding; the last stage's copy is named replication.
  const double table = job.model.tied_embeddings ? static_cast<double>(job.model.vocab) * job.model.hidden : 0.0;
  const double sum = blocks * job.model.layers + embedding + distinct_parameters(head, tp) - table;
  EXPECT_NEAR(sum / static_cast<double>(count_parameters(job.model).total), 1.0, 1e-9) << text;

  double flops = 0.0;
  for (const StageCosts& stage : answer.step.costs.stages) flops += stage.model_flops.value();
  // Each copy of a bidirectional schedule takes its share of the microbatches.
  const double ranks = static_cast<double>(tp) * job.layout.cp * job.layout.dp / answer.step.stages.copies();
  EXPECT_NEAR(flops * job.layout.microbatches() * ranks / model_flops_per_step(job).value(), 1.0, 1e-9) << text;

  for (const FlushCosts& rank : answer.step.costs.ranks) {
    const ModelStates states = model_states(job.layout, job.training, rank.parameters);
    const double weights = element_size(job.training.precision).value() * rank.parameters;
    EXPECT_NEAR(states.weights.value() * job.layout.weight_shards() / weights, 1.0, 1e-12) << text;
    const double gradients = job.training.stack.gradient_bytes * rank.parameters;
    EXPECT_NEAR(states.gradients.value() * job.layout.gradient_shards() / gradients, 1.0, 1e-12) << text;
  }
}

TEST(LayoutProperties, NothingIsLostNegativeOrNotANumber) {
  constexpr int kWanted = 400;
  constexpr int kMostDraws = 20'000;
  int simulated = 0;
  int asynchronous = 0;
  int refused = 0;
  for (unsigned seed = 0; simulated < kWanted && seed < kMostDraws; ++seed) {
    Draw draw(seed);
    const std::string text = random_job(draw);
    Forecast answer;
    try {
      answer = forecast(job_from(text), no_files);
    } catch (const ConfigError& error) {
      EXPECT_FALSE(error.diagnostic().field.empty()) << text;
      ++refused;
      continue;
    }
    ++simulated;
    if (answer.step.program.asynchronous) ++asynchronous;
    check_result(answer, text);
    check_totals(answer, text);
    if (testing::Test::HasFailure()) break;
  }
  std::cout << simulated << " layouts over all forms checked, " << asynchronous << " of them asynchronous; " << refused
            << " refused with a reason\n";
  EXPECT_GT(asynchronous, 0);
  EXPECT_EQ(simulated, kWanted);
}

}  // namespace
}  // namespace flopcast
