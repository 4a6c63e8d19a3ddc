#include "sim/forecast/forecast.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/text/error.hpp"
#include "sim/cells/cell.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Forecast forecast_of(const std::string& layout) {
  return forecast(job_from(gpt3_job(layout)), no_files);
}

double sum_of(const Breakdown& b) {
  return b.compute_s + b.recompute_s + b.tp_comm_s + b.pp_comm_s + b.dp_comm_s + b.cp_comm_s + b.ep_comm_s +
         b.optimizer_s + b.bubble_s;
}

const char* const kLayouts[] = {
    R"({"tp": 8, "pp": 8, "vpp": 3, "sequence_parallel": true, "schedule": "interleaved", "global_batch_size": 64, "recompute": "selective"})",
    R"({"tp": 8, "pp": 8, "global_batch_size": 64, "recompute": "full"})",
    R"({"tp": 4, "pp": 4, "schedule": "gpipe", "global_batch_size": 64})",
    R"({"tp": 2, "pp": 2, "global_batch_size": 64, "micro_batch_size": 2, "zero": 1})",
    R"({"tp": 8, "pp": 4, "schedule": "naive", "global_batch_size": 8})",
    R"({"tp": 8, "pp": 8, "schedule": "pipedream-2bw", "global_batch_size": 64})",
    R"({"tp": 8, "pp": 8, "schedule": "pipedream", "global_batch_size": 64})",
    R"({"tp": 8, "cp": 2, "pp": 4, "schedule": "eager-1f1b", "global_batch_size": 16})",
    R"({"tp": 8, "pp": 4, "schedule": "bfs:2", "global_batch_size": 16})",
    R"({"tp": 8, "global_batch_size": 64})",
};

TEST(Forecast, TheBreakdownSumsToTheStep) {
  for (const char* layout : kLayouts) {
    const Result result = forecast_of(layout).result;
    const Breakdown& breakdown = result.breakdown;
    EXPECT_NEAR(sum_of(breakdown) / result.iteration.time_s, 1.0, 1e-9) << layout;
    for (const double part : {breakdown.compute_s, breakdown.recompute_s, breakdown.tp_comm_s, breakdown.pp_comm_s,
                              breakdown.dp_comm_s, breakdown.cp_comm_s, breakdown.optimizer_s, breakdown.bubble_s}) {
      EXPECT_GE(part, 0.0) << layout;
      EXPECT_TRUE(std::isfinite(part)) << layout;
    }
    const BubbleResult& bubble = result.bubble;
    EXPECT_NEAR(bubble.warmup_s + bubble.cooldown_s + bubble.imbalance_s + bubble.dependency_s, breakdown.bubble_s,
                1e-9 * result.iteration.time_s);
    EXPECT_NEAR(bubble.fraction * result.iteration.time_s, breakdown.bubble_s, 1e-9 * result.iteration.time_s)
        << layout;
    const double mean_share = std::accumulate(bubble.per_pipeline_rank.begin(), bubble.per_pipeline_rank.end(), 0.0) /
                              static_cast<double>(bubble.per_pipeline_rank.size());
    EXPECT_NEAR(mean_share, bubble.fraction, 1e-9) << layout;
    EXPECT_GE(bubble.ratio, -1e-9) << layout;
    EXPECT_LE(result.communication.cp.exposed_s, result.communication.cp.total_s * (1 + 1e-9)) << layout;
    EXPECT_LE(result.communication.pp.exposed_s, result.communication.pp.total_s * (1 + 1e-9)) << layout;
    EXPECT_LE(result.communication.tp.exposed_s, result.communication.tp.total_s * (1 + 1e-9)) << layout;
    EXPECT_LE(result.communication.dp.exposed_s, result.communication.dp.total_s * (1 + 1e-9)) << layout;
  }
}

// Korthikanti et al. 2205.05198 Table 5: 13.75 s measured, MFU 51.4 %. (Its HFU of 52.8 % counts the
// recomputed attention three times over, eq. 8.)
TEST(Forecast, MeetsTheMeasured175BRun) {
  const Result result = forecast_of(kLayouts[0]).result;
  EXPECT_NEAR(result.iteration.time_s / 13.75, 1.0, 0.15);
  // MFU times time is a count of FLOPs, independent of the time.
  EXPECT_NEAR(result.iteration.mfu * result.iteration.time_s / (0.513882 * 13.75), 1.0, 1e-4);
  // Selective recomputation repeats the forward attention: 4bs²h per layer, of 72bsh²(1 + s/6h + V/12hL).
  const double model_share = 1 + 2048.0 / (6 * 12288) + 51'200 / (12.0 * 12288 * 96);
  EXPECT_NEAR(result.iteration.hfu / result.iteration.mfu, 1 + 2048.0 / (18 * 12288) / model_share, 1e-9);
}

TEST(Forecast, GpipeHoldsEveryMicrobatchAnd1f1bOnlyTheRanks) {
  const Forecast gpipe = forecast_of(R"({"tp": 8, "pp": 8, "schedule": "gpipe", "global_batch_size": 64})");
  const Forecast alternating = forecast_of(R"({"tp": 8, "pp": 8, "schedule": "1f1b", "global_batch_size": 64})");
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const RankMemoryResult& all = gpipe.result.memory.per_pipeline_rank[rank];
    const RankMemoryResult& few = alternating.result.memory.per_pipeline_rank[rank];
    EXPECT_EQ(all.peak_in_flight, 64);
    EXPECT_EQ(few.peak_in_flight, 8 - static_cast<int>(rank));
    EXPECT_NEAR(all.activations_gib / 64, few.activations_gib / few.peak_in_flight, 1e-9);
  }
}

// 1F1B first stage: L/p layers, p microbatches: L layers' worth. Interleaved: L(1 + (p-1)/(pv)), Korthikanti et al.
// §4.2.3.
TEST(Forecast, FirstStageActivationsFollowKorthikanti) {
  const double sbh = 2048.0 * 12288.0;
  const double layer = sbh / 8 * 34;
  const double dropout_mask = sbh / 8;  // of the embedding, per microbatch in flight
  const Forecast plain = forecast_of(
      R"({"tp": 8, "pp": 8, "sequence_parallel": true, "recompute": "selective", "global_batch_size": 64})");
  EXPECT_NEAR(plain.result.memory.per_pipeline_rank[0].activations_gib * kGibibyte, 96 * layer + 8 * dropout_mask, 1e3);
  const Forecast interleaved = forecast_of(kLayouts[0]);
  const double chunks = 96.0 * (1 + 7.0 / (8 * 3));
  const double embedding_chunks = 2 * 8;  // in the steady state two groups of the first chunk are in flight
  EXPECT_NEAR(interleaved.result.memory.per_pipeline_rank[0].activations_gib * kGibibyte,
              chunks * layer + embedding_chunks * dropout_mask, 1e3);
}

// 18 bytes per parameter: 2 weight, 4 gradient, 12 Adam (Rajbhandari et al. 1910.02054 with fp32 gradients).
TEST(Forecast, StateIsEighteenBytesAParameter) {
  const Forecast whole = forecast_of(R"({"tp": 8, "pp": 8, "global_batch_size": 64})");
  double state = 0.0;
  double parameters = 0.0;
  for (const RankMemoryResult& rank : whole.result.memory.per_pipeline_rank) {
    state += (rank.weights_gib + rank.gradients_gib + rank.optimizer_gib) * kGibibyte;
    parameters += rank.weights_gib * kGibibyte / 2;
  }
  EXPECT_NEAR(state / parameters, 18.0, 1e-9);
  // Both ends hold the tied table, and norms and residual biases are replicated over tp: slightly more than the model /
  // tp.
  const double model = 174'604'259'328.0 / 8;
  EXPECT_GT(parameters, model);
  EXPECT_LT(parameters, model * 1.01);

  const Forecast sharded = forecast_of(R"({"tp": 8, "pp": 2, "zero": 1, "global_batch_size": 64})");
  const RankMemoryResult& rank = sharded.result.memory.per_pipeline_rank[0];
  EXPECT_NEAR(rank.optimizer_gib / rank.weights_gib, 6.0 / 4, 1e-9);  // dp 4
}

// If the first and the last stage are chunks of one rank, the tied table exists once.
TEST(Forecast, OneRankHoldsOneTiedTable) {
  const Forecast whole = forecast_of(R"({"tp": 8, "pp": 1, "global_batch_size": 64})");
  const Forecast chunked = forecast_of(R"({"tp": 8, "pp": 1, "vpp": 2, "schedule": "bfs", "global_batch_size": 64})");
  const RankMemoryResult& once = whole.result.memory.per_pipeline_rank[0];
  const RankMemoryResult& parts = chunked.result.memory.per_pipeline_rank[0];
  EXPECT_NEAR(parts.weights_gib, once.weights_gib, 1e-9);
  EXPECT_NEAR(parts.optimizer_gib, once.optimizer_gib, 1e-9);
  EXPECT_NEAR(chunked.result.breakdown.optimizer_s, whole.result.breakdown.optimizer_s, 1e-9);
}

TEST(Forecast, AsynchronousSchedulesReportTheSteadyState) {
  const Forecast two_versions =
      forecast_of(R"({"tp": 8, "pp": 8, "schedule": "pipedream-2bw", "global_batch_size": 64})");
  ASSERT_TRUE(two_versions.result.steady.has_value());
  const SteadyResult& steady = *two_versions.result.steady;
  EXPECT_EQ(steady.weight_versions, std::vector<int>(8, 2));
  EXPECT_EQ(steady.staleness, std::vector<int>(8, 1));
  EXPECT_NEAR(steady.period_s * 64, two_versions.result.iteration.time_s, 1e-9);
  EXPECT_NEAR(steady.throughput_samples_per_s, two_versions.result.iteration.samples_per_s, 1e-9);
  EXPECT_GT(steady.fill_s, 0.0);
  const RankMemoryResult& rank = two_versions.result.memory.per_pipeline_rank[0];
  EXPECT_NEAR(rank.weight_versions_gib, rank.weights_gib, 1e-9);
  EXPECT_EQ(rank.peak_in_flight, 8);
  // The steady state has no fill and drain: faster than the same order with a flush.
  const Forecast flushed = forecast_of(R"({"tp": 8, "pp": 8, "schedule": "1f1b", "global_batch_size": 64})");
  EXPECT_LT(two_versions.result.iteration.time_s, flushed.result.iteration.time_s);

  const Forecast stashed = forecast_of(R"({"tp": 8, "pp": 4, "schedule": "pipedream", "global_batch_size": 64})");
  EXPECT_EQ(stashed.result.steady->weight_versions, std::vector<int>({4, 3, 2, 1}));
  EXPECT_EQ(stashed.result.steady->staleness, std::vector<int>({3, 2, 1, 0}));

  // Vertical sync keeps the first stage's versions on every stage, which costs only memory.
  const Forecast synced =
      forecast_of(R"({"tp": 8, "pp": 4, "schedule": "pipedream:vertical-sync", "global_batch_size": 64})");
  EXPECT_EQ(synced.result.steady->weight_versions, std::vector<int>({4, 4, 4, 4}));
  EXPECT_EQ(synced.result.steady->staleness, std::vector<int>({3, 3, 3, 3}));
  EXPECT_EQ(synced.result.iteration.time_s, stashed.result.iteration.time_s);
  EXPECT_EQ(stashed.result.memory.per_pipeline_rank.back().weight_versions_gib, 0.0);
  const RankMemoryResult& last = synced.result.memory.per_pipeline_rank.back();
  EXPECT_NEAR(last.weight_versions_gib, 3 * last.weights_gib, 1e-9);

  const Forecast newest = forecast_of(R"({"tp": 8, "pp": 4, "schedule": "pipemare", "global_batch_size": 64})");
  EXPECT_EQ(newest.result.steady->weight_versions, std::vector<int>({1, 1, 1, 1}));
}

TEST(Forecast, ReplicatedStagesAreForBareSchedulesOnly) {
  const std::string csv = "0F0,0F3,0B0,0B3\n0F1,0B1\n0F2,0B2\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
  try {
    forecast(job_from(gpt3_job(R"({"tp": 8, "pp": 4, "schedule": "file:mine.csv", "global_batch_size": 4})")),
             [&csv](const std::string&) { return csv; });
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(error.diagnostic().problem.find("replicates individual stages"), std::string::npos) << error.what();
  }
}

TEST(Forecast, AScheduleFromAFileGivesTheSameAnswerAsItsGenerator) {
  const Forecast generated = forecast_of(R"({"tp": 8, "pp": 4, "schedule": "1f1b", "global_batch_size": 16})");
  const std::string csv = write_csv(generated.step.program);
  const Forecast read =
      forecast(job_from(gpt3_job(R"({"tp": 8, "pp": 4, "schedule": "file:mine.csv", "global_batch_size": 16})")),
               [&csv](const std::string& path) {
                 EXPECT_EQ(path, "mine.csv");
                 return csv;
               });
  EXPECT_EQ(read.result.iteration.time_s, generated.result.iteration.time_s);
}

TEST(Forecast, TokensAndPriceGiveDaysAndDollars) {
  const Job job = job_from(
      R"({"model": "gpt3-175b", "cluster": "8xdgx-a100-80g", "layout": {"tp": 8, "pp": 8, "global_batch_size": 64},
                               "training": {"tokens": "300B", "price_per_gpu_hour": "2.5"}})");
  const Result result = forecast(job, no_files).result;
  ASSERT_TRUE(result.training.has_value());
  EXPECT_EQ(result.training->steps, std::ceil(300e9 / (64 * 2048.0)));
  EXPECT_NEAR(result.training->days, result.training->steps * result.iteration.time_s / 86'400, 1e-6);
  EXPECT_NEAR(result.training->gpu_hours, result.training->days * 24 * 64, 1e-3);
  EXPECT_NEAR(*result.training->cost_usd, result.training->gpu_hours * 2.5, 1e-3);
}

TEST(Forecast, ComplaintsAboutTheScheduleNameTheJobsFields) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"tp": 8, "pp": 8, "schedule": "1f1c", "global_batch_size": 64})", "layout.schedule"},
      {R"({"tp": 8, "pp": 8, "vpp": 2, "schedule": "1f1b", "global_batch_size": 64})", "layout.schedule"},
      {R"({"tp": 8, "pp": 8, "vpp": 3, "schedule": "interleaved:2", "global_batch_size": 64})", "layout.vpp"},
      {R"({"tp": 8, "pp": 8, "vpp": 20, "schedule": "interleaved", "global_batch_size": 64})", "layout.pp"},
      {R"({"tp": 8, "pp": 8, "stage_layers": [12, 84], "global_batch_size": 64})", "layout.stage_layers"},
      {R"({"tp": 8, "pp": 2, "stage_layers": [12, 12], "global_batch_size": 64})", "layout.stage_layers"},
      {R"({"tp": 8, "pp": 8, "schedule": "pipedream-2bw", "accumulation": 4, "global_batch_size": 64})",
       "layout.schedule"},
  };
  for (const auto& [layout, field] : cases) {
    try {
      forecast_of(layout);
      ADD_FAILURE() << layout;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().field, field) << error.what();
      EXPECT_EQ(error.diagnostic().where, "job.json:" + pointer_of(field)) << error.what();
    }
  }
}

TEST(Forecast, SaysWhatDoesNotFit) {
  const Result result = forecast_of(R"({"tp": 8, "global_batch_size": 64})").result;
  EXPECT_FALSE(result.memory.fits);
  ASSERT_FALSE(result.warnings.empty());
  EXPECT_NE(result.warnings[0].find("does not fit"), std::string::npos);
}

// Llama 2 7B with Adam needs 113 GB of states: the part of the moments and fp32 weights that does not fit is paged over
// the host's 32 GB/s link and back.
TEST(Forecast, PagedStatesLeaveWhenTheyDoNotFit) {
  const auto on_one = [](const std::string& model, const std::string& paged) {
    return forecast(job_from(R"({"model": ")" + model + R"(", "cluster": "one-gpu",
        "layout": {"global_batch_size": 1, "recompute": "full"},
        "training": {"sequence_length": 512, "paged_optimizer": )" +
                             paged + "}}"),
                    no_files);
  };
  const Forecast kept = on_one("llama2-7b", "false");
  const Forecast paged = on_one("llama2-7b", "true");
  EXPECT_FALSE(kept.result.memory.fits);
  EXPECT_TRUE(paged.result.memory.fits);
  const RankMemoryResult& before = kept.result.memory.per_pipeline_rank.front();
  const RankMemoryResult& after = paged.result.memory.per_pipeline_rank.front();
  EXPECT_NEAR(after.shown_gib, after.capacity_gib, 1e-3);
  const double moved_gib = before.optimizer_gib - after.optimizer_gib;
  EXPECT_GT(moved_gib, 20.0);
  EXPECT_NEAR(paged.result.iteration.time_s - kept.result.iteration.time_s, 2 * moved_gib * kGibibyte / 32e9, 1e-4);
  EXPECT_EQ(on_one("gpt2-124m", "true").result.iteration.time_s, on_one("gpt2-124m", "false").result.iteration.time_s);
}

// QwenLM/Qwen, README.md, Profiling of Memory and Speed: LoRA of rank 64 on all linears with recomputation, batch 1 and
// accumulation 8 on one A100-SXM4-80G; G is taken as 1e9 bytes. Nothing was fitted to it. The loss of transformers in
// 2023 holds fp32 logits, a shifted copy and log-probabilities in addition to gradients. At 256 tokens the measured
// step is bound by the host.
TEST(Forecast, AdaptersTakeTheMemoryAndTimeThatQwenPublished) {
  struct Row {
    int tokens;
    double gigabytes;
    double seconds;
  };
  const auto expect_rows = [](const char* model, const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      const Forecast answer = forecast(
          job_from(R"({"model": {"sequence_length": 8192, "norm": "rmsnorm", "gated_mlp": true, "positions": "rotary",
              "biases": false, "attention_bias": true, "dropout": false, "tied_embeddings": false, )" +
                   std::string(model) + R"(}, "cluster": "one-gpu", "layout": {"global_batch_size": 8,
              "recompute": "full"}, "training": {"precision": "bf16", "sequence_length": )" +
                   std::to_string(row.tokens) + R"(, "stack": {"name": "pytorch-ddp@2.0", "loss_saved_bytes": 10},
              "finetune": {"method": "lora", "rank": 64, "dropout": 0.05, "targets": ["linear_qkv", "o_proj",
              "gate_proj", "up_proj", "down_proj"]}}})"),
          no_files);
      EXPECT_NEAR(answer.result.memory.peak_gib * kGibibyte / 1e9 / row.gigabytes, 1.0, 0.08) << row.tokens;
      if (row.seconds == 0.0) continue;
      EXPECT_NEAR(answer.result.iteration.time_s / row.seconds, 1.0, 0.1) << row.tokens;
    }
  };
  expect_rows(R"("layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 151936)", {{256, 20.1, 0.0},
                                                                                              {512, 20.4, 1.5},
                                                                                              {1024, 21.5, 2.8},
                                                                                              {2048, 23.8, 5.2},
                                                                                              {4096, 29.7, 10.1},
                                                                                              {8192, 36.6, 21.3}});
  expect_rows(R"("layers": 40, "hidden": 5120, "heads": 40, "ffn": 13696, "vocab": 152064)", {{256, 34.6, 0.0},
                                                                                              {512, 35.1, 2.4},
                                                                                              {1024, 35.3, 4.4},
                                                                                              {2048, 37.4, 8.4},
                                                                                              {4096, 42.5, 17.0},
                                                                                              {8192, 55.2, 36.0}});
}

// A published peak, and the forecast's deviation from it if that exceeds a tenth.
struct PublishedMemory {
  const char* model;
  const char* layout;
  const char* training;
  double gigabytes;
  double off = 0.0;
};

void expect_published(const std::vector<PublishedMemory>& rows) {
  for (const PublishedMemory& row : rows) {
    const std::string job = std::string(R"({"model": )") + row.model + R"(, "cluster": "one-gpu", "layout": {)" +
                            row.layout + R"(}, "training": {"precision": "bf16", )" + row.training + "}}";
    const double bytes = forecast(job_from(job), no_files).result.memory.peak_gib * kGibibyte;
    EXPECT_NEAR(bytes / 1e9 / row.gigabytes, 1.0 + row.off, row.off == 0.0 ? 0.1 : 0.02) << job;
  }
}

// pytorch/torchtune at 0031bfb (October 2024), README.md, Memory and training speed: Llama 3.1 8B, batch 2 of packed
// 2,048 tokens, compiled, a loss in chunks, everything in bf16; in GiB. Nothing was fitted to it. The forecast's peak
// has the recomputed block, 1.6 to 1.8 GiB without the compiler's savings, together with logits (1 GiB) that have been
// freed by then: without those, +9 and +12 %. Without recomputation the published figure leaves 0.44 GiB per block
// instead of 0.53. Left out: full fine-tuning with gradients that the optimizer consumes in the backward pass, which is
// not modelled.
TEST(Forecast, AdaptersTakeTheMemoryThatTorchtunePublished) {
  const char* const lora = R"("sequence_length": 2048, "master_weights": false, "compile": true,
      "stack": {"name": "pytorch-fsdp", "loss_saved_bytes": 2}, "finetune": {"method": "lora", "rank": 8,
      "targets": ["q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]})";
  const char* const qlora = R"("sequence_length": 2048, "master_weights": false, "compile": true,
      "stack": {"name": "pytorch-fsdp", "loss_saved_bytes": 2},
      "finetune": {"method": "qlora", "rank": 8, "double_quant": true})";
  const char* const recomputed = R"("micro_batch_size": 2, "global_batch_size": 2, "recompute": "full")";
  const double gib = kGibibyte / 1e9;
  expect_published({{R"("llama3.1-8b")", recomputed, lora, 16.2 * gib, 0.155},
                    {R"("llama3.1-8b")", R"("micro_batch_size": 2, "global_batch_size": 2)", lora, 30.3 * gib, 0.127},
                    {R"("llama3.1-8b")", recomputed, qlora, 7.4 * gib, 0.255}});
}

// hiyouga/LLaMA-Factory at 00409ff, README.md, Hardware Requirement, marked as estimated there: rounded figures of a
// rule (18, 8, 2, 1 and 1/2 bytes per parameter) for models of "7B" and "70B", without batch and length; here one
// sequence of 512 tokens, recomputed. In addition to frozen weights the rule has room for longer samples and a CUDA
// context.
TEST(Forecast, MethodsTakeTheMemoryThatLlamaFactoryEstimates) {
  const char* const one = R"("global_batch_size": 1, "recompute": "full")";
  const char* const full = R"("sequence_length": 512)";
  const char* const pure = R"("sequence_length": 512, "master_weights": false)";
  const char* const lora = R"("sequence_length": 512, "finetune": {"method": "lora", "rank": 8})";
  const char* const in_8_bits = R"("sequence_length": 512, "finetune": {"method": "lora", "rank": 8, "base": "int8"})";
  const char* const in_4_bits =
      R"("sequence_length": 512, "finetune": {"method": "qlora", "rank": 8, "double_quant": true})";
  expect_published({{R"("llama2-7b")", one, full, 120},
                    {R"("llama2-7b")", one, pure, 60},
                    {R"("llama2-7b")", one, lora, 16, -0.11},
                    {R"("llama2-7b")", one, in_8_bits, 10, -0.205},
                    {R"("llama2-7b")", one, in_4_bits, 6, -0.2},
                    {R"("llama2-70b")", one, full, 1200},
                    {R"("llama2-70b")", one, pure, 600},
                    {R"("llama2-70b")", one, lora, 160, -0.12},
                    {R"("llama2-70b")", one, in_8_bits, 80},
                    {R"("llama2-70b")", one, in_4_bits, 48, -0.16}});
}

// Dettmers et al. 2305.14314, abstract: 65B needs more than 780 GB in full, and fits a 48 GB GPU with nf4 and adapters
// of rank 64 on all linears (appendix B there).
TEST(Forecast, QloraFitsAModelOf65BOn48GB) {
  const auto peak = [](const std::string& training) {
    return forecast(job_from(R"({"model": {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 22016, "vocab": 32000,
        "sequence_length": 2048, "norm": "rmsnorm", "gated_mlp": true, "positions": "rotary", "biases": false,
        "dropout": false, "tied_embeddings": false}, "cluster": "one-gpu",
        "layout": {"global_batch_size": 1, "recompute": "full"},
        "training": {"precision": "bf16", "sequence_length": 512, "stack": {"name": "pytorch-ddp",
        "loss_saved_bytes": 10})" +
                             training + "}}"),
                    no_files)
        .result.memory.peak_gib;
  };
  EXPECT_GT(peak("") * kGibibyte, 780e9);
  const double qlora = peak(R"(, "finetune": {"method": "qlora", "rank": 64, "double_quant": true})");
  EXPECT_LT(qlora, 48.0);
  EXPECT_GT(qlora, 40.0);
}

}  // namespace
}  // namespace flopcast
