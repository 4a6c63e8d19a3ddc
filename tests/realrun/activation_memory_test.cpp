// Activation memory that ranks actually keep for the backward passes, compared with the forecast of `flopcast run`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "calibrate/verdict/verdict.hpp"
#include "realrun/launch/plan_from_job.hpp"
#include "realrun/training/train.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast::realrun {
namespace {

Job small_job(const std::string& layout) {
  return job_from(fmt::format(R"({{"model": {{"layers": 8, "hidden": 32, "heads": 4, "ffn": 128, "vocab": 64,
                                    "sequence_length": 16, "tied_embeddings": false}},
                      "cluster": {{"name": "dgx-a100-80g", "nodes": 1}},
                      "layout": {{"global_batch_size": 16, "schedule": {}}},
                      "training": {{"precision": "fp32"}}}})",
                              layout));
}

// Norms also keep one float per row, 1/32 of a tensor, which the forecast omits.
void expect_peaks(const std::string& layout, double tolerance) {
  SCOPED_TRACE(layout);
  const Forecast job = forecast(job_as_run(small_job(layout), false), no_files);
  const MemoryResult memory = memory_as_run(job);
  RunSettings settings;
  settings.steps = job.step.program.asynchronous ? 3 : 1;
  const std::vector<RankResult> ranks = train_on_threads(plan_from_job(job.step, settings), {});
  for (const RankResult& rank : ranks) {
    const auto place = static_cast<std::size_t>(rank.pipeline_rank);
    const double forecast_bytes = memory.per_pipeline_rank[place].activations_gib * 1024 * 1024 * 1024;
    const auto measured = static_cast<double>(rank.peak_activation_bytes);
    EXPECT_NEAR(forecast_bytes / measured, 1.0, tolerance) << "rank " << rank.rank;
  }
}

TEST(ActivationMemory, IsAsForecast) {
  constexpr double kNormRows = 0.01;
  for (const char* schedule :
       {"naive", "gpipe", "1f1b", "interleaved:2", "zb-h1", "zb-h2", "zbv", "chimera", "dualpipev"}) {
    for (const char* tensor : {"", R"(, "tp": 2)"}) {
      expect_peaks(fmt::format(R"("{}", "pp": 2{})", schedule, tensor), kNormRows);
    }
  }
  for (const char* schedule : {"pipedream", "pipedream-2bw"}) {
    expect_peaks(fmt::format(R"("{}", "pp": 4)", schedule), kNormRows);
  }
  expect_peaks(R"("1f1b", "pp": 4, "micro_batch_size": 2, "stage_layers": [1, 4, 2, 1])", kNormRows);
  expect_peaks(R"("gpipe")", kNormRows);
}

// Recomputed blocks keep what the model says, and release recomputed tensors with the weight gradient.
TEST(ActivationMemory, OfRecomputationIsAsForecast) {
  constexpr double kNormRows = 0.02;
  for (const char* again : {R"("recompute": "full")", R"("recompute": "full", "recompute_layers": 1)",
                            R"("recompute": "full", "recompute_every": 2)", R"("recompute": "selective")",
                            R"("recompute": "selective", "recompute_modules": ["layernorm"])",
                            R"("recompute": "selective", "recompute_modules": ["mlp"])",
                            R"("recompute": "selective", "recompute_modules": ["core_attn", "layernorm", "mlp"])"}) {
    for (const char* schedule : {"gpipe", "1f1b", "interleaved:2", "zb-h1", "zbv", "dualpipev"}) {
      for (const char* tensor : {"", R"(, "tp": 2)"}) {
        expect_peaks(fmt::format(R"("{}", "pp": 2, {}{})", schedule, again, tensor), kNormRows);
      }
    }
  }
  expect_peaks(R"("1f1b", "pp": 2, "tp": 2, "recompute": "full", "partition_checkpoints": true)", kNormRows);
}

// Activations move to the host and back once per microbatch; gradients move there and weights back once per step.
TEST(ActivationMemory, IsNoneWhereItIsOffloadedAndWhatMovesIsWhatIsKept) {
  for (const char* degrees : {R"("pp": 2)", R"("pp": 2, "tp": 2)", R"("pp": 2, "zero": 1)",
                              R"("pp": 2, "recompute": "full")", R"("pp": 2, "data_parallel": "fsdp")"}) {
    const Forecast kept = forecast(job_as_run(small_job(fmt::format(R"("1f1b", {})", degrees)), false), no_files);
    for (const char* offload : {"activations", "optimizer", "all"}) {
      const std::string layout = fmt::format(R"("1f1b", {}, "offload": "{}")", degrees, offload);
      SCOPED_TRACE(layout);
      const Forecast job = forecast(job_as_run(small_job(layout), false), no_files);
      const Layout& parts = job.step.job.layout;
      RunSettings settings;
      settings.steps = 1;
      for (const RankResult& rank : train_on_threads(plan_from_job(job.step, settings), {})) {
        const auto place = static_cast<std::size_t>(rank.pipeline_rank);
        double moved = 0;
        if (parts.offloads_activations()) {
          EXPECT_EQ(memory_as_run(job).per_pipeline_rank[place].activations_gib, 0.0);
          EXPECT_EQ(rank.peak_activation_bytes, 0U);
          moved += 2.0 * parts.microbatches() * kept.step.costs.stages[place].activation.value();
        } else {
          EXPECT_GT(rank.peak_activation_bytes, 0U);
        }
        if (parts.offloads_optimizer()) {
          moved += 2.0 * 4.0 * job.step.costs.stages[place].parameters / parts.optimizer_shards();
        }
        EXPECT_NEAR(static_cast<double>(rank.steps.front().host_bytes) / moved, 1.0, 0.02);
      }
    }
  }
}

// The head gathers its rows and keeps them gathered.
TEST(ActivationMemory, IsNearlyAsForecastWithSequenceParallelism) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    expect_peaks(fmt::format(R"("{}", "pp": 2, "tp": 2, "sequence_parallel": true)", schedule), 0.03);
  }
  expect_peaks(R"("1f1b", "pp": 2, "tp": 2, "sequence_parallel": true, "recompute": "full")", 0.13);
}

// Slices attend to earlier ones: the forecast assumes that all of them attend to as many as the last.
TEST(ActivationMemory, OfSlicesIsAtMostAsForecast) {
  expect_peaks(R"("terapipe", "pp": 2, "slices": 2)", 0.06);
}

}  // namespace
}  // namespace flopcast::realrun
