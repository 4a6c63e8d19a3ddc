// The 90 % interval against published steps of sources that it knows nothing of.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/held_out.hpp"
#include "calibrate/validation/published_row.hpp"

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
