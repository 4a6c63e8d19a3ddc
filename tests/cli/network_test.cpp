// Fabrics, as the command line specifies them.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using FabricJson = nlohmann::json;

const std::string& scarce_job() {
  static const std::string file = (project_folder() / "examples" / "oversubscribed-fabric" / "job.json").string();
  return file;
}

FabricJson fabric_answer(std::vector<std::string> words) {
  words.insert(words.end(), {"--format", "json"});
  const CommandResult result = run_flopcast(words);
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return FabricJson::parse(result.standard_output);
}

double step_of(std::vector<std::string> words) {
  return fabric_answer(std::move(words)).at("iteration").at("time_s").get<double>();
}

TEST(NetworkCommand, SimulateTellsContentionAndHotLinks) {
  const FabricJson answer =
      fabric_answer({"simulate", scarce_job(), "--hot-links", "3", "--routing", "hash:2", "--path-samples", "4"});
  const FabricJson rules = FabricJson::parse(read_text(project_folder() / "docs" / "schema" / "result-1.schema.json"));
  EXPECT_EQ(schema_violation(rules, answer), "");
  const FabricJson& network = answer.at("network");
  for (const char* axis : {"tp", "pp", "dp", "cp", "ep"}) {
    const FabricJson& sent = answer.at("communication").at(axis);
    EXPECT_LE(sent.at("exposed_s"), sent.at("total_s")) << axis;
  }
  EXPECT_EQ(network.at("hot_links").size(), 3U);
  double contention = 0.0;
  for (const auto& seconds : network.at("contention_s")) contention += seconds.get<double>();
  EXPECT_NEAR(contention,
              answer.at("iteration").at("time_s").get<double>() - network.at("without_sharing_s").get<double>(), 1e-9);
  EXPECT_EQ(network.at("paths").at("samples"), 4);
  EXPECT_GE(network.at("nccl_tests").at(0).at("alone_busbw_gb_per_s"),
            network.at("nccl_tests").at(0).at("busbw_gb_per_s"));
  EXPECT_EQ(answer.at("job").at("cluster").at("network").at("routing"), "hash");
}

// Flags are equivalent to keys.
TEST(NetworkCommand, FlagsAreKeys) {
  const double four = step_of({"simulate", scarce_job()});
  const double seven = step_of({"simulate", scarce_job(), "--oversubscription", "7"});
  EXPECT_GT(seven, four);
  const FabricJson rows = fabric_answer({"sweep", scarce_job(), "--vary", "cluster.network.oversubscription=4,7"});
  EXPECT_EQ(rows.at("rows").at(0).at("result").at("iteration").at("time_s"), four);
  EXPECT_EQ(rows.at("rows").at(1).at("result").at("iteration").at("time_s"), seven);
  const double none = step_of({"simulate", scarce_job(), "--network", "none"});
  EXPECT_LT(none, four);
  const FabricJson sides = fabric_answer({"compare", scarce_job(), "network=none"});
  EXPECT_EQ(sides.at("b").at("time_s"), none);
  const double degraded = step_of({"simulate", scarce_job(), "--degrade", "tier0.1.up=0.25"});
  EXPECT_GT(degraded, four);
  EXPECT_EQ(step_of({"simulate", scarce_job(), "--degrade", "tier0.1.up=25%"}), degraded);
}

TEST(NetworkCommand, FilesNameFabricsAndCables) {
  const TemporaryFolder folder;
  write_text(folder.path() / "fabric.json", R"({"tiers": [{"nodes": 8, "oversubscription": 7}]})");
  EXPECT_EQ(step_of({"simulate", scarce_job(), "--network", (folder.path() / "fabric.json").string()}),
            step_of({"simulate", scarce_job(), "--oversubscription", "7"}));
  write_text(folder.path() / "cables.csv", "from,to,bandwidth\nnode0,leaf,400GB/s\nnode1,leaf,100GB/s\n");
  const std::vector<std::string> pair = {"simulate",
                                         "--model",
                                         "gpt3-1.3b",
                                         "--cluster",
                                         "2xdgx-h100",
                                         "--tp",
                                         "8",
                                         "--gbs",
                                         "32",
                                         "--links",
                                         (folder.path() / "cables.csv").string()};
  const FabricJson wired = fabric_answer(pair);
  const std::string hottest = wired.at("network").at("hot_links").at(0).at("link").get<std::string>();
  EXPECT_TRUE(hottest == "node1-leaf" || hottest == "leaf-node1") << hottest;
  write_text(folder.path() / "torn.csv", "from,to,bandwidth\nnode0,leaf\n");
  std::vector<std::string> torn = pair;
  torn.back() = (folder.path() / "torn.csv").string();
  const CommandResult refused = run_flopcast(torn);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.standard_error.find("torn.csv:2"), std::string::npos) << refused.standard_error;
}

TEST(NetworkCommand, ShowListsAndDraws) {
  const TemporaryFolder folder;
  const std::string picture = (folder.path() / "fabric.svg").string();
  const FabricJson links = fabric_answer({"network", "show", scarce_job(), "--svg", picture}).at("links");
  double fullest = 0.0;
  for (const FabricJson& link : links) fullest = std::max(fullest, link.at("utilisation").get<double>());
  EXPECT_NEAR(fullest, 1.0, 1e-6);
  EXPECT_NE(read_text(picture).find("tier0.3 up"), std::string::npos);
  const CommandResult alone = run_flopcast({"network", "show", "16xdgx-h100", "--network", "rail-1to1"});
  EXPECT_EQ(alone.exit_code, 0) << alone.standard_error;
  EXPECT_NE(alone.standard_output.find("cards, up"), std::string::npos) << alone.standard_output;
  const CommandResult none = run_flopcast({"network", "show", "16xdgx-h100", "--network", "none"});
  EXPECT_EQ(none.exit_code, 2);
}

TEST(NetworkCommand, PlansRankBySharedLinks) {
  const std::vector<std::string> words = {"plan",  "--model", "gpt3-6.7b", "--cluster", "8xdgx-a100-80g",
                                          "--gbs", "64",      "--top",     "3",         "--network"};
  const auto on = [&words](const std::string& network, const std::vector<std::string>& more) {
    std::vector<std::string> all = words;
    all.push_back(network);
    all.insert(all.end(), more.begin(), more.end());
    return fabric_answer(all);
  };
  const FabricJson plan = on("two-tier-2to1", {"--oversubscription", "16"});
  const FabricJson alone = on("none", {});
  EXPECT_GE(plan.at("best").at("result").at("iteration").at("time_s"),
            alone.at("best").at("result").at("iteration").at("time_s"));
  EXPECT_TRUE(plan.at("best").at("result").contains("network"));
  EXPECT_GT(plan.at("space").at("enumerated"), alone.at("space").at("enumerated")) << "both orders of the axes";
}

TEST(NetworkCommand, MistakesNameTheFlag) {
  const auto refused = [](std::vector<std::string> flags, const std::string& says) {
    std::vector<std::string> words = {"simulate", scarce_job()};
    words.insert(words.end(), flags.begin(), flags.end());
    const CommandResult result = run_flopcast(words);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(says), std::string::npos) << result.standard_error;
  };
  refused({"--network", "two-teir-2to1"}, "two-tier-2to1");
  refused({"--routing", "hashed"}, "spread, dst, hash");
  refused({"--oversubscription", "0"}, "out of range");
  refused({"--degrade", "tier0.9.up=0.5"}, "flopcast network show");
  refused({"--degrade", "tier0.1.up"}, "LINK=SHARE");
  refused({"--degrade", "tier0.1.up=0.5,tier0.1.up=0.5"}, "tier0.1.up is given twice");
  refused({"--hot-links", "0"}, "--hot-links");
  refused({"--path-samples", "3"}, "--routing hash");
  refused({"--network", "none", "--hot-links", "3"}, "cluster.network");
  refused({"--jitter", "5%"}, "--network none");
}

}  // namespace
}  // namespace flopcast
