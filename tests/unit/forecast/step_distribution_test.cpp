// Varying step times, compared with closed forms: sums, maxima of normal variables, probabilities.
#include "sim/variation/step_distribution.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

PreparedStep step_of(const std::string& layout, const std::string& model = "",
                     const std::string& stack = "megatron-2022") {
  return prepare(job_from(R"({"model": {"layers": 16, "hidden": 1024, "heads": 16, "vocab": 51200,
      "sequence_length": 1024)" +
                          model + R"(}, "cluster": {"name": "dgx-a100-80g", "nodes": 4},
      "training": {"precision": "fp16", "stack": ")" +
                          stack + R"("}, "layout": {)" + layout + "}}"),
                 no_files);
}

// Replicas use the cluster's 32 devices that `layout` leaves; this is for one device.
PreparedStep single_device(const std::string& layout, const std::string& cluster = R"({"name": "one-gpu"})") {
  return prepare(job_from(R"({"model": {"layers": 16, "hidden": 1024, "heads": 16, "vocab": 51200,
      "sequence_length": 1024}, "cluster": )" +
                          cluster + R"(,
      "training": {"precision": "fp16", "stack": "megatron-2021"}, "layout": {)" +
                          layout + "}}"),
                 no_files);
}

double mean_of(const std::vector<Ticks>& samples) {
  return std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
}

double deviation_of(const std::vector<Ticks>& samples) {
  const double mean = mean_of(samples);
  double squares = 0.0;
  for (const Ticks sample : samples) {
    squares += (static_cast<double>(sample) - mean) * (static_cast<double>(sample) - mean);
  }
  return std::sqrt(squares / static_cast<double>(samples.size() - 1));
}

Variation jitter(double deviation, int samples) {
  Variation variation;
  variation.jitter = deviation;
  variation.samples = samples;
  return variation;
}

// Means of the largest of n standard normal variables (Harter 1961).
constexpr double kLargestOf2 = 0.5641895835;
constexpr double kLargestOf4 = 1.0293753730;

TEST(StepDistribution, WithoutVariationIsTheForecastToThePicosecond) {
  const char* const layouts[] = {
      R"("pp": 4, "global_batch_size": 64)",
      R"("pp": 4, "schedule": "gpipe", "global_batch_size": 64, "zero": 1)",
      R"("tp": 2, "pp": 4, "vpp": 2, "schedule": "interleaved", "global_batch_size": 64)",
      R"("pp": 4, "schedule": "zb-h1", "global_batch_size": 64)",
      R"("pp": 4, "schedule": "zbv", "global_batch_size": 64)",
      R"("pp": 4, "schedule": "dualpipe", "global_batch_size": 128)",
      R"("pp": 4, "schedule": "dualpipev", "global_batch_size": 128)",
      R"("pp": 4, "schedule": "chimera", "global_batch_size": 64)",
      R"("pp": 4, "schedule": "hanayo", "global_batch_size": 64)",
      R"("pp": 2, "schedule": "terapipe", "global_batch_size": 64)",
      R"("pp": 1, "global_batch_size": 64, "bucket_mb": 5)",
      R"("pp": 2, "data_parallel": "fsdp", "global_batch_size": 64)",
      R"("tp": 2, "cp": 2, "pp": 2, "global_batch_size": 64, "zero": 2)",
  };
  for (const char* const stack : {"megatron-2021", "megatron-core", "deepspeed", "pytorch-ddp"}) {
    for (const char* const layout : layouts) {
      const PreparedStep step = step_of(layout, "", stack);
      const Ticks makespan = simulate(step.program, step.times).makespan();
      EXPECT_EQ(step_time_samples(step, jitter(0.0, 1)).front(), makespan) << stack << layout;
    }
  }
  const PreparedStep experts =
      step_of(R"("pp": 2, "ep": 4, "global_batch_size": 64)", R"(, "experts": {"count": 8, "top_k": 2, "ffn": 4096})");
  EXPECT_EQ(step_time_samples(experts, jitter(0.0, 1)).front(), simulate(experts.program, experts.times).makespan());
}

TEST(StepDistribution, OfOneDeviceIsASum) {
  const PreparedStep step = single_device(R"("global_batch_size": 16)");
  const StageTimes& passes = step.times.stages.front();
  const double f = static_cast<double>(passes.forward);
  const double b = static_cast<double>(passes.backward);
  const double o = static_cast<double>(step.times.flush.front().optimizer);
  constexpr double kJitter = 0.1;
  constexpr int kSamples = 40'000;
  const std::vector<Ticks> samples = step_time_samples(step, jitter(kJitter, kSamples));
  const double deviation = kJitter * std::sqrt(16.0 * (f * f + b * b) + o * o);
  const double makespan = static_cast<double>(simulate(step.program, step.times).makespan());
  EXPECT_NEAR(mean_of(samples), makespan, 4.0 * deviation / std::sqrt(kSamples));
  EXPECT_NEAR(deviation_of(samples) / deviation, 1.0, 0.02);

  const DistributionResult result = sample_step_times(step, jitter(kJitter, kSamples));
  EXPECT_NEAR(result.mean_s * 1e12 / mean_of(samples), 1.0, 1e-12);
  EXPECT_NEAR(result.std_s * 1e12 / deviation_of(samples), 1.0, 1e-9);
  // 33 draws are nearly normal.
  EXPECT_NEAR((result.p50_s * 1e12 - makespan) / deviation, 0.0, 0.05);
  EXPECT_NEAR((result.p95_s * 1e12 - makespan) / deviation, 1.645, 0.06);
  EXPECT_NEAR((result.p99_s * 1e12 - makespan) / deviation, 2.326, 0.12);
  EXPECT_NEAR((result.p5_s * 1e12 - makespan) / deviation, -1.645, 0.06);
}

// Replicas that meet once per step: the slowest sum counts, and the slowest optimizer after it.
TEST(StepDistribution, OfReplicasIsTheLargestOfTheirSums) {
  constexpr double kJitter = 0.02;
  constexpr int kSamples = 40'000;
  for (const auto& [nodes, largest] : {std::pair{2, kLargestOf2}, std::pair{4, kLargestOf4}}) {
    const PreparedStep step = single_device(R"("global_batch_size": )" + std::to_string(64 * nodes),
                                            R"({"name": "one-gpu", "nodes": )" + std::to_string(nodes) + "}");
    ASSERT_EQ(step.job.layout.dp, nodes);
    ASSERT_TRUE(step.times.overlapped_reductions.empty());
    const double f = static_cast<double>(step.times.stages.front().forward);
    const double b = static_cast<double>(step.times.stages.front().backward);
    const double o = static_cast<double>(step.times.flush.front().optimizer);
    const double makespan = static_cast<double>(simulate(step.program, step.times).makespan());
    const double deviation = kJitter * std::sqrt(64.0 * (f * f + b * b));
    const double expected = makespan + largest * (deviation + kJitter * o);
    EXPECT_NEAR(mean_of(step_time_samples(step, jitter(kJitter, kSamples))), expected, 0.02 * deviation) << nodes;
  }
}

// Replicas that gather weights in every pass meet in every pass.
TEST(StepDistribution, ReplicasWithShardedWeightsMeetInEveryPass) {
  constexpr double kJitter = 0.02;
  const PreparedStep step =
      single_device(R"("data_parallel": "fsdp", "global_batch_size": 64)", R"({"name": "one-gpu", "nodes": 4})");
  const double passes =
      16.0 * static_cast<double>(step.times.stages.front().forward + step.times.stages.front().backward);
  const double o = static_cast<double>(step.times.flush.front().optimizer);
  const double makespan = static_cast<double>(simulate(step.program, step.times).makespan());
  const double grown = mean_of(step_time_samples(step, jitter(kJitter, 10'000))) - makespan;
  EXPECT_NEAR(grown / (kJitter * kLargestOf4 * (passes + o)), 1.0, 0.03);
}

TEST(StepDistribution, AStragglerAddsItsComputation) {
  const PreparedStep step = step_of(R"("tp": 2, "global_batch_size": 64)");  // 16 replicas of two devices
  Variation variation = jitter(0.0, 1);
  variation.stragglers.push_back({7, 1.0, 1.25});
  const StageCosts& costs = step.costs.stages.front();
  const Seconds compute =
      costs.forward.compute + costs.recompute.compute + costs.input_gradient.compute + costs.weight_gradient.compute;
  const double optimizer = static_cast<double>(step.times.flush.front().optimizer);
  const double expected = 0.25 * (4.0 * compute.value() * 1e12 + optimizer);
  ASSERT_TRUE(step.times.overlapped_reductions.empty());
  const Ticks makespan = simulate(step.program, step.times).makespan();
  EXPECT_NEAR(static_cast<double>(step_time_samples(step, variation).front() - makespan), expected, 10.0);
  variation.stragglers.push_back({9, 1.0, 1.2});  // another replica, less slow: it waits for the first
  EXPECT_NEAR(static_cast<double>(step_time_samples(step, variation).front() - makespan), expected, 10.0);
}

TEST(StepDistribution, ChancesOfADeviceAddUpOverItsGroup) {
  constexpr int kSamples = 20'000;
  constexpr double kChance = 0.02;
  const PreparedStep step = step_of(R"("tp": 4, "pp": 4, "global_batch_size": 8)");  // 2 replicas, 32 devices
  Variation variation = jitter(0.0, kSamples);
  variation.stragglers.push_back({std::nullopt, kChance, 1.5});
  const Ticks makespan = simulate(step.program, step.times).makespan();
  const std::vector<Ticks> samples = step_time_samples(step, variation);
  const auto slow = std::count_if(samples.begin(), samples.end(), [&](Ticks time) { return time > makespan; });
  EXPECT_NEAR(static_cast<double>(slow) / kSamples, 1.0 - std::pow(1.0 - kChance, 32), 0.015);
}

// Equal stages and transfers without time: more ranks mean more to wait for.
TEST(StepDistribution, WhatWaitsForMoreGrowsMore) {
  constexpr double kLeast = 3'000.0;  // a tenth of a microbatch
  double before = -2.0 * kLeast;
  for (const int pp : {1, 2, 4, 8, 16}) {
    PreparedStep step = single_device(R"("global_batch_size": 64, "pp": )" + std::to_string(pp),
                                      R"({"name": "one-gpu", "nodes": )" + std::to_string(pp) + "}");
    for (StageTimes& stage : step.times.stages) stage = {10'000, 20'000, 0, 0, {}};
    for (BoundaryTimes& boundary : step.times.boundaries) boundary = {};
    for (FlushTimes& flush : step.times.flush) flush = {};
    const double makespan = static_cast<double>(simulate(step.program, step.times).makespan());
    ASSERT_EQ(makespan, 30'000.0 * (64 + pp - 1));
    const double waiting = mean_of(step_time_samples(step, jitter(0.1, 2'000))) - makespan;
    EXPECT_GT(waiting, before + kLeast) << pp;
    before = waiting;
  }
}

TEST(StepDistribution, IsThatOfItsSeed) {
  const PreparedStep step = step_of(R"("pp": 4, "global_batch_size": 64)");
  Variation variation = jitter(0.05, 50);
  variation.stragglers.push_back({std::nullopt, 0.05, 2.0});
  const std::vector<Ticks> samples = step_time_samples(step, variation);
  EXPECT_EQ(step_time_samples(step, variation), samples);
  variation.samples = 10;
  const std::vector<Ticks> fewer = step_time_samples(step, variation);
  EXPECT_TRUE(std::equal(fewer.begin(), fewer.end(), samples.begin()));
  variation.seed = 2;
  EXPECT_NE(step_time_samples(step, variation), fewer);
}

TEST(StepDistribution, AsynchronousSchedulesAreRefused) {
  const PreparedStep step = step_of(R"("pp": 4, "schedule": "pipedream-2bw", "global_batch_size": 64)");
  EXPECT_THROW(step_time_samples(step, jitter(0.1, 1)), ConfigError);
  Variation variation = jitter(0.0, 1);
  variation.stragglers.push_back({32, 1.0, 1.5});
  EXPECT_THROW(step_time_samples(step_of(R"("pp": 4, "global_batch_size": 64)"), variation), ConfigError);
}

TEST(NormalQuantile, IsThatOfTheTables) {
  EXPECT_NEAR(normal_quantile(0.5), 0.0, 1e-16);
  EXPECT_NEAR(normal_quantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile(0.9), 1.2815515655446004, 1e-14);
  EXPECT_NEAR(normal_quantile(1e-6), -4.753424308822899, 1e-13);
  EXPECT_NEAR(normal_quantile(1e-15), -7.941345326170997, 1e-13);
  for (const double probability : {0.001, 0.02, 0.3, 0.74}) {
    EXPECT_NEAR(0.5 * std::erfc(-normal_quantile(probability) / std::sqrt(2.0)), probability, 1e-15);
  }
}

// The exact numbers drawn on every machine.
TEST(RandomFactors, AreTheSameEverywhere) {
  RandomFactors factors(0.03, 1);
  for (const double expected : {1.0190959968481312, 1.0443842618434198, 1.0530584088461241, 1.0022245922360167,
                                1.0407660157711183, 1.0032008843177611})
    EXPECT_EQ(factors.next(), expected);
}

TEST(RandomFactors, HaveTheirMomentsAndAreNeverNegative) {
  constexpr int kDraws = 1'000'000;
  constexpr double kDeviation = 0.5;
  RandomFactors factors(kDeviation, 7);
  double sum = 0.0;
  double squares = 0.0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const double factor = factors.next();
    ASSERT_GT(factor, 0.0);
    sum += factor;
    squares += factor * factor;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 1.0, 4.0 * kDeviation / std::sqrt(kDraws));
  EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), kDeviation, 0.005);
}

}  // namespace
}  // namespace flopcast
