#include "sim/variation/step_distribution.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "base/text/error.hpp"
#include "model/cost/compute.hpp"
#include "sim/lower/lower.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

constexpr int kLength = 4096;

PreparedStep step_of(const std::string& layout, int gpus, const std::string& training = "") {
  return prepare(job_from(R"({"model": {"layers": 16, "hidden": 1024, "heads": 16, "vocab": 128,
      "sequence_length": 4096}, "cluster": {"name": "one-gpu", "nodes": )" +
                          std::to_string(gpus) + R"(}, "training": {"stack": "megatron-2022", "attention": "flash")" +
                          training + R"(}, "layout": {)" + layout + "}}"),
                 no_files);
}

double forecast_s(const PreparedStep& step) {
  return static_cast<double>(simulate(step.program, step.times).makespan()) * 1e-12;
}

// Seconds of one layer's attention, forward and backward, by hand: 4 b s² h FLOPs, halved for causality, and 2.5 times
// as many backward.
double attention_s(const PreparedStep& step) {
  const ComputeModel compute(step.job.cluster.device, step.job.training.precision, step.job.training.stack);
  const Flops flops(4.0 * kLength * kLength * 1024 / 2);
  return (compute.fused_attention(flops, false) + compute.fused_attention(flops, true)).value();
}

TEST(PackedSequences, ArePackedInOrder) {
  const std::vector<PackedMicrobatch> packed = pack_sequences({6, 3, 2, 9}, 10, 4);
  const int sequences[] = {2, 1, 1, 2};  // 6+3 | 2 | 9 | 6+3
  const double tokens[] = {9, 2, 9, 9};
  const double squares[] = {45, 4, 81, 45};
  for (std::size_t index = 0; index < packed.size(); ++index) {
    EXPECT_EQ(packed[index].sequences, sequences[index]);
    EXPECT_EQ(packed[index].tokens, tokens[index]);
    EXPECT_EQ(packed[index].squares, squares[index]);
  }
  EXPECT_THROW(pack_sequences({}, 10, 1), ConfigError);
  EXPECT_THROW(pack_sequences({11}, 10, 1), ConfigError);
  EXPECT_THROW(pack_sequences({0}, 10, 1), ConfigError);
}

// Rows of 4, 8, 10 and 10 (of 12) in 10: padded to the length 32 of 40; by twos, padded to 8 and 10, each 32 of 36.
TEST(PackedSequences, PaddingLeavesWhatRowsDoNotFill) {
  const PaddedRows by_two = pad_sequences({4, 8, 10, 12}, 10, 2);
  EXPECT_DOUBLE_EQ(by_two.to_length, 32.0 / 40);
  EXPECT_DOUBLE_EQ(by_two.to_longest, 32.0 / 36);
  EXPECT_DOUBLE_EQ(pad_sequences({4, 8, 10, 12}, 10, 1).to_longest, 1.0);
  // Three rows per microbatch: 4 8 10 | 10 4 8 | 10 10 4 | 8 10 10.
  EXPECT_DOUBLE_EQ(pad_sequences({4, 8, 10, 12}, 10, 3).to_longest, 96.0 / 120);
  const PackingResult packed = pack_step(step_of(R"("global_batch_size": 8)", 1), {1024});
  EXPECT_DOUBLE_EQ(packed.padded_filled, 0.25);
  EXPECT_DOUBLE_EQ(packed.filled, 1.0);
  EXPECT_GT(packed.tokens_per_s / packed.padded_tokens_per_s, 4.0) << "attention within sequences takes less as well";
}

TEST(PackedSequences, OfFullLengthAreTheForecast) {
  for (const char* const layout : {R"("global_batch_size": 8)", R"("pp": 4, "global_batch_size": 64)",
                                   R"("pp": 4, "schedule": "zb-h1", "global_batch_size": 64)",
                                   R"("pp": 4, "schedule": "dualpipe", "global_batch_size": 64)",
                                   R"("pp": 2, "schedule": "chimera", "global_batch_size": 64)",
                                   R"("data_parallel": "fsdp", "global_batch_size": 64)",
                                   R"("micro_batch_size": 2, "pp": 4, "recompute": "full", "global_batch_size": 64)"}) {
    const PreparedStep step = step_of(layout, 8);
    const PackingResult result = pack_step(step, {kLength});
    EXPECT_EQ(result.time_s, forecast_s(step)) << layout;
    EXPECT_EQ(result.equal_s, forecast_s(step)) << layout;
    EXPECT_EQ(result.filled, 1.0);
    EXPECT_EQ(result.attention, 1.0);
    EXPECT_EQ(result.sequences, step.job.layout.global_batch_size);
  }
}

TEST(PackedSequences, OnOneDeviceAttentionShrinksWithTheSquares) {
  for (const auto& [recompute, forwards] : {std::pair{"none", 0.0}, {"selective", 1.0}, {"full", 1.0}}) {
    const PreparedStep step = step_of(R"("global_batch_size": 4, "recompute": ")" + std::string(recompute) + "\"", 1);
    const ComputeModel compute(step.job.cluster.device, step.job.training.precision, step.job.training.stack);
    const double redone = compute.fused_attention(Flops(4.0 * kLength * kLength * 1024 / 2), false).value();
    // Microbatches of one, two and four sequences, and three quarters of one.
    const std::vector<int> lengths = {4096, 2048, 2048, 1024, 1024, 1024, 1024, 3072};
    const double less = (1 - 1.0) + (1 - 0.5) + (1 - 0.25) + (1 - 0.5625);
    const PackingResult result = pack_step(step, lengths);
    const double expected = forecast_s(step) - less * 16 * (attention_s(step) + forwards * redone);
    EXPECT_NEAR(result.time_s, expected, 1e-10) << recompute;
    EXPECT_NEAR(result.equal_s, expected, 1e-10) << "a sum does not depend on the order";
    EXPECT_NEAR(result.attention, (4 - less) / 4, 1e-15);
    EXPECT_NEAR(result.filled, 15.0 / 16, 1e-15);
  }
}

TEST(PackedSequences, ReplicasWaitForTheOneWithTheLongest) {
  // Megatron deals samples out in turn: one replica gets the full sequences, the other the packs of four.
  const PreparedStep step = step_of(R"("global_batch_size": 16)", 2);
  ASSERT_EQ(step.job.layout.dp, 2);
  const PackingResult result = pack_step(step, {4096, 1024, 1024, 1024, 1024});
  EXPECT_NEAR(result.time_s, forecast_s(step), 1e-11);
  EXPECT_NEAR(result.equal_s, forecast_s(step) - 8 * 0.375 * 16 * attention_s(step), 1e-10);
}

TEST(PackedSequences, PipelinesWaitForLongOnes) {
  const PreparedStep step = step_of(R"("pp": 8, "global_batch_size": 32)", 8);
  const PackingResult result = pack_step(step, {4096, 512, 512, 512, 512, 512, 512, 512, 512});
  EXPECT_GT(result.time_s, result.equal_s * 1.01);
  EXPECT_LT(result.time_s, forecast_s(step));
  EXPECT_GT(result.idle, result.equal_idle);
}

TEST(PackedSequences, WhatIsNotModelledIsRefused) {
  EXPECT_THROW(pack_step(step_of(R"("cp": 2, "global_batch_size": 8)", 2), {512}), ConfigError);
  EXPECT_THROW(pack_step(step_of(R"("pp": 2, "schedule": "terapipe", "global_batch_size": 8)", 2), {512}), ConfigError);
  EXPECT_THROW(pack_step(step_of(R"("pp": 2, "schedule": "pipedream", "global_batch_size": 8)", 2), {512}),
               ConfigError);
}

}  // namespace
}  // namespace flopcast
