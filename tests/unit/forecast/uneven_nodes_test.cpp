#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/support/folders.hpp"

namespace flopcast {
namespace {

Forecast forecast_of_nodes(const std::string& stage_layers) {
  const std::string path = (project_folder() / "examples" / "uneven-nodes" / "job.json").string();
  nlohmann::json root = parse_json(read_text(path), path);
  if (!stage_layers.empty()) root["layout"]["stage_layers"] = nlohmann::json::parse(stage_layers);
  return forecast(read_job(root, Origins{}), [](const std::string&) { return std::string(); });
}

// examples/uneven-nodes: four A100 and three V100, seven layers.
TEST(UnevenNodes, TheExampleWaitsForItsSlowNode) {
  const Forecast even = forecast_of_nodes("");
  const std::vector<double>& bubble = even.result.bubble.per_pipeline_rank;
  ASSERT_EQ(bubble.size(), 7u);
  for (int fast = 0; fast < 4; ++fast) {
    for (int slow = 4; slow < 7; ++slow)
      EXPECT_GT(bubble[static_cast<std::size_t>(fast)], bubble[static_cast<std::size_t>(slow)]);
  }
  EXPECT_GT(even.result.bubble.imbalance_s, even.result.bubble.warmup_s + even.result.bubble.cooldown_s);
  EXPECT_EQ(even.result.memory.per_pipeline_rank[3].capacity_gib, 80.0);
  EXPECT_EQ(even.result.memory.per_pipeline_rank[4].capacity_gib, 32.0);
  EXPECT_EQ(even.result.memory.capacity_gib, 32.0);
  // One hop of six leaves its node, over a slower link.
  for (std::size_t hop = 0; hop < 6; ++hop) {
    const double time = even.step.costs.boundaries[hop].forward.value();
    EXPECT_EQ(time > 1.5 * even.step.costs.boundaries[0].forward.value(), hop == 3) << hop;
  }
  const Forecast moved = forecast_of_nodes("[1, 1, 2, 1, 1, 1, 0]");
  EXPECT_LT(moved.result.iteration.time_s, 0.65 * even.result.iteration.time_s);
}

}  // namespace
}  // namespace flopcast
