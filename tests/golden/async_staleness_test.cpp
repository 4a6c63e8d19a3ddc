// Weight versions and staleness of asynchronous schedules, compared with independently computed tables.
#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "sim/program/needs.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Program program_of(const char* name, int ranks, int microbatches, std::optional<int> accumulation) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  request.accumulation = accumulation;
  return generate_schedule(*find_schedule(name), request);
}

class AsyncStaleness : public testing::Test {
 protected:
  void SetUp() override {
    const auto folder = reference_folder();
    if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
    cases_ = Json::parse(read_text(*folder / "goldens" / "async_staleness.json"));
  }
  Json cases_;
};

TEST_F(AsyncStaleness, WeightStashing) {
  int stages = 0;
  for (const Json& expected : cases_.at("pipedream_stashing")) {
    const int ranks = expected.at("p").get<int>();
    const Program program = program_of("pipedream", ranks, expected.at("m").get<int>(), std::nullopt);
    const std::vector<StageVersions> weights = weight_versions(program, WeightPolicy::kStashed, 1);
    ASSERT_EQ(weights.size(), expected.at("stages").size());
    for (const Json& stage : expected.at("stages")) {
      const StageVersions& ours = weights.at(stage.at("stage").get<std::size_t>());
      EXPECT_EQ(ours.version, stage.at("weights_used").get<std::vector<int>>()) << stage;
      EXPECT_EQ(ours.backward_version, ours.version) << stage;
      EXPECT_EQ(ours.delay, stage.at("delay").get<std::vector<int>>()) << stage;
      EXPECT_EQ(ours.versions_kept, stage.at("max_live_versions").get<int>()) << stage;
      // Values that the catalogue promises without replaying.
      const ScheduleInfo& info = *find_schedule("pipedream");
      ScheduleRequest request;
      request.pipeline_ranks = ranks;
      request.microbatches = expected.at("m").get<int>();
      EXPECT_EQ(ours.versions_kept, info.weights.versions(request, stage.at("stage").get<int>()));
      EXPECT_EQ(ours.delay.back(), info.weights.staleness(request, stage.at("stage").get<int>()));
      ++stages;
    }
  }
  std::cout << "weight stashing: " << cases_.at("pipedream_stashing").size() << " cases, " << stages
            << " stages reproduced\n";
  EXPECT_GT(stages, 0);
}

TEST_F(AsyncStaleness, VerticalSync) {
  int cases = 0;
  for (const Json& expected : cases_.at("pipedream_vertical_sync")) {
    const auto delay = expected.at("delay").get<std::vector<int>>();
    const int ranks = expected.at("p").get<int>();
    const Program program = program_of("pipedream", ranks, static_cast<int>(delay.size()), std::nullopt);
    for (const StageVersions& stage : weight_versions(program, WeightPolicy::kVerticalSync, 1)) {
      EXPECT_EQ(stage.delay, delay) << "p " << ranks;
      EXPECT_EQ(stage.backward_version, stage.version);
      EXPECT_EQ(stage.versions_kept, std::min(ranks, static_cast<int>(delay.size())));
    }
    ++cases;
  }
  std::cout << "vertical sync: " << cases << " cases reproduced\n";
  EXPECT_GT(cases, 0);
}

TEST_F(AsyncStaleness, TwoBufferedWeights) {
  int cases = 0;
  for (const Json& expected : cases_.at("pipedream_2bw")) {
    const auto version = expected.at("weight_version").get<std::vector<int>>();
    const int ranks = expected.at("p").get<int>();
    const int accumulation = expected.at("accumulation").get<int>();
    const Program program = program_of("pipedream-2bw", ranks, static_cast<int>(version.size()), accumulation);
    for (const StageVersions& stage : weight_versions(program, WeightPolicy::kDoubleBuffered, accumulation)) {
      EXPECT_EQ(stage.version, version) << "p " << ranks << " a " << accumulation;
      EXPECT_EQ(stage.versions_kept, 2);
      for (std::size_t index = 0; index < version.size(); ++index) {
        EXPECT_EQ(stage.delay[index], static_cast<int>(index) < accumulation ? 0 : 1);
      }
    }
    ++cases;
  }
  std::cout << "two buffered weights: " << cases << " cases reproduced\n";
  EXPECT_GT(cases, 0);
}

TEST(WeightVersions, AFlushKeepsOne) {
  for (const char* name : {"naive", "gpipe", "1f1b", "eager-1f1b", "interleaved", "bfs"}) {
    for (const StageVersions& stage :
         weight_versions(program_of(name, 4, 8, std::nullopt), WeightPolicy::kFlushed, 8)) {
      EXPECT_EQ(stage.version, std::vector<int>(8, 0)) << name;
      EXPECT_EQ(stage.delay, std::vector<int>(8, 0)) << name;
      EXPECT_EQ(stage.versions_kept, 1) << name;
    }
  }
}

// PipeMare, section 2: on average (2 (P - i) + 1) / N updates occur between a forward pass and the update with its
// gradient (i from 1), and the backward pass uses the newest weights.
TEST(WeightVersions, WithoutAStashForwardAndBackwardDiffer) {
  for (const int ranks : {1, 2, 4, 7}) {
    for (const int accumulation : {1, 3, 8}) {
      const int microbatches = 48 * accumulation;
      const Program program = program_of("pipemare", ranks, microbatches, accumulation);
      ScheduleRequest request;
      request.pipeline_ranks = ranks;
      request.microbatches = microbatches;
      request.accumulation = accumulation;
      const WeightRules& promised = find_schedule("pipemare")->weights;
      const std::vector<StageVersions> stages = weight_versions(program, WeightPolicy::kNewest, accumulation);
      for (int stage = 0; stage < ranks; ++stage) {
        const StageVersions& weights = stages[static_cast<std::size_t>(stage)];
        int delayed = 0;  // over whole updates of the steady state
        for (int k = 0; k < microbatches; ++k) {
          const auto index = static_cast<std::size_t>(k);
          EXPECT_EQ(weights.backward_version[index], k / accumulation);
          EXPECT_EQ(weights.delay[index], weights.backward_version[index] - weights.version[index]);
          if (k >= 24 * accumulation && k < 32 * accumulation) delayed += weights.delay[index];
        }
        // The paper's delay counts the microbatch itself, so it is 1 / N if nothing is in between.
        const double mean = static_cast<double>(delayed) / (8 * accumulation) + 1.0 / accumulation;
        EXPECT_DOUBLE_EQ(mean, (2.0 * (ranks - (stage + 1)) + 1) / accumulation) << ranks << " " << stage;
        EXPECT_EQ(weights.largest_delay(), promised.staleness(request, stage)) << ranks << " " << accumulation;
        EXPECT_EQ(weights.versions_kept, promised.versions(request, stage));
      }
    }
  }
}

// Replicas update together, so versions count rounds; NOAM = ceil(4 / 3) = 2 microbatches are admitted to each.
TEST(WeightVersions, OfReplicatedStagesCountRounds) {
  ScheduleRequest request;
  request.pipeline_ranks = 2;
  request.microbatches = 12;
  request.stage_replicas = {3, 1};
  const ScheduleInfo& info = *find_schedule("pipedream");
  const std::vector<StageVersions> stages =
      weight_versions(generate_schedule(info, request), WeightPolicy::kStashed, 1);
  EXPECT_EQ(stages[0].version, (std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(stages[0].delay, (std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(stages[1].version, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  for (int rank = 0; rank < 4; ++rank) {
    const StageVersions& stage = stages[rank < 3 ? 0 : 1];
    EXPECT_EQ(stage.versions_kept, info.weights.versions(request, rank));
    EXPECT_EQ(stage.largest_delay(), info.weights.staleness(request, rank));
  }
}

TEST(WeightVersions, VerticalSyncIsAVariant) {
  const ScheduleName name = parse_schedule_name("pipedream:vertical-sync");
  ScheduleRequest request;
  request.pipeline_ranks = 4;
  request.microbatches = 16;
  request.variant = name.variant;
  EXPECT_EQ(name.info->weight_policy(request), WeightPolicy::kVerticalSync);
  const auto stages = weight_versions(generate_schedule(*name.info, request), WeightPolicy::kVerticalSync, 1);
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(name.info->weights.versions(request, rank), stages[static_cast<std::size_t>(rank)].versions_kept);
    EXPECT_EQ(name.info->weights.staleness(request, rank), stages[static_cast<std::size_t>(rank)].largest_delay());
  }
  request.variant = "stashing";
  EXPECT_EQ(name.info->weight_policy(request), WeightPolicy::kStashed);
}

// With fewer microbatches per update than ranks, two buffers do not suffice, which is why 2BW requires a >= p.
TEST(WeightVersions, TooLittleAccumulationNeedsMoreThanTwoBuffers) {
  const Program program = program_of("pipedream", 8, 64, std::nullopt);
  const std::vector<StageVersions> stages = weight_versions(program, WeightPolicy::kStashed, 2);
  EXPECT_GT(stages.front().versions_kept, 2);
  EXPECT_EQ(stages.back().versions_kept, 1);
}

}  // namespace
}  // namespace flopcast
