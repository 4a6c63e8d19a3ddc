#include "calibrate/validation/evaluate.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flopcast {
namespace {

struct Made {
  int tp = 1;
  int pp = 1;
  int dp = 8;
  int microbatch = 1;
  double measured_s = 1.0;
  double predicted_s = 1.0;
  int batch = 64;
  std::string schedule = "1f1b";
};

class Rows {
 public:
  explicit Rows(const std::vector<Made>& all) : published_(all.size()), evaluated_(all.size()) {
    for (std::size_t index = 0; index < all.size(); ++index) {
      const Made& made = all[index];
      PublishedRow& row = published_[index];
      row.gpu = "A100";
      row.devices_per_node = 8;
      row.layers = 24;
      row.hidden = 1024;
      row.tp = made.tp;
      row.pp = made.pp;
      row.dp = made.dp;
      row.micro_batch_size = made.microbatch;
      row.global_batch_size = made.batch;
      row.schedule = made.schedule;
      evaluated_[index].measured_s = made.measured_s;
      evaluated_[index].predicted_s = made.predicted_s;
      compared_.push_back({&row, &evaluated_[index]});
    }
  }
  const std::vector<ComparedRow>& compared() const { return compared_; }

 private:
  std::vector<PublishedRow> published_;
  std::vector<EvaluatedRow> evaluated_;
  std::vector<ComparedRow> compared_;
};

std::vector<bool> contradicted(const std::vector<Made>& all) {
  return contradicted_rows(Rows(all).compared());
}

using Flags = std::vector<bool>;

TEST(Choices, RegretIsOfTheRowForecastFastest) {
  // Chosen by forecast: the second, at 1.1 s. Fastest: the first, at 1.0 s.
  const Rows rows({{1, 1, 8, 1, 1.0, 0.95}, {1, 1, 8, 2, 1.1, 0.9}, {2, 1, 4, 1, 1.2, 1.2}});
  const ChoiceStatistics statistics = choice_statistics(rows.compared());
  EXPECT_EQ(statistics.groups, 1);
  EXPECT_EQ(statistics.rows, 3);
  EXPECT_NEAR(statistics.mean, 0.1, 1e-12);
  EXPECT_NEAR(statistics.worst, 0.1, 1e-12);
}

TEST(Choices, TwoRowsAreNoChoiceAndAnotherBatchIsAnotherQuestion) {
  const Rows rows({{1, 1, 8, 1, 1.0, 1.0}, {1, 1, 8, 2, 1.1, 0.9}, {1, 1, 8, 1, 2.0, 2.0, 128}});
  EXPECT_EQ(choice_statistics(rows.compared()).groups, 0);
}

// Measured 1.25 times as fast, forecast 1.2 times.
TEST(Choices, GainsOfSchedulesAreComparedToo) {
  const Rows rows({{1, 4, 2, 1, 1.25, 1.5}, {1, 4, 2, 1, 1.0, 1.25, 64, "zb-h1"}, {1, 4, 4, 1, 1.0, 1.0, 64, "zb-h1"}});
  const std::vector<double> errors = speed_up_errors(rows.compared());
  ASSERT_EQ(errors.size(), 1u) << "the third has other ranks";
  EXPECT_NEAR(errors[0], 1.2 / 1.25 - 1.0, 1e-12);
}

TEST(Contradictions, ALargerMicrobatchCannotLoseMore) {
  EXPECT_EQ(contradicted({{1, 1, 8, 1, 1.0}, {1, 1, 8, 2, 1.005}}), (Flags{false, false})) << "repeats differ as much";
  EXPECT_EQ(contradicted({{1, 1, 8, 1, 1.0}, {1, 1, 8, 2, 1.02}}), (Flags{false, true}));
  EXPECT_EQ(contradicted({{1, 1, 8, 1, 1.02}, {1, 1, 8, 2, 1.0}}), (Flags{false, false}));
}

// Four ranks, 8 microbatches of 1 or 4 of 2: ideal pipelines take 1 + 3/8 and 1 + 3/4 times their work.
TEST(Contradictions, TheBubbleOfAnIdealPipelineIsNone) {
  EXPECT_EQ(contradicted({{1, 4, 8, 1, 1.375}, {1, 4, 8, 2, 1.75}}), (Flags{false, false}));
  EXPECT_EQ(contradicted({{1, 4, 8, 1, 1.375}, {1, 4, 8, 2, 1.80}}), (Flags{false, true}));
}

TEST(Contradictions, LessTensorParallelismCannotLoseMoreInsideANode) {
  EXPECT_EQ(contradicted({{2, 1, 8, 1, 1.1}, {8, 1, 2, 1, 1.0}}), (Flags{true, false}));
  EXPECT_EQ(contradicted({{2, 1, 8, 1, 1.1}, {8, 1, 2, 2, 1.0}}), (Flags{false, false})) << "its GEMMs are larger";
  EXPECT_EQ(contradicted({{2, 1, 8, 1, 1.1}, {16, 1, 1, 1, 1.0}}), (Flags{false, false})) << "beyond a node of 8";
}

}  // namespace
}  // namespace flopcast
