// `flopcast run`: real training on threads, seen from outside. What is asserted is structure, never time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

// Eight ranks of a node, a model that trains in milliseconds.
std::vector<std::string> run_of(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"run",
                                    "--cluster",
                                    "dgx-a100-80g",
                                    "--model.layers",
                                    "4",
                                    "--model.hidden",
                                    "16",
                                    "--model.heads",
                                    "4",
                                    "--model.vocab",
                                    "32",
                                    "--model.sequence_length",
                                    "8",
                                    "--gbs",
                                    "16",
                                    "--precision",
                                    "fp32",
                                    "--steps",
                                    "3"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

class Run : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("flopcast-run-test-" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
};

TEST_F(Run, ShowsForecastReplayAndMeasurement) {
  const CommandResult result = run_flopcast(run_of({"--pp", "2", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json rows = Json::parse(result.standard_output);
  ASSERT_GT(rows.size(), 4U);
  EXPECT_EQ(rows[0].at("term"), "step time");
  for (const char* column : {"forecast", "replay", "measured"})
    EXPECT_GT(rows[0].at(column).get<double>(), 0) << column;
}

TEST_F(Run, KeepsTheMeasurementFile) {
  const fs::path file = folder_ / "measured.json";
  const CommandResult result =
      run_flopcast(run_of({"--pp", "4", "--tp", "2", "--zero", "1", "-o", file.string(), "--svg",
                           (folder_ / "m.svg").string(), "--trace", (folder_ / "m.trace.json").string()}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_TRUE(fs::exists(folder_ / "m.svg"));
  EXPECT_TRUE(fs::exists(folder_ / "m.trace.json"));
  const Json measurement = Json::parse(read_text(file));
  EXPECT_EQ(measurement.at("schema"), "flopcast.measurement/1");
  const Json& run = measurement.at("run");
  EXPECT_EQ(run.at("complete"), true);
  ASSERT_EQ(run.at("steps").size(), 3U);
  for (const Json& step : run.at("steps")) {
    EXPECT_TRUE(std::isfinite(step.at("loss").get<double>()));
    EXPECT_EQ(step.at("wall_s").size(), 8U);
    const Json& ranks = step.at("timeline").at("ranks");
    ASSERT_EQ(ranks.size(), 4U);
    for (const Json& spans : ranks) {
      std::size_t forwards = 0;
      for (const Json& span : spans) {
        EXPECT_LE(span.at("start_ps").get<std::int64_t>(), span.at("end_ps").get<std::int64_t>());
        forwards += span.at("kind") == "forward" ? 1 : 0;
      }
      EXPECT_EQ(forwards, 16U);
    }
    // 16 activations over each of three boundaries, and as many gradients back.
    EXPECT_EQ(step.at("timeline").at("transfers").size(), 96U);
  }
}

TEST_F(Run, EqualRunsLearnEqually) {
  const auto losses = [&](const std::string& name) {
    const fs::path file = folder_ / name;
    const CommandResult result = run_flopcast(run_of({"--pp", "2", "-o", file.string()}));
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    std::vector<double> values;
    const Json measurement = Json::parse(read_text(file));
    for (const Json& step : measurement.at("run").at("steps")) values.push_back(step.at("loss"));
    return values;
  };
  const std::vector<double> first = losses("a.json");
  EXPECT_EQ(first, losses("b.json"));
  EXPECT_EQ(first.size(), 3U);
}

TEST_F(Run, CompressedGradientsTakeFewerBytes) {
  const auto bytes_of = [&](const std::string& compression) {
    const fs::path file = folder_ / "compressed.json";
    const CommandResult result =
        run_flopcast(run_of({"--pp", "2", "--layout.compression", compression, "-o", file.string()}));
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    const Json run = Json::parse(read_text(file)).at("run");
    EXPECT_EQ(run.at("compression"), compression);
    double bytes = 0;
    for (const Json& rank : run.at("steps").front().at("traffic_by_rank")) {
      for (const Json& entry : rank) {
        if (entry.at("axis") == "dp") bytes += entry.at("bytes_sent").get<double>();
      }
    }
    return bytes;
  };
  const double whole = bytes_of("none");
  EXPECT_GT(whole, 0.0);
  EXPECT_NEAR(bytes_of("8bit") / whole, 1.0 / 4, 0.02);
  EXPECT_NEAR(bytes_of("4bit") / whole, 1.0 / 8, 0.02);
  // Four replicas: three times 8 bytes for 1 % of the values instead of 2 · 3/4 times 4 bytes for each.
  EXPECT_NEAR(bytes_of("topk:0.01") / whole, 0.04, 0.005);
}

TEST_F(Run, MistakesAreNamed) {
  const auto complaint = [](const std::vector<std::string>& more, int exit_code) {
    const CommandResult result = run_flopcast(run_of(more));
    EXPECT_EQ(result.exit_code, exit_code) << result.standard_error;
    return result.standard_error;
  };
  EXPECT_NE(complaint({"--backend", "smoke"}, 2).find("unknown backend \"smoke\""), std::string::npos);
  EXPECT_NE(complaint({"--recompute", "full"}, 2).find("layout.recompute"), std::string::npos);
  EXPECT_NE(complaint({"--layout.compression", "powersgd:2"}, 2).find("8bit, 4bit, topk:F"), std::string::npos);
  EXPECT_NE(complaint({"--layout.compression", "8bit", "--zero", "2"}, 2).find("zero 0"), std::string::npos);
  EXPECT_NE(complaint({"--schedule", "pipedream", "--pp", "2"}, 2).find("model.tied_embeddings"), std::string::npos);
  EXPECT_NE(complaint({"--learning-rate", "-1"}, 2).find("positive"), std::string::npos);
  EXPECT_NE(complaint({"-o", "/dev/full"}, 4).find("/dev/full"), std::string::npos);
  const CommandResult huge = run_flopcast({"run", "--model", "gpt3-175b", "--cluster", "dgx-a100-80g", "--gbs", "8"});
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_NE(huge.standard_error.find("this machine has"), std::string::npos) << huge.standard_error;
}

}  // namespace
}  // namespace flopcast
