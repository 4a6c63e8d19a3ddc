// Bytes of compressed gradients that ranks actually send, compared with the model's prediction for the same job.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

// The model's figure for a pipeline rank: its flush, including the sum of a tied table, without the gradient norm,
// which the run does not compute.
double predicted(const PreparedStep& step, int pipeline_rank) {
  const Layout& layout = step.job.layout;
  const double norm_ranks = layout.tp * layout.pp;
  return step.costs.ranks[static_cast<std::size_t>(pipeline_rank)].dp.sent_per_rank.value() -
         2.0 * (norm_ranks - 1) / norm_ranks * 4.0;
}

// Gradient bytes that each rank sent beyond the model's prediction.
std::vector<double> surplus(const PreparedStep& step) {
  std::vector<double> surplus;
  for (const RankResult& rank : train_on_threads(plan_from_job(step, {.steps = 1}), {})) {
    const SentTraffic& traffic = rank.steps.front().traffic;
    const auto sent = static_cast<double>(traffic.bytes_of(Axis::kData) + traffic.bytes_of(Axis::kPipeline) -
                                          traffic.point_to_point.bytes);
    surplus.push_back(sent - predicted(step, rank.pipeline_rank));
  }
  return surplus;
}

// The parameters of these stages split into whole blocks of 512: the model, which ignores remainders, is exact.
TEST(CompressedTraffic, IsWhatTheModelPredicts) {
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

// Two all-reduces of factors; the members' parts differ by an element if the size is not divisible.
TEST(CompressedTraffic, OfPowerSgdIsWhatTheModelPredicts) {
  int compared = 0;
  for (const int rank : {1, 2, 4, 16}) {
    for (const bool tied : {false, true}) {
      for (const char* degrees : {R"("pp": 2)", R"("pp": 4, "vpp": 2, "schedule": "interleaved")",
                                  R"("pp": 2, "tp": 2)", R"("pp": 1, "tp": 2)"}) {
        const bool one_rank = std::string(degrees).find(R"("pp": 1)") != std::string::npos;
        if (tied && one_rank) continue;  // keeps two copies of the table; the model counts one
        const PreparedStep step =
            prepare(job_from(fmt::format(R"({{"model": {{"layers": 8, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24,
                                                 "sequence_length": 8, "tied_embeddings": {}}},
                                      "cluster": {{"name": "dgx-a100-80g", "nodes": 1}},
                                      "layout": {{{}, "compression": "powersgd:{}", "global_batch_size": 16}},
                                      "training": {{"precision": "fp32", "stack": "pytorch-ddp"}}}})",
                                         tied, degrees, rank)),
                    no_files);
        for (const double beyond : surplus(step)) {
          EXPECT_NEAR(beyond, 0.0, 1e-6) << "rank " << rank << ", " << degrees << (tied ? ", tied" : "");
          ++compared;
        }
      }
    }
  }
  EXPECT_EQ(compared, 4 * 7 * 8);
}

// Otherwise every separately compressed portion (one for each bucket, tied table, and kind of tensor-parallel
// parameter) may end in a partial block, or in a partial element that is sent whole.
TEST(CompressedTraffic, IsAboveTheModelByTheRemaindersOnly) {
  for (const char* form : {"8bit", "4bit", "topk:0.01"}) {
    for (const bool tied : {false, true}) {
      for (const char* degrees : {R"("pp": 2)", R"("pp": 4, "vpp": 2, "schedule": "interleaved")",
                                  R"("pp": 2, "tp": 2)", R"("pp": 1, "tp": 2, "sequence_parallel": true)"}) {
        const bool one_rank = std::string(degrees).find(R"("pp": 1)") != std::string::npos;
        if (tied && one_rank) continue;  // keeps two copies of the table; the model counts one
        const std::string job = fmt::format(
            R"({{"model": {{"layers": 8, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24, "sequence_length": 8,
                            "tied_embeddings": {}}},
                 "cluster": {{"name": "dgx-a100-80g", "nodes": 1}},
                 "layout": {{{}, "compression": "{}", "global_batch_size": 16}},
                 "training": {{"precision": "fp32", "stack": "pytorch-ddp"}}}})",
            tied, degrees, form);
        const PreparedStep step = prepare(job_from(job), no_files);
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

}  // namespace
}  // namespace flopcast::realrun
