#include <gtest/gtest.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/catalog/catalogue.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

Forecast forecast_of(const std::string& model, nlohmann::json layout, const char* stage_layers) {
  layout["stage_layers"] = stage_layers;
  const nlohmann::json root = {{"model", model}, {"cluster", "8xdgx-h100"}, {"layout", std::move(layout)}};
  return forecast(read_job(root, Origins()), no_files);
}

// Every model of the catalogue that the layout divides.
TEST(SpreadLayers, BalancedIsNeverSlowerThanUniform) {
  const std::vector<nlohmann::json> layouts = {
      {{"pp", 4}, {"global_batch_size", 128}},
      {{"pp", 8}, {"recompute", "full"}, {"global_batch_size", 64}},
      {{"pp", 8}, {"tp", 2}, {"global_batch_size", 32}},
      {{"pp", 4}, {"vpp", 2}, {"global_batch_size", 64}},
      {{"pp", 4}, {"data_parallel", "fsdp"}, {"global_batch_size", 64}},
      {{"pp", 4}, {"schedule", "pipedream-2bw"}, {"global_batch_size", 64}},
  };
  int pairs = 0;
  int faster = 0;
  double best = 1.0;
  for (const std::string& model : catalogue_names(CatalogueKind::kModels)) {
    for (const nlohmann::json& layout : layouts) {
      std::optional<Forecast> uniform;
      try {
        uniform = forecast_of(model, layout, "uniform");
      } catch (const ConfigError&) {
        continue;
      }
      const Forecast balanced = forecast_of(model, layout, "balanced");
      const std::vector<int>& layers = balanced.step.job.layout.stage_layers;
      EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), 0), balanced.step.job.model.layers);
      const double ratio = balanced.result.iteration.time_s / uniform->result.iteration.time_s;
      ++pairs;
      // A split that fits is preferred to a faster one that does not.
      const bool same_memory = balanced.result.memory.fits == uniform->result.memory.fits;
      EXPECT_TRUE(balanced.result.memory.fits || !uniform->result.memory.fits) << model << layout;
      if (same_memory) {
        EXPECT_LE(ratio, 1.0) << model << layout;
      }
      if (ratio < 1.0) ++faster;
      best = std::min(best, ratio);
    }
  }
  std::cout << "balanced stages: " << faster << " of " << pairs
            << " forecasts faster than uniform, the rest alike; best " << best << " of the time\n";
  EXPECT_GT(pairs, 200);
  EXPECT_GT(faster, pairs / 4);
}

TEST(SpreadLayers, SaysWhatWasChosen) {
  const nlohmann::json layout = {{"pp", 8}, {"global_batch_size", 64}};
  const auto says = [&](const char* split, const std::string& words) {
    for (const std::string& line : forecast_of("llama3-8b", layout, split).result.assumptions) {
      if (line.find(words) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(says("uniform", "layout.stage_layers is 4, 4, 4, 4, 4, 4, 4, 4"));
  EXPECT_TRUE(says("balanced", "layout.stage_layers is balanced"));
}

TEST(SpreadLayers, WordsAreChecked) {
  const Diagnostic wrong = error_report(
      R"({"model": "llama3-8b", "cluster": "1xdgx-h100", "layout": {"global_batch_size": 8, "stage_layers": "balance"}})");
  EXPECT_EQ(wrong.field, "layout.stage_layers");
  EXPECT_NE(wrong.help.find("balanced"), std::string::npos) << wrong.help;
}

}  // namespace
}  // namespace flopcast
