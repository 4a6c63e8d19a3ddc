// The 90 % interval against published steps whose model neither constants nor interval know.

#include "calibrate/validation/held_out.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"

namespace flopcast {
namespace {

std::string no_file(const std::string&) {
  return {};
}

TEST(Coverage, OfTheShippedErrorsIsWhatTheLevelPromises) {
  const std::vector<Coverage> coverages = interval_coverage(shipped_held_out_errors());
  ASSERT_GE(coverages.size(), 5u);
  const Coverage& all = coverages.back();
  EXPECT_EQ(all.device, "");
  int rows = 0;
  for (std::size_t index = 0; index + 1 < coverages.size(); ++index) rows += coverages[index].rows;
  EXPECT_EQ(all.rows, rows);
  EXPECT_GT(all.models, 20);
  const double share = static_cast<double>(all.covered) / all.rows;
  EXPECT_GE(share, 0.85);
  EXPECT_LE(share, 0.97);
}

TEST(Coverage, LeavesTheModelItselfOut) {
  ForecastFacts facts;
  facts.device = "a100-80g";
  facts.stack = "nemo";
  const std::vector<HeldOutErrors> known = {
      {facts, 0, {0.01}}, {facts, 1, {0.02}}, {facts, 2, {0.03}}, {facts, 3, {-0.5, 0.02}}};
  const Coverage all = interval_coverage(known).back();
  EXPECT_EQ(all.models, 4);
  EXPECT_EQ(all.rows, 5);
  EXPECT_EQ(all.covered, 4);  // the half is beyond what the three others show
  EXPECT_NEAR(all.half_width, (3 * 0.5 + 2 * 0.03) / 5, 1e-12);
}

// sim/forecast/held_out_errors.json tells of every published step; flopcast validate --refit --held-out writes it.
TEST(HeldOutFile, HoldsEveryPublishedStep) {
  std::size_t steps = 0;
  for (const PublishedFile& file : shipped_published()) {
    for (const EvaluatedRow& row : evaluate(file, no_file).evaluated) {
      if (row.error() && row.facts && row.facts->unlike.empty()) ++steps;
    }
  }
  std::size_t known = 0;
  std::size_t blind = 0;
  for (const HeldOutErrors& group : shipped_held_out_errors()) {
    (group.facts.device.empty() ? blind : known) += group.errors.size();
  }
  EXPECT_EQ(known, steps);
  EXPECT_EQ(blind, steps);
}

TEST(HeldOutFile, TakesWhatARefitLeftOut) {
  std::vector<PublishedFile> files;
  for (PublishedFile& file : shipped_published()) {
    if (file.source == "simumax") files.push_back(std::move(file));
  }
  ASSERT_EQ(files.size(), 1u);
  Refit refit;
  refit.left_out = {{files[0].rows[0].id, 0.25}};
  const std::vector<HeldOutErrors> groups = held_out_errors(files, {refit}, no_file);
  ASSERT_FALSE(groups.empty());
  EXPECT_DOUBLE_EQ(groups[0].errors[0], 1.0 / 1.25 - 1.0);
  EXPECT_LT(std::abs(groups[0].errors[1]), 0.2);
  EXPECT_EQ(groups[0].facts.device, "b200");
  const nlohmann::json file = nlohmann::json::parse(held_out_file(groups));
  EXPECT_EQ(file.at("groups").size(), groups.size());
  EXPECT_NEAR(file.at("groups").at(0).at("errors").at(0).get<double>(), -0.2, 1e-9);
}

}  // namespace
}  // namespace flopcast
