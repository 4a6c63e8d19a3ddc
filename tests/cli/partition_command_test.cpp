#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string graph() {
  return (project_folder() / "examples" / "heavy-head" / "two-branches.graph.txt").string();
}

Json answer_to(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "partition");
  arguments.insert(arguments.end(), {"--format", "json"});
  const CommandResult result = run_flopcast(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return Json::parse(result.standard_output);
}

TEST(PartitionCommand, SplitsBareCosts) {
  const Json answer = answer_to({"--costs", "3,1,4,1,5,9,2,6", "--stages", "3"});
  EXPECT_EQ(answer.at("stage_layers"), Json::parse("[5, 2, 1]"));
  EXPECT_EQ(answer.at("bottleneck"), 14.0);
}

// The printed list gives the promised step time.
TEST(PartitionCommand, ItsListIsTheJobsList) {
  const std::vector<std::string> job = {"--model", "llama3-8b", "--cluster", "1xdgx-h100", "--pp", "8", "--gbs", "32"};
  const Json answer = answer_to(job);
  std::string list;
  for (const auto& layers : answer.at("stage_layers")) list += (list.empty() ? "" : ",") + layers.dump();
  const auto step_with = [&job](const std::string& layers) {
    std::vector<std::string> arguments = {"simulate"};
    arguments.insert(arguments.end(), job.begin(), job.end());
    arguments.insert(arguments.end(), {"--layout.stage_layers", layers, "--format", "json"});
    return Json::parse(run_flopcast(arguments).standard_output).at("iteration").at("time_s").get<double>();
  };
  EXPECT_EQ(step_with(list), answer.at("step_s").get<double>());
  EXPECT_EQ(step_with("balanced"), answer.at("step_s").get<double>());
  EXPECT_EQ(step_with("uniform"), answer.at("uniform_step_s").get<double>());
  EXPECT_LT(answer.at("step_s").get<double>(), 0.85 * answer.at("uniform_step_s").get<double>());
}

TEST(PartitionCommand, AGraphsListSimulates) {
  const Json answer = answer_to({"--graph", graph(), "--workers", "2", "--bandwidth", "100GB/s", "--straight"});
  std::string list;
  for (const auto& layers : answer.at("stage_layers")) list += (list.empty() ? "" : ",") + layers.dump();
  const CommandResult result = run_flopcast({"simulate", "--model", graph(), "--cluster", "one-gpu", "--nodes", "2",
                                             "--pp", "2", "--gbs", "8", "--layout.stage_layers", list});
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
}

TEST(PartitionCommand, SaysNoWithThree) {
  const CommandResult result =
      run_flopcast({"partition", "--graph", graph(), "--workers", "2", "--bandwidth", "1GB/s", "--memory", "1MB"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.standard_error.find("no plan fits into 1MB"), std::string::npos) << result.standard_error;
  EXPECT_EQ(run_flopcast({"partition", "--graph", graph(), "--workers", "100", "--bandwidth", "1GB/s", "--straight"})
                .exit_code,
            3);
}

TEST(PartitionCommand, RefusesWithAReason) {
  struct Case {
    std::vector<std::string> arguments;
    const char* message_of;
  };
  const std::vector<Case> cases = {
      {{}, "nothing to split"},
      {{"--costs", "1,2"}, "--stages"},
      {{"--costs", "1,2", "--stages", "3"}, "valid: 1 to 2"},
      {{"--costs", "1,x", "--stages", "1"}, "\"x\""},
      {{"--costs", "1,2", "--stages", "1", "--workers", "2"}, "applies only to --graph"},
      {{"--costs", "1,2", "--stages", "1", "--graph", "g.txt"}, "more than one"},
      {{"--graph", graph(), "--bandwidth", "1GB/s"}, "--workers"},
      {{"--graph", graph(), "--workers", "4x2", "--bandwidth", "1GB/s"}, "2 levels"},
      {{"--graph", graph(), "--workers", "4y2", "--bandwidth", "1GB/s"}, "4y2"},
      {{"--graph", graph(), "--workers", "4", "--bandwidth", "1"}, "unit"},
      {{"--graph", graph(), "--workers", "4", "--bandwidth", "1GB/s", "--rules", "papr"}, "did you mean paper"},
      {{"--model", "llama3-8b", "--cluster", "1xdgx-h100", "--gbs", "8", "--layout.stage_layers", "32"},
       "leave it out"},
  };
  for (const Case& bad : cases) {
    std::vector<std::string> arguments = bad.arguments;
    arguments.insert(arguments.begin(), "partition");
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2) << bad.message_of;
    EXPECT_NE(result.standard_error.find(bad.message_of), std::string::npos) << result.standard_error;
  }
}

}  // namespace
}  // namespace flopcast
