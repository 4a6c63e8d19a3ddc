// Fits a few runs of a source and forecasts all others: the value of `flopcast fit` where the answer is known. The
// catalogue was fitted with most of these rows, so little is left to gain: the error must not grow, and the intervals
// must have their nominal coverage.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "model/job/read_job.hpp"

namespace flopcast {
namespace {

struct Source {
  const char* name;
  const char* source;
  std::function<bool(const Job&)> holds;
  std::size_t every;  // number of rows of which one is used
  double most_error;  // mean absolute error of the held-out rows with four runs fitted
};

// Published jobs name no files.
std::string no_file(const std::string& path) {
  ADD_FAILURE() << "asked for " << path;
  return "";
}

bool any(const Job&) {
  return true;
}
bool sixteen_bits(const Job& job) {
  return job.cluster.device.name == "h100" && job.training.precision == Precision::kBf16;
}
bool up_to_four_nodes(const Job& job) {
  return job.cluster.nodes <= 4;
}
bool on_a100(const Job& job) {
  return job.cluster.device.name == "a100-40g" || job.cluster.device.name == "a100-80g";
}
bool on_h100(const Job& job) {
  return job.cluster.device.name == "h100";
}

std::vector<UserRun> runs_of(const Source& source) {
  std::vector<UserRun> runs;
  for (const PublishedFile& file : shipped_published()) {
    if (file.source != source.source) continue;
    for (const PublishedRow& row : file.rows) {
      const MappedRow mapped = map_row(row, file.about);
      if (!mapped.skip_reason.empty() || mapped.steps_overlap || row.collective || row.layer_s) continue;
      UserRun run;
      run.id = row.id;
      run.root = mapped.job;
      run.job = read_job(*mapped.job, Origins{});
      if (!source.holds(run.job)) continue;
      const std::optional<double> measured = evaluate_row(row, mapped, no_file).measured_s;
      if (!measured) continue;
      run.measured_s = *measured;
      runs.push_back(std::move(run));
    }
  }
  std::vector<UserRun> some;
  for (std::size_t index = 0; index < runs.size(); index += source.every) some.push_back(std::move(runs[index]));
  return some;
}

void PrintTo(const Source& source, std::ostream* stream) {
  *stream << source.name;
}

class HeldOutRuns : public testing::TestWithParam<Source> {};

TEST_P(HeldOutRuns, AFewForecastTheOthers) {
  constexpr int kChoices = 10;
  const std::vector<UserRun> runs = runs_of(GetParam());
  ASSERT_GT(runs.size(), 8u);
  const std::vector<LearningPoint> curve = learning_curve(runs, {1, 2, 4}, RunChoice::kRandom, kChoices, no_file);
  for (const LearningPoint& point : curve) {
    std::cout << fmt::format("{:<36} {:>4} {} {:5.1f} {:5.1f} {:5.1f} {:4.0f} {:5.1f}\n", GetParam().name, runs.size(),
                             point.runs, 1e2 * point.mape, 1e2 * point.median, 1e2 * point.catalogue_mape,
                             1e2 * point.inside, 1e2 * point.half_width);
  }
  EXPECT_LT(curve.back().mape, GetParam().most_error);
  // The result is not much worse than the catalogue's constants, which were fitted to these rows: a few runs must not
  // mislead.
  EXPECT_LT(curve.back().mape, curve.back().catalogue_mape + 0.015);
  EXPECT_GE(curve.back().inside, 0.84);
  EXPECT_LT(curve.back().half_width, curve.front().half_width);
}

INSTANTIATE_TEST_SUITE_P(Published, HeldOutRuns,
                         testing::Values(Source{"NeMo", "dgxc_benchmarking", &sixteen_bits, 1, 0.03},
                                         // One step in eleven stalls, which no constant captures.
                                         Source{"Nanotron", "nanotron_playbook", &up_to_four_nodes, 5, 0.2},
                                         Source{"Mosaic", "mosaic_fsdp", &on_h100, 1, 0.03},
                                         Source{"Bloom", "bigscience_bloom", &any, 1, 0.04},
                                         Source{"VTrainNodes", "vtrain_multinode", &on_a100, 1, 0.09},
                                         Source{"VTrainOneNode", "vtrain_singlenode", &on_a100, 1, 0.09}),
                         [](const testing::TestParamInfo<Source>& source) { return std::string(source.param.name); });

}  // namespace
}  // namespace flopcast
