// Runs simulated by flopcast's own forecasts, on a device and software whose constants are known and differ from the
// catalogue's.

#include "calibrate/runs/fit_runs.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/interval.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Json own_job(int tp, int pp, int nodes, int batch = 64) {
  return {{"model", "llama3-8b"},
          {"cluster", {{"name", "dgx-h100"}, {"nodes", nodes}}},
          {"layout",
           {{"tp", tp},
            {"pp", pp},
            {"zero", 1},
            {"sequence_parallel", tp > 1},
            {"micro_batch_size", 1},
            {"global_batch_size", batch}}},
          {"training", {{"stack", "nemo"}, {"sequence_length", 4096}, {"precision", "bf16"}}}};
}

// Step time of a job on devices with `constant` scaled by `factor` from the catalogue's value.
double time_with(const Json& root, const std::string& constant, double factor) {
  Job job = read_job(root, Origins{});
  find_run_constant(constant)->scale(job, factor);
  return step_time(job, no_files);
}

UserRun run_of(const std::string& id, const Json& root, const std::string& constant, double factor) {
  UserRun run;
  run.id = id;
  run.root = root;
  run.job = read_job(root, Origins{});
  run.measured_s = time_with(root, constant, factor);
  return run;
}

std::vector<UserRun> runs_of(int count, const std::string& constant, double factor) {
  const std::vector<Json> jobs = {own_job(1, 1, 1), own_job(2, 1, 1), own_job(4, 2, 1),
                                  own_job(8, 1, 2), own_job(2, 2, 2), own_job(1, 4, 2)};
  std::vector<UserRun> runs;
  for (int index = 0; index < count; ++index) {
    runs.push_back(run_of("run" + std::to_string(index), jobs.at(static_cast<std::size_t>(index)), constant, factor));
  }
  return runs;
}

Result forecast_with(const UserFit& fit, Json root) {
  root["training"]["profile"] = Json::parse(write_profile(fit.profile));
  return forecast(read_job(root, Origins{}), no_files).result;
}

const OwnConstant& constant_of(const UserFit& fit, const std::string& name) {
  const auto found = std::find_if(fit.constants.begin(), fit.constants.end(),
                                  [&name](const OwnConstant& constant) { return constant.name == name; });
  EXPECT_NE(found, fit.constants.end()) << name;
  return *found;
}

TEST(FitRuns, FindsSlowerProductsAndForecastsOthers) {
  const char* products = "device.gemm_efficiency";
  const UserFit fit = fit_user_runs(runs_of(5, products, 0.85), no_files);
  const OwnConstant& found = constant_of(fit, products);
  EXPECT_NEAR(found.value / found.catalogue, 0.85, 0.04);
  EXPECT_LT(found.low, 0.85 * found.catalogue);
  EXPECT_GT(found.high, 0.85 * found.catalogue);
  const Json unseen = own_job(4, 1, 4, 256);
  EXPECT_NEAR(forecast_with(fit, unseen).iteration.time_s / time_with(unseen, products, 0.85), 1.0, 0.02);
  EXPECT_GT(std::abs(time_with(unseen, products, 1.0) / time_with(unseen, products, 0.85) - 1.0), 0.08);
}

TEST(FitRuns, IntervalsShrinkWithRuns) {
  const char* products = "device.gemm_efficiency";
  double before = forecast(read_job(own_job(4, 1, 4, 256), Origins{}), no_files).result.interval->half_width;
  double width = 1.0;
  for (const int count : {1, 2, 4, 6}) {
    const UserFit fit = fit_user_runs(runs_of(count, products, 0.95), no_files);
    const OwnConstant& found = constant_of(fit, products);
    EXPECT_LT(found.high - found.low, width) << count;
    width = found.high - found.low;
    const double interval = forecast_with(fit, own_job(4, 1, 4, 256)).interval->half_width;
    if (count > 1) {
      EXPECT_LT(interval, before) << count;
    }
    before = interval;
  }
}

TEST(FitRuns, KeepsWhatRunsDoNotTell) {
  const UserFit fit = fit_user_runs(runs_of(2, "device.gemm_efficiency", 0.95), no_files);  // both inside one node
  const auto undetermined = [&fit](const std::string& name) {
    return std::any_of(fit.undetermined.begin(), fit.undetermined.end(),
                       [&name](const UndeterminedConstant& constant) { return constant.name == name; });
  };
  EXPECT_TRUE(undetermined("nic_efficiency"));
  EXPECT_FALSE(fit.profile.cluster->contains("nic_efficiency"));
  ASSERT_TRUE(fit.next.has_value());
  EXPECT_TRUE(forecast(read_job(*fit.next->job, Origins{}), no_files).result.memory.fits);
  EXPECT_NE(fit.next->why.find("±"), std::string::npos);
}

TEST(FitRuns, ARunUnlikeTheOthersCountsForLittle) {
  std::vector<UserRun> runs = runs_of(6, "device.gemm_efficiency", 0.95);
  runs[3].measured_s *= 2.5;
  const UserFit fit = fit_user_runs(runs, no_files);
  EXPECT_FALSE(fit.runs[3].followed);
  EXPECT_TRUE(fit.runs[0].followed);
  const OwnConstant& found = constant_of(fit, "device.gemm_efficiency");
  EXPECT_NEAR(found.value / found.catalogue, 0.95, 0.05);
}

TEST(FitRuns, FindsASlowHost) {
  std::vector<UserRun> runs;
  for (const int tp : {2, 4, 8}) {
    Json root = own_job(tp, 1, 1, 32);
    root["model"] = {{"layers", 16}, {"hidden", 1024}, {"heads", 16}, {"vocab", 32000}, {"sequence_length", 1024}};
    root["training"]["sequence_length"] = 1024;
    runs.push_back(run_of("tp" + std::to_string(tp), root, "stack.host_time_per_kernel", 1.5));
  }
  const UserFit fit = fit_user_runs(runs, no_files);
  const OwnConstant& found = constant_of(fit, "stack.host_time_per_kernel");
  EXPECT_GT(found.value / found.catalogue, 1.25);
  EXPECT_EQ(fit.profile.stack->at("name"), "nemo");
  EXPECT_TRUE(fit.profile.stack->contains("host_time_per_kernel"));
  // The fit does not apply to other software.
  Json other = runs[0].root;
  other["training"]["stack"] = "deepspeed";
  const Result result = forecast_with(fit, other);
  const bool said = std::any_of(result.assumptions.begin(), result.assumptions.end(), [](const std::string& text) {
    return text.find("do not apply to stack deepspeed") != std::string::npos;
  });
  EXPECT_TRUE(said);
}

TEST(FitRuns, RefusesRunsOfTwoDevices) {
  std::vector<UserRun> runs = runs_of(1, "device.gemm_efficiency", 0.9);
  Json other = own_job(1, 1, 1);
  other["cluster"]["name"] = "dgx-a100-80g";
  runs.push_back(run_of("a100", other, "device.gemm_efficiency", 0.9));
  EXPECT_THROW(fit_user_runs(runs, no_files), ConfigError);
}

TEST(FitRuns, TheProfileAndItsAnswersReadBack) {
  const UserFit fit = fit_user_runs(runs_of(4, "device.gemm_efficiency", 0.9), no_files);
  const std::string text = write_profile(fit.profile);
  const DeviceProfile again = read_device_profile(Json::parse(text), "training.profile", Origins{});
  EXPECT_EQ(write_profile(again), text);
  // The job in a result reproduces that result, including its interval.
  Json root = own_job(2, 2, 2, 128);
  root["training"]["profile"] = Json::parse(text);
  const Json first = Json::parse(write_result(forecast(read_job(root, Origins{}), no_files)));
  const Json second = Json::parse(write_result(forecast(read_job(first.at("job"), Origins{}), no_files)));
  EXPECT_EQ(first.at("iteration"), second.at("iteration"));
  EXPECT_EQ(first.at("step_time_interval"), second.at("step_time_interval"));
}

TEST(FitRuns, ComplainsAboutDamagedCovariances) {
  const UserFit fit = fit_user_runs(runs_of(3, "device.gemm_efficiency", 0.9), no_files);
  Json profile = Json::parse(write_profile(fit.profile));
  profile["fitted"]["covariance"].push_back(1.0);
  EXPECT_THROW(read_device_profile(profile, "training.profile", Origins{}), ConfigError);
  profile["fitted"]["covariance"] = Json::array();
  profile["fitted"]["constants"] = {"device.gemm_efficiency"};
  profile["fitted"]["covariance"] = {-1.0};
  EXPECT_THROW(read_device_profile(profile, "training.profile", Origins{}), ConfigError);
}

TEST(FitRuns, StudentsQuantiles) {
  EXPECT_NEAR(student_95(3.0), 2.3534, 0.01);
  EXPECT_NEAR(student_95(10.0), 1.8125, 0.002);
  EXPECT_NEAR(student_95(1e6), 1.6449, 1e-3);
}

TEST(LearningCurve, ErrsLessWithMoreRuns) {
  const std::vector<UserRun> runs = runs_of(6, "device.gemm_efficiency", 0.85);
  for (const RunChoice choice : {RunChoice::kRandom, RunChoice::kAdvised}) {
    const std::vector<LearningPoint> curve = learning_curve(runs, {1, 4}, choice, 4, no_files);
    ASSERT_EQ(curve.size(), 2u);
    EXPECT_LT(curve[0].mape, curve[0].catalogue_mape);
    EXPECT_LT(curve[1].mape, curve[0].mape);
  }
  EXPECT_THROW(learning_curve(runs, {6}, RunChoice::kRandom, 1, no_files), ConfigError);
}

// Worked out by hand: covariance {4, 1; 1, 9} times (1, 2) is (6, 19), and (1, 2) · (6, 19) = 44.
TEST(Posterior, SpreadsFollowTheCovariance) {
  Posterior posterior;
  posterior.at = {0.0, 0.0};
  posterior.covariance = {4.0, 1.0, 1.0, 9.0};
  EXPECT_EQ(posterior.times({1.0, 2.0}), (std::vector<double>{6.0, 19.0}));
  EXPECT_DOUBLE_EQ(posterior.spread_along({1.0, 2.0}), std::sqrt(44.0));
  EXPECT_DOUBLE_EQ(posterior.spread(1), 3.0);
}

// Rows on the prior's mean have no residuals: each of n weighs (4 + 1) / 4, and the prior's rows determine the noise,
// so the precision is 1 / spread² + n · 5/4 / noise².
TEST(Posterior, RowsWithoutResidualsAddTheirPrecision) {
  RobustRows rows;
  rows.slopes.assign(2, {1.0});
  rows.left.assign(2, 0.0);
  rows.distances.assign(2, 1.0);
  rows.prior_spreads = {0.5};
  rows.usual_noise = 0.1;
  rows.prior_rows = 8.0;
  const Posterior posterior = robust_posterior(rows);
  const double noise = 0.1 * std::sqrt(8.0 / 10.0);
  EXPECT_DOUBLE_EQ(posterior.at[0], 0.0);
  EXPECT_DOUBLE_EQ(posterior.noise, noise);
  EXPECT_NEAR(posterior.spread(0), 1.0 / std::sqrt(4.0 + 2.0 * 1.25 / (noise * noise)), 1e-12);
}

TEST(Posterior, AnOutlierCountsLittle) {
  RobustRows rows;
  rows.slopes.assign(6, {1.0});
  rows.left = {0.2, 0.2, 0.2, 0.2, 0.2, 2.0};
  rows.distances.assign(6, 1.0);
  rows.prior_spreads = {10.0};
  rows.usual_noise = 0.05;
  rows.prior_rows = 8.0;
  const Posterior posterior = robust_posterior(rows);
  EXPECT_NEAR(posterior.at[0], 0.2, 0.05);
  EXPECT_LT(posterior.weights[5], 0.1 * posterior.weights[0]);
}

}  // namespace
}  // namespace flopcast
