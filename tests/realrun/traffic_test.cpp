// Bytes that ranks actually send, compared with the model's prediction for the same job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/realrun/step_volumes.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

// In 32-bit floats, with sizes divisible by all degrees used here.
PreparedStep small_job(const std::string& layout, bool tied, const std::string& form = {}) {
  return prepare(job_from(fmt::format(R"({{"model": {{"layers": 8, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24,
                                           "sequence_length": 8, "tied_embeddings": {}{}}},
                             "cluster": {{"name": "dgx-a100-80g", "nodes": 1}}, "layout": {{{}}},
                             "training": {{"precision": "fp32", "stack": "pytorch-ddp"}}}})",
                                      tied, form, layout)),
                 no_files);
}

using Volumes = std::map<std::pair<CollectiveKind, Axis>, double>;  // bytes sent by a rank in a step

// Tensor-parallel ranks: a block has two pairs of linears, each with one all-reduce forward and one backward (Shoeybi
// et al. 1909.08053 §3), or with sequence parallelism all-gather and reduce-scatter in each direction and another
// all-gather for the weight gradient (Korthikanti et al. 2205.05198 §4.2.2). Embedding and head have one of each; the
// loss all-reduces three numbers per token.
void add_tensor_volumes(const PreparedStep& step, const StageCosts& stage, double microbatches, Volumes& volumes) {
  const Layout& layout = step.job.layout;
  const double share = (layout.tp - 1.0) / layout.tp;
  const double rows = static_cast<double>(layout.micro_batch_size) * step.job.training.sequence_length;
  const double activation = microbatches * rows * step.job.model.hidden * kFloatBytes * share;
  const double ends = (stage.has_embedding ? 1.0 : 0.0) + (stage.has_head ? 1.0 : 0.0);
  // Recomputation repeats both forward collectives of a block, or that of its MLP.
  double again = 2.0 * layout.recomputed(stage.layers);
  if (layout.recompute_modules && (*layout.recompute_modules & bit_of(RecomputeModule::kMlp)).any()) {
    again += stage.layers;
  }
  const double parted = layout.partition_checkpoints ? layout.recomputed(stage.layers) : 0.0;
  if (layout.sequence_parallel) {
    volumes[{CollectiveKind::kAllGather, Axis::kTensor}] += (6.0 * stage.layers + again + ends) * activation;
    volumes[{CollectiveKind::kReduceScatter, Axis::kTensor}] += (4.0 * stage.layers + again + ends) * activation;
  } else {
    volumes[{CollectiveKind::kAllReduce, Axis::kTensor}] += 2.0 * (4.0 * stage.layers + again + ends) * activation;
    volumes[{CollectiveKind::kAllGather, Axis::kTensor}] += parted * activation;
  }
  if (stage.has_head) {
    volumes[{CollectiveKind::kAllReduce, Axis::kTensor}] += microbatches * 3.0 * 2.0 * rows * kFloatBytes * share;
  }
}

// FSDP gathers and scatters like ZeRO 3; HSDP does so among its shards, and all-reduces the sums over the copies
// (2304.11277 §3.2.2).
void add_sharded_volumes(const Layout& layout, double parameters, double rows, Volumes& volumes) {
  const double shards = layout.weight_shards();
  const double copies = layout.dp / shards;
  const double bytes = parameters * kFloatBytes * rows;
  volumes[{CollectiveKind::kAllGather, Axis::kData}] +=
      (layout.reshard_after_forward ? 2.0 : 1.0) * bytes * (shards - 1.0) / shards;
  volumes[{CollectiveKind::kReduceScatter, Axis::kData}] += bytes * (shards - 1.0) / shards;
  volumes[{CollectiveKind::kAllReduce, Axis::kData}] += 2.0 * bytes / shards * (copies - 1.0) / copies;
}

// Replicas (Rajbhandari et al. 1910.02054 §7).
void add_data_volumes(const PreparedStep& step, double parameters, double rows, Volumes& volumes) {
  const Layout& layout = step.job.layout;
  if (layout.data_parallel != DataParallel::kDdp && layout.weight_shards() > 1) {
    return add_sharded_volumes(layout, parameters, rows, volumes);
  }
  const double bytes = parameters * kFloatBytes * (layout.dp - 1.0) / layout.dp;
  const double updates = updates_of(step);
  double& gathered = volumes[{CollectiveKind::kAllGather, Axis::kData}];
  double& scattered = volumes[{CollectiveKind::kReduceScatter, Axis::kData}];
  if (layout.zero == 0) volumes[{CollectiveKind::kAllReduce, Axis::kData}] += 2.0 * bytes * updates;
  if (layout.zero == 1) scattered += bytes * updates;
  if (layout.zero > 1) scattered += bytes * rows;
  if (layout.zero == 1 || layout.zero == 2) gathered += bytes * updates;
  if (layout.zero == 3) gathered += 2.0 * bytes * rows;
}

double table_bytes(const PreparedStep& step) {
  return static_cast<double>(step.job.model.vocab) * step.job.model.hidden / step.job.layout.tp * kFloatBytes;
}

// Number of the rank's stages that hold a table, if it is tied.
int tables_of(const PreparedStep& step, int pipeline_rank) {
  int tables = 0;
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    const StageCosts& costs = step.costs.stages[static_cast<std::size_t>(stage)];
    if (step.program.rank_of_stage[static_cast<std::size_t>(stage)] != pipeline_rank) continue;
    tables += (costs.has_embedding ? 1 : 0) + (costs.has_head ? 1 : 0);
  }
  return step.job.model.tied_embeddings ? tables : 0;
}

bool table_is_on_one_rank(const PreparedStep& step) {
  return step.stages.copies() == 1 && step.program.rank_of_stage.front() == step.program.rank_of_stage.back();
}

// Bytes that each pipeline rank sends in a step, including its sums over copies of the same parameters.
Volumes expected_volumes(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  Volumes volumes;
  double copied = 0;  // bytes of parameters that another rank also holds
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    if (step.program.rank_of_stage[index] != pipeline_rank) continue;
    const StagePasses passes = passes_of(step, stage);
    add_tensor_volumes(step, step.costs.stages[index], passes.microbatches, volumes);
    add_data_volumes(step, step.costs.stages[index].parameters, passes.rows, volumes);
    if (step.stages.copies() > 1) copied += step.costs.stages[index].parameters * kFloatBytes;
  }
  const bool shares_table = tables_of(step, pipeline_rank) > 0 && !table_is_on_one_rank(step);
  if (step.stages.copies() == 1 && shares_table) copied += table_bytes(step);
  if (copied > 0) {
    volumes[{CollectiveKind::kAllReduce, Axis::kData}] += copied / layout.optimizer_shards();
  }
  return volumes;
}

// Bytes that the model predicts but the run does not send: the gradient norm; and under ZeRO 1 all but one replica's
// share of the tied table, which Megatron's ends of the pipeline sum as a whole.
double spared_bytes(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  const double norm_ranks = layout.tp * layout.pp * layout.gradient_shards();
  const double norm = 2.0 * (norm_ranks - 1) / norm_ranks * kFloatBytes * updates_of(step);
  const bool sums_table =
      tables_of(step, pipeline_rank) > 0 && step.stages.copies() == 1 && !table_is_on_one_rank(step);
  if (!sums_table) return norm;
  return norm + table_bytes(step) * (1.0 / layout.gradient_shards() - 1.0 / layout.optimizer_shards());
}

// A rank with the first and the last stage keeps two copies of a tied table; the model counts one.
void add_second_table(const PreparedStep& step, int pipeline_rank, Volumes& volumes) {
  if (tables_of(step, pipeline_rank) < 2) return;
  add_data_volumes(step, table_bytes(step) / kFloatBytes, passes_of(step, 0).rows, volumes);
}

// The volumes above, summed by axis, must equal those of the model.
void expect_the_models_sums(const PreparedStep& step, int pipeline_rank, const Volumes& volumes,
                            const std::string& what) {
  double tensor = 0;
  double data = step.costs.ranks[static_cast<std::size_t>(pipeline_rank)].dp.sent_per_rank.value() * updates_of(step) -
                spared_bytes(step, pipeline_rank);
  for (int stage = 0; stage < step.stages.stages(); ++stage) {
    const auto index = static_cast<std::size_t>(stage);
    if (step.program.rank_of_stage[index] != pipeline_rank) continue;
    const double microbatches = passes_of(step, stage).microbatches;
    tensor += microbatches * step.costs.stages[index].sent.tp.sent_per_rank.value();
    data += microbatches * step.costs.stages[index].sent.dp.sent_per_rank.value();
  }
  double expected_tensor = 0;
  double expected_data = 0;
  for (const auto& [key, bytes] : volumes) (key.second == Axis::kTensor ? expected_tensor : expected_data) += bytes;
  EXPECT_NEAR(expected_tensor, tensor, 1e-6) << what;
  EXPECT_NEAR(expected_data, data, 1e-6) << what;
}

// Compares what every rank sent, by collective and axis; returns the number of figures.
int compare(const std::string& layout, bool tied, const std::string& form = {}) {
  const PreparedStep step = small_job(layout, tied, form);
  const std::vector<RankResult> ranks = train_on_threads(plan_from_job(step, {.steps = 1}), {});
  int compared = 0;
  for (const RankResult& rank : ranks) {
    const std::string what = fmt::format("{}{}, rank {}", layout, tied ? " tied" : "", rank.rank);
    Volumes expected = expected_volumes(step, rank.pipeline_rank);
    expect_the_models_sums(step, rank.pipeline_rank, expected, what);
    add_second_table(step, rank.pipeline_rank, expected);
    expected[{CollectiveKind::kAllReduce, Axis::kTensor}] += partial_bytes(step, rank);
    const SentTraffic& traffic = rank.steps.front().traffic;
    for (const auto& [key, bytes] : expected) {
      // An all-reduce splits its data into nearly equal parts: members may send an element more or less per message.
      EXPECT_NEAR(static_cast<double>(traffic.of(key.first, key.second).bytes), bytes, 1e-6)
          << what << ", " << name_of(key.first) << " along axis " << name_of(key.second);
      compared += bytes > 0 ? 1 : 0;
    }
    for (const auto& [key, count] : traffic.collectives) {
      EXPECT_TRUE(count.bytes == 0 || expected.count(key) == 1) << what << ", unexpected " << name_of(key.first);
    }
    EXPECT_NEAR(static_cast<double>(traffic.point_to_point.bytes), predicted_point_to_point(step, rank.pipeline_rank),
                1e-6)
        << what;
    ++compared;
  }
  return compared;
}

struct Degrees {
  int pp = 1;
  int tp = 1;
  bool sequence_parallel = false;
};

std::string layout_text(const std::string& schedule, const Degrees& degrees, int zero) {
  return fmt::format(R"("schedule": "{}", "pp": {}, "tp": {}, "sequence_parallel": {}, "zero": {},
                        "micro_batch_size": 1, "global_batch_size": 16)",
                     schedule, degrees.pp, degrees.tp, degrees.sequence_parallel, zero);
}

int compare_schedule(const std::string& schedule, bool asynchronous, const std::vector<Degrees>& layouts) {
  int compared = 0;
  for (const Degrees& degrees : layouts) {
    for (const int zero : {0, 1, 2, 3}) {
      if (asynchronous && zero > 1) continue;
      for (const bool tied : {false, true}) {
        if (tied && (asynchronous || zero == 2)) continue;
        compared += compare(layout_text(schedule, degrees, zero), tied);
      }
    }
  }
  return compared;
}

class TrafficOfSchedule : public testing::TestWithParam<ScheduleInfo> {};

TEST_P(TrafficOfSchedule, IsTheModels) {
  const std::vector<Degrees> layouts = {{2, 1, false}, {4, 1, false}, {2, 2, true}};
  const int compared = compare_schedule(std::string(GetParam().name), GetParam().asynchronous, layouts);
  std::cout << compared << " volumes equal to the model's\n";
  EXPECT_GT(compared, 150);
}

INSTANTIATE_TEST_SUITE_P(Catalogue, TrafficOfSchedule, testing::ValuesIn(schedule_catalogue()), [](const auto& tested) {
  std::string name(tested.param.name);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Traffic, OfFurtherLayouts) {
  const std::vector<Degrees> layouts = {{1, 1, false}, {1, 2, false}, {1, 4, true}, {1, 4, false},
                                        {2, 2, false}, {2, 4, false}, {2, 4, true}, {8, 1, false}};
  int compared = 0;
  for (const char* schedule : {"gpipe", "1f1b"}) compared += compare_schedule(schedule, false, layouts);
  std::cout << compared << " volumes equal to the model's\n";
  EXPECT_GT(compared, 2000);
}

TEST(Traffic, OfRecomputation) {
  int compared = 0;
  for (const char* again : {R"("recompute": "full")", R"("recompute": "full", "recompute_layers": 1)",
                            R"("recompute": "full", "recompute_every": 3)", R"("recompute": "selective")",
                            R"("recompute": "selective", "recompute_modules": ["mlp", "layernorm"])"}) {
    for (const Degrees& degrees : std::vector<Degrees>{{2, 2, false}, {2, 4, true}, {4, 1, false}}) {
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
        for (const int zero : {0, 3}) {
          compared += compare(fmt::format("{}, {}", layout_text(schedule, degrees, zero), again), false);
        }
      }
    }
  }
  compared +=
      compare(layout_text("1f1b", {2, 2, false}, 1) + R"(, "recompute": "full", "partition_checkpoints": true)", true);
  std::cout << compared << " volumes equal to the model's\n";
  EXPECT_GT(compared, 900);
}

TEST(Traffic, OfShardedReplicas) {
  int compared = 0;
  for (const char* form : {R"("data_parallel": "fsdp")", R"("data_parallel": "fsdp", "reshard_after_forward": false)",
                           R"("data_parallel": "hsdp", "shards": 2)", R"("data_parallel": "hsdp", "shards": 1)",
                           R"("data_parallel": "hsdp", "shards": 2, "reshard_after_forward": false)"}) {
    for (const Degrees& degrees : std::vector<Degrees>{{1, 1, false}, {2, 1, false}, {1, 2, true}, {2, 2, false}}) {
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "dualpipev"}) {
        for (const bool tied : {false, true}) {
          const bool pairs = std::string(schedule) == "dualpipev";
          if (pairs && (degrees.pp == 1 || tied)) continue;
          compared += compare(fmt::format(R"({}, "schedule": "{}", "pp": {}, "tp": {}, "sequence_parallel": {},
                                             "micro_batch_size": 1, "global_batch_size": 16)",
                                          form, schedule, degrees.pp, degrees.tp, degrees.sequence_parallel),
                              tied);
        }
      }
    }
  }
  std::cout << compared << " volumes equal to the model's\n";
  EXPECT_GT(compared, 2000);
}

TEST(Traffic, OfOtherNetworksIsTheModels) {
  int compared = 0;
  for (const char* form :
       {R"(, "gated_mlp": true, "biases": false, "norm": "rmsnorm", "positions": "rotary", "kv_heads": 2)",
        R"(, "gated_mlp": true, "biases": false, "attention_bias": true, "norm": "rmsnorm", "positions": "rotary",
             "kv_heads": 2, "head_dim": 8, "qk_norm": true, "post_norms": true)",
        R"(, "positions": "alibi", "embedding_norm": true, "block": "parallel_one_norm", "biases": false)"}) {
    for (const Degrees& degrees : {Degrees{1, 2, false}, Degrees{2, 1, false}, Degrees{2, 2, true}}) {
      for (const int zero : {0, 1, 3}) {
        for (const bool tied : {false, true}) compared += compare(layout_text("1f1b", degrees, zero), tied, form);
      }
    }
  }
  std::cout << compared << " volumes equal to the model's\n";
  EXPECT_GT(compared, 1000);
}

TEST(PlanFromJob, TrainsAsManyParametersAsTheModelCounts) {
  for (const char* form :
       {"", R"(, "gated_mlp": true, "biases": false, "norm": "rmsnorm", "positions": "rotary", "kv_heads": 2)",
        R"(, "attention_bias": true, "biases": false, "kv_heads": 1, "head_dim": 10, "qk_norm": true)",
        R"(, "qk_norm": true, "whole_qk_norm": true, "norm": "rmsnorm", "post_norms": true, "kv_heads": 2)",
        R"(, "embedding_norm": true, "positions": "none", "block": "parallel")"}) {
    const PreparedStep step = small_job(R"("pp": 8, "global_batch_size": 2)", false, form);
    std::size_t trained = 0;
    for (const RankResult& rank : train_on_threads(plan_from_job(step, {.steps = 1}), {})) {
      for (const TrainedParameter& part : rank.weights) trained += part.values.size();
    }
    EXPECT_EQ(trained, static_cast<std::size_t>(count_parameters(step.job.model).total)) << form;
  }
}

TEST(PlanFromJob, RefusesWhatTheNetworkIsNot) {
  PreparedStep step = small_job(R"("pp": 2, "global_batch_size": 8)", false);
  const auto refused_field = [&step] {
    try {
      plan_from_job(step, {});
    } catch (const ConfigError& error) {
      return error.diagnostic().field;
    }
    return std::string();
  };
  const Transformer model = step.job.model;
  step.job.model.attention_sinks = true;
  EXPECT_EQ(refused_field(), "model.attention_sinks");
  step.job.model = model;
  step.job.model.mtp_layers = 1;
  EXPECT_EQ(refused_field(), "model.mtp_layers");
  step.job.model = model;
  step.job.model.positions = Positions::kRotary;
  step.job.model.head_dim = 5;
  EXPECT_EQ(refused_field(), "model.head_dim");
  step.job.model = model;
  step.job.model.qk_norm = step.job.model.whole_qk_norm = true;
  step.job.layout.tp = 2;
  EXPECT_EQ(refused_field(), "layout.tp");
  step.job.layout.tp = 1;
  step.job.model = model;
  step.job.layout.recompute = Recompute::kSelective;
  step.job.layout.recompute_modules = bit_of(RecomputeModule::kMoe);
  EXPECT_EQ(refused_field(), "layout.recompute_modules");
  step.job.layout.recompute_modules = bit_of(RecomputeModule::kMlp);
  EXPECT_EQ(refused_field(), "");
  // Servers with experts that every rank holds completely.
  for (const char* servers : {"ps", "byteps"}) {
    for (const char* rest : {"", R"(, "tp": 2, "sequence_parallel": true)", R"(, "ep": 2)"}) {
      const std::string layout = fmt::format(R"("global_batch_size": 16, "data_parallel": "{}"{})", servers, rest);
      step = small_job(layout, false, R"(, "experts": {"count": 4, "top_k": 2, "ffn": 8})");
      EXPECT_EQ(refused_field(), "layout.data_parallel") << layout;
    }
    step = small_job(fmt::format(R"("global_batch_size": 16, "data_parallel": "{}")", servers), false);
    EXPECT_EQ(refused_field(), "") << servers;
  }
}

}  // namespace
}  // namespace flopcast::realrun
