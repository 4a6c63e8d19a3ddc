// The 90 % interval, tested on published steps of sources that it was not built from.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

TEST(Coverage, OfTheShippedErrorsIsWhatTheLevelPromises) {
  const std::vector<Coverage> coverages = interval_coverage(shipped_source_errors());
  ASSERT_GE(coverages.size(), 15u);
  EXPECT_GE(mean_coverage(coverages), 0.85);
  EXPECT_LE(mean_coverage(coverages), 0.95);
}

TEST(Coverage, LeavesTheSourceItselfOut) {
  ForecastFacts facts;
  facts.device = "a100-80g";
  std::vector<SourceErrors> known;
  for (int source = 0; source < 8; ++source) {
    known.push_back({source, facts, {0.01 * source, -0.01 * source, 0.0}});
  }
  known.push_back({8, facts, {2.0, 0.0}});
  const Coverage far = interval_coverage(known).back();
  EXPECT_EQ(far.source, 8);
  EXPECT_EQ(far.rows, 2);
  EXPECT_EQ(far.covered, 1);
}

// Errors of a refit on rows of models that it was not fitted to.
std::map<std::string, double> errors_of_models_left_out() {
  std::map<std::string, double> errors;
  const std::vector<PublishedFile> files = shipped_published();
  for (const FitPlan& plan : shipped_fits()) {
    if (plan.name.rfind("experts", 0) != 0) continue;
    for (const LeftOutRow& row : refit(plan, files, no_files).left_out) errors[row.id] = row.error;
  }
  return errors;
}

// Leaves out each model with experts completely, from every source: from the constants fitted to its rows, and from the
// data of the interval. Grok-1 and DeepSeek-V3 on H800 had no part in the fit.
TEST(Coverage, HoldsForModelsWithExpertsLeftOut) {
  const std::map<std::string, double> refitted = errors_of_models_left_out();
  ASSERT_GE(refitted.size(), 20u);
  std::vector<SourceSummary> sources;
  for (const PublishedFile& file : shipped_published()) sources.push_back(evaluate(file, no_files));
  // Identifies models by width and heads, because Grok-1 was measured in six depths.
  const auto model_of = [](const EvaluatedRow& row) {
    std::istringstream words(row.question);
    std::string layers;
    std::string width;
    std::string heads;
    words >> layers >> width >> heads;
    return width + " " + heads;
  };
  std::set<std::string> models;
  for (const SourceSummary& source : sources) {
    for (const EvaluatedRow& row : source.evaluated) {
      if (row.facts && row.facts->experts) models.insert(model_of(row));
    }
  }
  EXPECT_EQ(models.size(), 3u);
  std::vector<double> half_widths;
  std::vector<double> errors;
  int inside = 0;
  for (const std::string& model : models) {
    std::vector<SourceSummary> others = sources;
    std::vector<EvaluatedRow> own;
    for (SourceSummary& source : others) {
      std::vector<EvaluatedRow> kept;
      for (EvaluatedRow& row : source.evaluated) (model_of(row) == model ? own : kept).push_back(row);
      source.evaluated = kept;
    }
    const IntervalModel interval_of(source_errors(others));
    for (const EvaluatedRow& row : own) {
      if (!row.error() || !row.facts->experts) continue;
      const auto found = refitted.find(row.id);
      errors.push_back(found == refitted.end() ? *row.error() : found->second);
      const auto interval = interval_of.interval(*row.facts, 1.0);
      ASSERT_TRUE(interval);
      half_widths.push_back(interval->half_width);
      const double measured = 1 / (1 + errors.back());
      inside += interval->low_s <= measured && measured <= interval->high_s ? 1 : 0;
    }
  }
  std::sort(half_widths.begin(), half_widths.end());
  const double median = half_widths[half_widths.size() / 2];
  const double share = static_cast<double>(inside) / static_cast<double>(half_widths.size());
  const ErrorStatistics statistics = statistics_of(errors);
  std::cout << "experts, models left out: " << half_widths.size() << " steps of " << models.size() << " models, MAPE "
            << statistics.mape * 1e2 << " %, largest " << statistics.max * 1e2 << " %, " << share * 1e2
            << " % inside a median of +- " << median * 1e2 << " %\n";
  EXPECT_GE(half_widths.size(), 40u);
  EXPECT_LT(statistics.mape, 0.08);
  EXPECT_GE(share, 0.85);
  EXPECT_LE(median, 0.25);
}

// flopcast validate --source-errors writes sim/forecast/source_errors.json.
TEST(SourceErrorsFile, HoldsWhatTheForecastsMissBy) {
  EvaluatedRow row;
  row.predicted_s = 2.0;
  row.measured_s = 2.5;
  row.facts = ForecastFacts{};
  row.facts->exposed = 0.13;
  SourceSummary source;
  source.evaluated = {row, row};
  const std::vector<SourceErrors> groups = source_errors({SourceSummary{}, source});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].source, 1);
  EXPECT_DOUBLE_EQ(groups[0].facts.exposed, 0.15);
  ASSERT_EQ(groups[0].errors.size(), 2u);
  EXPECT_NEAR(groups[0].errors[0], std::log(1.25), 1e-12);
  const nlohmann::json file = nlohmann::json::parse(source_errors_file(groups));
  EXPECT_NEAR(file.at("groups").at(0).at("errors").at(0).get<double>(), 0.2231, 1e-9);
}

}  // namespace
}  // namespace flopcast
