// Bytes that ranks really send against those that the model predicts for the same job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "model/error/error.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

std::string no_files(const std::string& path) {
  throw EnvironmentError("unexpected read of " + path);
}

// In 32-bit floats, with sizes that all degrees used here divide.
PreparedStep small_job(const std::string& layout, bool tied, const char* stack = "pytorch-ddp") {
  return prepare(job_from(fmt::format(R"({{"model": {{"layers": 8, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24,
                                           "sequence_length": 8, "tied_embeddings": {}}},
                             "cluster": {{"name": "dgx-a100-80g", "nodes": 1}}, "layout": {{{}}},
                             "training": {{"precision": "fp32", "stack": "{}"}}}})",
                                      tied, layout, stack)),
                 no_files);
}

// What a rank of the 8 sends along each axis.
struct Bytes3 {
  double tensor = 0;
  double pipeline = 0;
  double data = 0;
};

// The model's figures for a rank in a step. It counts the sum of the tied table to the data axis, and a norm of the
// gradients that the run does not take.
Bytes3 predicted(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  const double microbatches = layout.microbatches();
  Bytes3 bytes;
  for (std::size_t stage = 0; stage < step.costs.stages.size(); ++stage) {
    const bool here = step.program.rank_of_stage[stage] == pipeline_rank;
    if (here) {
      bytes.tensor += microbatches * step.costs.stages[stage].tp.sent_per_rank.value();
      bytes.data += microbatches * step.costs.stages[stage].dp.sent_per_rank.value();
    }
    if (stage + 1 == step.costs.stages.size()) continue;
    const double boundary = microbatches * step.costs.boundaries[stage].bytes.value();
    if (here) bytes.pipeline += boundary;  // activations on, and gradients back from the stage behind
    if (step.program.rank_of_stage[stage + 1] == pipeline_rank) bytes.pipeline += boundary;
  }
  bytes.data += step.costs.ranks[static_cast<std::size_t>(pipeline_rank)].dp.sent_per_rank.value();
  const double norm_ranks = layout.tp * layout.pp * layout.gradient_shards();
  bytes.data -= 2.0 * (norm_ranks - 1) / norm_ranks * 4.0;
  return bytes;
}

// What the model leaves out: with sequence parallelism each rank sees a part of the gradients of norms, of the row
// linears' biases and of the positions; they are added up once a step.
double partial_bytes(const PreparedStep& step, const RankResult& rank) {
  double elements = 0;
  for (const TrainedParameter& part : rank.weights) {
    if (part.parameter.partial) elements += static_cast<double>(part.parameter.shard.count());
  }
  const double tp = step.job.layout.tp;
  const double times = step.job.layout.gradient_shards() > 1 ? step.job.layout.microbatches() : 1.0;
  return elements * 4.0 * 2.0 * (tp - 1) / tp * times;
}

// Under ZeRO 1 the model lets the ends of the pipeline add up the whole tied table, as Megatron does; the run adds up
// only the share that each replica updates.
double spared_table_bytes(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  const bool at_an_end = pipeline_rank == 0 || pipeline_rank == layout.pp - 1;
  if (!step.job.model.tied_embeddings || !at_an_end || layout.zero != 1) return 0;
  const double table = static_cast<double>(step.job.model.vocab) * step.job.model.hidden / layout.tp * 4.0;
  return table * (1.0 - 1.0 / layout.dp);
}

int compare(const std::string& layout, bool tied) {
  const PreparedStep step = small_job(layout, tied);
  const std::vector<RankResult> ranks = train_on_threads(plan_from_job(step, {.steps = 1}), {});
  int compared = 0;
  // All-reduce cuts its data into nearly equal parts: what members send differs by an element a message.
  for (const RankResult& rank : ranks) {
    const Traffic& traffic = rank.steps.front().traffic;
    const Bytes3 expected = predicted(step, rank.pipeline_rank);
    const std::string what = fmt::format("{}{}, rank {}", layout, tied ? " tied" : "", rank.rank);
    const auto data = static_cast<double>(traffic.bytes_of(Axis::kData) + traffic.bytes_of(Axis::kPipeline) -
                                          traffic.point_to_point.bytes);
    EXPECT_NEAR(static_cast<double>(traffic.bytes_of(Axis::kTensor)), expected.tensor + partial_bytes(step, rank),
                1e-9 * expected.tensor)
        << what;
    EXPECT_NEAR(static_cast<double>(traffic.point_to_point.bytes), expected.pipeline, 1e-9) << what;
    EXPECT_NEAR(data, expected.data - spared_table_bytes(step, rank.pipeline_rank), 1e-6) << what;
    ++compared;
  }
  return compared;
}

TEST(Traffic, IsWhatTheModelPredicts) {
  int compared = 0;
  const std::string batch = R"("micro_batch_size": 1, "global_batch_size": 16)";
  for (const bool tied : {false, true}) {
    for (const char* degrees :
         {R"("pp": 1)", R"("pp": 2)", R"("pp": 4)", R"("pp": 8)", R"("pp": 2, "vpp": 2, "schedule": "interleaved")",
          R"("pp": 1, "tp": 2)", R"("pp": 2, "tp": 2)", R"("pp": 2, "tp": 4)"}) {
      for (const char* form : {R"("zero": 0)", R"("zero": 1)", R"("zero": 2)", R"("zero": 3)"}) {
        for (const bool sequence_parallel : {false, true}) {
          const bool has_tensor_ranks = std::string(degrees).find("tp") != std::string::npos;
          if (sequence_parallel && !has_tensor_ranks) continue;
          // A rank with the first and the last stage keeps two copies of the table; the model counts one.
          if (tied && std::string(degrees).find(R"("pp": 1)") != std::string::npos) continue;
          const std::string layout =
              fmt::format(R"({}, {}, {}, "sequence_parallel": {})", degrees, form, batch, sequence_parallel);
          compared += compare(layout, tied);
        }
      }
    }
  }
  std::cout << compared << " ranks compared in bytes per axis\n";
  EXPECT_GT(compared, 100);
}

// Bytes of gradients that each rank sent beyond what the model predicts.
std::vector<double> surplus(const PreparedStep& step) {
  std::vector<double> surplus;
  for (const RankResult& rank : train_on_threads(plan_from_job(step, {.steps = 1}), {})) {
    const Traffic& traffic = rank.steps.front().traffic;
    const auto sent = static_cast<double>(traffic.bytes_of(Axis::kData) + traffic.bytes_of(Axis::kPipeline) -
                                          traffic.point_to_point.bytes);
    surplus.push_back(sent - predicted(step, rank.pipeline_rank).data);
  }
  return surplus;
}

// Stages whose parameters are cut into parts of whole blocks of 512: the model, which knows no remainders, is exact.
TEST(Traffic, OfCompressedGradientsIsWhatTheModelPredicts) {
  int compared = 0;
  for (const char* form : {"8bit", "4bit", "topk:0.01", "topk:0.3"}) {
    for (const auto& [shape, pipeline] : {std::pair{R"("vocab": 48, "sequence_length": 4)", 1},     // 26 · 8 · 512
                                          std::pair{R"("vocab": 17, "sequence_length": 2)", 2}}) {  // 25 · 4 · 512 each
      const std::string job = fmt::format(
          R"({{"model": {{"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "tied_embeddings": false, {}}},
               "cluster": {{"name": "dgx-a100-80g", "nodes": 1}},
               "layout": {{"pp": {}, "compression": "{}", "global_batch_size": 16}},
               "training": {{"precision": "fp32", "stack": "pytorch-ddp"}}}})",
          shape, pipeline, form);
      for (const double beyond : surplus(prepare(job_from(job), no_files))) {
        EXPECT_NEAR(beyond, 0.0, 1e-6) << form << ", " << shape;
        ++compared;
      }
    }
  }
  EXPECT_EQ(compared, 4 * 2 * 8);
}

// Elsewhere every portion that is compressed by itself (one for each bucket, tied table, and kind of tensor-parallel
// parameter) may end in a part of a block, or in a part of an element that is sent whole.
TEST(Traffic, OfCompressedGradientsIsAboveTheModelByTheRemaindersOnly) {
  for (const char* form : {"8bit", "4bit", "topk:0.01"}) {
    for (const bool tied : {false, true}) {
      for (const char* degrees : {R"("pp": 2)", R"("pp": 4, "vpp": 2, "schedule": "interleaved")",
                                  R"("pp": 2, "tp": 2)", R"("pp": 1, "tp": 2, "sequence_parallel": true)"}) {
        const bool one_rank = std::string(degrees).find(R"("pp": 1)") != std::string::npos;
        if (tied && one_rank) continue;  // keeps two copies of the table; the model counts one
        const PreparedStep step =
            small_job(fmt::format(R"({}, "compression": "{}", "global_batch_size": 16)", degrees, form), tied);
        const Layout& layout = step.job.layout;
        const double others = layout.dp - 1;
        const double portions = layout.vpp.value_or(1) * (tied ? 2 : 1) * layout.tp;
        const double remainder = std::string(form) == "topk:0.01" ? others * 8 : 2 * others * (4 + 1);
        for (const double beyond : surplus(step)) {
          EXPECT_GE(beyond, -1e-6) << form << ", " << degrees;
          EXPECT_LE(beyond, portions * remainder) << form << ", " << degrees;
        }
      }
    }
  }
}

TEST(PlanFromJob, RefusesWhatTheNetworkIsNot) {
  PreparedStep step = small_job(R"("pp": 2, "global_batch_size": 8)", false);
  step.job.model.gated_mlp = true;
  EXPECT_THROW(plan_from_job(step, {}), ConfigError);
  step.job.model.gated_mlp = false;
  step.job.layout.recompute = Recompute::kFull;
  EXPECT_THROW(plan_from_job(step, {}), ConfigError);
  step.job.layout.recompute = Recompute::kNone;
  EXPECT_NO_THROW(plan_from_job(step, {}));
}

}  // namespace
}  // namespace flopcast::realrun
