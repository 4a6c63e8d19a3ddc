// Intervals from held-out errors: closed forms of the quantile, which runs are taken, and what is wider than what.

#include "sim/forecast/interval.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

ForecastFacts run_on(const std::string& device, const std::string& stack, bool several_nodes = false) {
  ForecastFacts facts;
  facts.device = device;
  facts.stack = stack;
  facts.software = stack;
  facts.several_nodes = several_nodes;
  facts.devices = several_nodes ? 64 : 8;
  return facts;
}

// So many models with these errors each, numbered from `first`.
std::vector<HeldOutErrors> models(const ForecastFacts& facts, int first, const std::vector<double>& errors) {
  std::vector<HeldOutErrors> groups;
  for (const double error : errors) groups.push_back({facts, first++, {error}});
  return groups;
}

std::vector<HeldOutErrors> operator+(std::vector<HeldOutErrors> a, const std::vector<HeldOutErrors>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Interval, IsTheCorrectedQuantile) {
  const ForecastFacts facts = run_on("a100-80g", "megatron-2022");
  // 19 models: 0.9 · 20 / 19 of 19 are 18, the second largest error, whatever its sign.
  std::vector<double> errors;
  for (int index = 1; index <= 19; ++index) errors.push_back(0.01 * index * (index % 2 == 0 ? 1 : -1));
  const auto interval = step_time_interval(facts, 10.0, models(facts, 0, errors));
  ASSERT_TRUE(interval.has_value());
  EXPECT_DOUBLE_EQ(interval->level, 0.9);
  EXPECT_DOUBLE_EQ(interval->half_width, 0.18);
  EXPECT_DOUBLE_EQ(interval->low_s, 8.2);
  EXPECT_DOUBLE_EQ(interval->high_s, 11.8);
  EXPECT_EQ(interval->models, 19);
  // Eight are too few for anything but the largest.
  errors.resize(8);
  EXPECT_DOUBLE_EQ(step_time_interval(facts, 10.0, models(facts, 0, errors))->half_width, 0.08);
}

TEST(Interval, ModelsWeighTheSameHoweverManyRowsTheyHave) {
  const ForecastFacts facts = run_on("a100-80g", "megatron-2022");
  std::vector<HeldOutErrors> known = models(facts, 0, std::vector<double>(19, 0.02));
  known.push_back({facts, 19, std::vector<double>(1000, 0.5)});
  // 0.9 · 21 / 20 of 20 models are 18.9: within the nineteen, although nearly all rows are of the twentieth.
  EXPECT_DOUBLE_EQ(step_time_interval(facts, 1.0, known)->half_width, 0.02);
  EXPECT_DOUBLE_EQ(step_time_interval(facts, 1.0, known, 3)->half_width, 0.02);
  known.push_back({facts, 20, {0.5}});
  known.push_back({facts, 21, {0.5}});
  EXPECT_DOUBLE_EQ(step_time_interval(facts, 1.0, known)->half_width, 0.5);
}

TEST(Interval, VersionsOfOneSoftwareSpeakForEachOther) {
  ForecastFacts version = run_on("a100-80g", "zero-bubble");
  version.software = "megatron-2022";
  const ForecastFacts here = run_on("a100-80g", "megatron-2022");
  const auto known = models(here, 0, {0.01, 0.02}) + models(version, 2, {0.04}) +
                     models(run_on("a100-80g", "nemo"), 3, {0.3, 0.3, 0.3});
  const auto interval = step_time_interval(here, 1.0, known);
  EXPECT_DOUBLE_EQ(interval->half_width, 0.04);
  EXPECT_EQ(interval->evidence, "a100-80g with megatron-2022 and stacks based on it");
  EXPECT_DOUBLE_EQ(step_time_interval(version, 1.0, known)->half_width, 0.04);
}

TEST(Interval, TakesTheRunsMostAlikeThatTellOfThreeModels) {
  const ForecastFacts here = run_on("a100-80g", "megatron-2022");
  const auto known = models(here, 0, {0.01, 0.02, 0.03}) + models(run_on("h100", "megatron-2022"), 3, {0.2, 0.2, 0.2}) +
                     models(run_on("a100-80g", "nemo"), 6, {0.3, 0.1, 0.1});
  EXPECT_DOUBLE_EQ(step_time_interval(here, 1.0, known)->half_width, 0.03);
  // Without one of its models two are left: the stack on other devices tells.
  EXPECT_DOUBLE_EQ(step_time_interval(here, 1.0, known, 0)->half_width, 0.2);
  // A stack that was never run on the device, and nowhere else: the device with other software.
  EXPECT_DOUBLE_EQ(step_time_interval(run_on("a100-80g", "zero-bubble"), 1.0, known)->half_width, 0.3);
  EXPECT_NE(step_time_interval(run_on("a100-80g", "zero-bubble"), 1.0, known)->evidence.find("several stacks"),
            std::string::npos);
}

TEST(Interval, LargerRunsThanMeasuredNeverHaveNarrowerOnes) {
  ForecastFacts here = run_on("a100-80g", "megatron-2022", true);
  const auto known = models(here, 0, {0.2, 0.2, 0.2}) + models(run_on("h100", "nemo", true), 3, {0.01, 0.01, 0.01});
  here.devices = 65;
  const auto interval = step_time_interval(here, 1.0, known);
  EXPECT_DOUBLE_EQ(interval->half_width, 0.2);
  EXPECT_NE(interval->evidence.find("none on more than 64 GPUs"), std::string::npos) << interval->evidence;
  here.devices = 64;
  EXPECT_EQ(step_time_interval(here, 1.0, known)->evidence.find("none on more"), std::string::npos);
}

TEST(Interval, OutsideMeasuredTerritoryGenerationsAreTheUnits) {
  std::vector<HeldOutErrors> known = models(run_on("a100-80g", "megatron-2022"), 0, {0.01, 0.01, 0.01});
  ForecastFacts blind;
  blind.devices = 8;
  for (const double error : std::vector<double>(30, 0.1))
    known.push_back({blind, static_cast<int>(known.size()), {error}});
  blind.generation = GpuGeneration::kBlackwell;
  known.push_back({blind, 99, {0.6, 0.5}});
  // Two generations: nine tenths of their weight end inside the second, whose models are one of 31.
  const auto of_ada = [&known] {
    ForecastFacts facts = run_on("l40s", "nemo");
    facts.generation = GpuGeneration::kAda;
    return *step_time_interval(facts, 1.0, known);
  };
  EXPECT_DOUBLE_EQ(of_ada().half_width, 0.6);
  EXPECT_NE(of_ada().evidence.find("l40s"), std::string::npos);
  // Another device of a measured generation is held to all runs.
  EXPECT_DOUBLE_EQ(step_time_interval(run_on("a100-40g", "nemo"), 1.0, known)->half_width, 0.01);
  ForecastFacts unlike = run_on("", "nemo");
  unlike.unlike = "a mixture of experts";
  EXPECT_DOUBLE_EQ(step_time_interval(unlike, 1.0, known)->half_width, 0.6);
  EXPECT_FALSE(step_time_interval(unlike, 1.0, {}).has_value());
}

std::string no_files(const std::string& path) {
  throw std::runtime_error(path);
}

TEST(Interval, ForecastsCarryOne) {
  const Job job = job_from(
      R"({"model": "gpt3-175b", "cluster": {"name": "dgx-a100-80g", "nodes": 8},
          "layout": {"tp": 8, "pp": 8, "global_batch_size": 64}, "training": {"stack": "megatron-2022", "tokens": "300B"}})");
  const Result result = forecast(job, no_files).result;
  ASSERT_TRUE(result.interval.has_value());
  EXPECT_GT(result.interval->half_width, 0.0);
  EXPECT_LT(result.interval->half_width, 0.2);
  EXPECT_NEAR(result.interval->low_s + result.interval->high_s, 2.0 * result.iteration.time_s, 1e-9);
  Job faster = job;
  faster.cluster.device.gemm_efficiency = 0.9;
  const Result other = forecast(faster, no_files).result;
  EXPECT_GT(other.interval->half_width, result.interval->half_width);
  EXPECT_NE(other.interval->evidence.find("not the catalogue's"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
