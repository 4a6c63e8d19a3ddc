// Intervals from the errors of sources: the fit, what widens them, and their explanations.

#include "sim/forecast/interval.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

ForecastFacts run_on(const std::string& device, GpuGeneration generation = GpuGeneration::kHopper) {
  ForecastFacts facts;
  facts.device = device;
  facts.generation = generation;
  facts.stack = "nemo";
  return facts;
}

// Sources numbered from `first`, each with these errors around its own centre.
std::vector<SourceErrors> sources(const ForecastFacts& facts, int first, const std::vector<double>& centres) {
  std::vector<SourceErrors> all;
  for (const double centre : centres) {
    all.push_back({first++, facts, {centre - 0.05, centre - 0.02, centre, centre + 0.02, centre + 0.05}});
  }
  return all;
}

const std::vector<double> kCentres = {-0.06, -0.02, 0.0, 0.03, 0.05, 0.01, -0.03, 0.08};

TEST(Interval, CentreAndEndsFollowTheFit) {
  const IntervalModel model(sources(run_on("h100"), 0, kCentres));
  EXPECT_NEAR(model.centre(), 0.0075, 0.02);
  EXPECT_NEAR(model.between_sources(), 0.04, 0.03);
  EXPECT_NEAR(model.within_source(), 0.04, 0.02);
  const StepTimeInterval found = model.interval(run_on("h100"), 10.0).value();
  const double reach = 2.3534 * std::hypot(model.between_sources(), model.within_source());
  EXPECT_NEAR(found.low_s, 10.0 * std::exp(model.centre() - reach), 1e-9);
  EXPECT_NEAR(found.high_s, 10.0 * std::exp(model.centre() + reach), 1e-9);
  EXPECT_NEAR(found.half_width, (found.high_s - found.low_s) / 20.0, 1e-12);
  EXPECT_DOUBLE_EQ(found.factor, 1.0);
  EXPECT_EQ(found.sources, 8);
}

// Four stages on four nodes: 28 microbatches and three more to fill, two neighbours each, 0.55 s per hand-over.
TEST(Interval, HandOversThatMayStallRaiseTheUpperEndAlone) {
  const auto job_with = [](const std::string& pp) {
    const std::string layout = R"("layout": {"tp": 8, "pp": )" + pp + R"(, "global_batch_size": 28})";
    const std::string text = R"({"model": "llama3-8b", "cluster": "4xp5", "training": {"stack": "nanotron"}, )";
    return forecast(job_from(text + layout + "}"), no_files).result;
  };
  const Result stalls = job_with("4");
  ASSERT_TRUE(stalls.interval);
  EXPECT_NEAR(stalls.interval->stalls_s, 0.55 * 2 * (28 + 3), 1e-9);
  EXPECT_NEAR(stalls.interval->half_width * 2 * stalls.iteration.time_s,
              stalls.interval->high_s - stalls.interval->stalls_s - stalls.interval->low_s, 1e-9);
  EXPECT_NE(stalls.interval->evidence.find("stalled"), std::string::npos);
  const Result alone = job_with("1");
  ASSERT_TRUE(alone.interval);
  EXPECT_EQ(alone.interval->stalls_s, 0.0);
  EXPECT_EQ(alone.interval->evidence.find("stalled"), std::string::npos);
}

TEST(Interval, ASourceIsOneVoteHoweverManyRowsItHas) {
  const std::vector<SourceErrors> few = sources(run_on("h100"), 0, kCentres);
  std::vector<SourceErrors> many = few;
  for (int copy = 0; copy < 30; ++copy) {
    for (const double error : few.back().errors) many.back().errors.push_back(error);
  }
  EXPECT_NEAR(IntervalModel(many).interval(run_on("h100"), 1.0)->half_width,
              IntervalModel(few).interval(run_on("h100"), 1.0)->half_width, 0.01);
}

TEST(Interval, OneFarSourceWidensIt) {
  std::vector<SourceErrors> known = sources(run_on("h100"), 0, kCentres);
  const double before = IntervalModel(known).interval(run_on("h100"), 1.0)->half_width;
  known.push_back({20, run_on("h100"), {0.7, 0.72, 0.69}});
  EXPECT_GT(IntervalModel(known).interval(run_on("h100"), 1.0)->half_width, before);
  EXPECT_NEAR(IntervalModel(known, 20).interval(run_on("h100"), 1.0)->half_width, before, 1e-12);
}

TEST(Interval, WidensWithTheDistanceFromWhatWasMeasured) {
  const IntervalModel model(sources(run_on("h100"), 0, kCentres));
  const double near = model.interval(run_on("h100"), 1.0)->half_width;
  const auto with = [&model](auto change) {
    ForecastFacts facts = run_on("h100");
    change(facts);
    return model.interval(facts, 1.0).value();
  };
  EXPECT_DOUBLE_EQ(with([](ForecastFacts& facts) { facts.experts = true; }).factor, 2.0);
  EXPECT_DOUBLE_EQ(with([](ForecastFacts& facts) { facts.exposed = 0.3; }).factor, 1.3);
  EXPECT_DOUBLE_EQ(with([](ForecastFacts& facts) { facts.slow_launches = true; }).factor, 2.0);
  EXPECT_DOUBLE_EQ(with([](ForecastFacts& facts) { facts.unlike = "nodes that differ"; }).factor, 2.0);
  const StepTimeInterval other = model.interval(run_on("mi300x", GpuGeneration::kCdna3), 1.0).value();
  EXPECT_DOUBLE_EQ(other.factor, 2.0);
  EXPECT_GT(other.half_width, near);
  EXPECT_GT(other.low_s, 0.0);
  EXPECT_NE(other.evidence.find("no step on mi300x"), std::string::npos) << other.evidence;
  EXPECT_NE(other.evidence.find("no published run on a device of generation cdna3"), std::string::npos);
  EXPECT_NE(model.interval(run_on("h100"), 1.0)->evidence.find("40 steps of 8 sources on h100 in 16 bits"),
            std::string::npos);
}

TEST(Interval, NeedsThreeSources) {
  EXPECT_FALSE(IntervalModel(sources(run_on("h100"), 0, {0.0, 0.1})).interval(run_on("h100"), 1.0).has_value());
}

TEST(Interval, IsPartOfEveryForecast) {
  const Job job = job_from(R"({"model": "gpt3-1.3b", "cluster": "dgx-h100", "layout": {"global_batch_size": 16}})");
  const Result result = forecast(job, no_files).result;
  ASSERT_TRUE(result.interval.has_value());
  EXPECT_GT(result.interval->half_width, 0.03);
  EXPECT_LT(result.interval->half_width, 0.2);
  EXPECT_LT(result.interval->low_s, result.iteration.time_s);
  EXPECT_GT(result.interval->high_s, result.iteration.time_s);
  Job faster = job;
  faster.cluster.device.gemm_efficiency = 0.9;
  const Result other = forecast(faster, no_files).result;
  EXPECT_GT(other.interval->half_width, result.interval->half_width);
  EXPECT_NE(other.interval->evidence.find("not the catalogue's"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
