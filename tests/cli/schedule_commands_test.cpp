// flopcast schedule compare, and the asynchronous side of schedule show and simulate.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

CommandResult run_schedule(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "schedule");
  return run_flopcast(arguments);
}

Json json_of(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--format", "json"});
  const CommandResult result = run_schedule(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return Json::parse(result.standard_output);
}

// What `schedule show --versions` prints is what was computed independently, in all 19 cases.
TEST(ScheduleShow, VersionsEqualTheReference) {
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  const Json cases = Json::parse(read_text(*folder / "goldens" / "async_staleness.json"));
  const auto shown = [](const Json& expected, const std::string& schedule, std::size_t microbatches, int accumulation) {
    return json_of({"show", "--versions", "--schedule", schedule, "--pp", expected.at("p").dump(), "-m",
                    std::to_string(microbatches), "--accumulation", std::to_string(accumulation)});
  };
  int compared = 0;
  for (const Json& expected : cases.at("pipedream_stashing")) {
    const Json answer = shown(expected, "pipedream", expected.at("m").get<std::size_t>(), 1);
    for (const Json& stage : expected.at("stages")) {
      const Json& ours = answer.at("stages").at(stage.at("stage").get<std::size_t>());
      EXPECT_EQ(ours.at("version"), stage.at("weights_used"));
      EXPECT_EQ(ours.at("backward_version"), stage.at("weights_used"));
      EXPECT_EQ(ours.at("delay"), stage.at("delay"));
      EXPECT_EQ(ours.at("versions_kept"), stage.at("max_live_versions"));
    }
    ++compared;
  }
  for (const Json& expected : cases.at("pipedream_vertical_sync")) {
    const Json answer = shown(expected, "pipedream:vertical-sync", expected.at("delay").size(), 1);
    EXPECT_EQ(answer.at("policy"), "vertical-sync");
    for (const Json& stage : answer.at("stages")) EXPECT_EQ(stage.at("delay"), expected.at("delay"));
    ++compared;
  }
  for (const Json& expected : cases.at("pipedream_2bw")) {
    const Json answer =
        shown(expected, "pipedream-2bw", expected.at("weight_version").size(), expected.at("accumulation").get<int>());
    for (const Json& stage : answer.at("stages")) {
      EXPECT_EQ(stage.at("version"), expected.at("weight_version"));
      EXPECT_EQ(stage.at("versions_kept"), 2);
    }
    ++compared;
  }
  EXPECT_EQ(compared, 19);
}

TEST(ScheduleShow, AFileSaysItsPolicyOnTheCommandLine) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "mine.csv").string();
  std::vector<std::string> write = {"export", "--schedule", "pipedream", "--pp", "2", "--replicas",
                                    "3,1",    "-m",         "9",         "-o",   path};
  const CommandResult torch = run_schedule(write);
  EXPECT_EQ(torch.exit_code, 2);
  EXPECT_NE(torch.standard_error.find("--for ours"), std::string::npos) << torch.standard_error;
  write.insert(write.end(), {"--for", "ours"});
  ASSERT_EQ(run_schedule(write).exit_code, 0);
  EXPECT_EQ(json_of({"show", path, "--versions"}).at("policy"), "flushed");
  const Json stashed = json_of({"show", path, "--versions", "--policy", "stashed"});
  EXPECT_EQ(stashed.at("stages")[0].at("replicas"), 3);
  EXPECT_EQ(stashed.at("stages")[0].at("version"), Json({0, 0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(json_of({"show", path, "--versions", "--policy", "newest", "--accumulation", "3"}).at("accumulation"), 3);
  EXPECT_EQ(run_schedule({"check", path}).exit_code, 0);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& words) {
    const CommandResult result = run_schedule(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({"show", path, "--versions", "--policy", "stash"}, "did you mean stashed");
  refused({"show", path, "--versions", "--accumulation", "3"}, "give --policy");
  refused({"show", path, "--versions", "--policy", "newest", "--accumulation", "0"}, "at least 1");
  refused({"show", path, "--policy", "newest"}, "give --versions too");
  refused({"show", path, "--versions", "--policy", "vertical-sync"}, "equally many replicas");
  refused({"show", path, "--replicas", "3,1"}, "says itself");
  refused({"show", "--schedule", "pipedream-2bw", "--pp", "2", "-m", "4", "--versions", "--policy", "newest"},
          "not how pipedream-2bw updates");
  refused({"show", "--schedule", "pipedream", "--pp", "2", "-m", "4", "--replicas", "3,,1"}, "whole number a stage");
  refused({"show", "--schedule", "gpipe", "--pp", "2", "-m", "4", "--replicas", "3,1"}, "means nothing to schedule");
}

TEST(ScheduleSimulate, AddsTheSteadyStateOfAsynchronousSchedules) {
  const Json steady = json_of({"simulate", "--schedule", "pipedream", "--pp", "4", "-m", "16", "--forward", "1",
                               "--backward", "2", "--p2p", "0.5"})
                          .at("steady");
  EXPECT_EQ(steady.at("period"), 3.75);
  EXPECT_EQ(steady.at("fill"), 11);
  EXPECT_EQ(steady.at("cycle").at("microbatches"), 4);
  EXPECT_EQ(steady.at("cycle").at("actions").size(), 8U);
  const std::vector<std::string> flushed = {"simulate", "--schedule", "1f1b", "--pp",       "4", "-m",
                                            "16",       "--forward",  "1",    "--backward", "2"};
  EXPECT_FALSE(json_of(flushed).contains("steady"));
  EXPECT_EQ(run_schedule(flushed).standard_output.find("steady:"), std::string::npos);
}

TEST(ScheduleCompare, ListsEverySchedule) {
  const Json answer = json_of({"compare", "--pp", "4", "-m", "2"});
  EXPECT_EQ(answer.at("schedules").size() + answer.at("refused").size(), json_of({"list"}).size());
  bool found = false;
  for (const Json& refused : answer.at("refused")) found = found || refused.at("name") == "pipedream-2bw";
  EXPECT_TRUE(found) << "2bw needs as many microbatches as ranks";
  const CommandResult csv = run_schedule({"compare", "--pp", "4", "-m", "2", "--format", "csv"});
  EXPECT_NE(csv.standard_output.find("\npipedream-2bw,,,"), std::string::npos) << csv.standard_output;
}

TEST(ScheduleCompare, ShowsWhatFitsIntoAMemory) {
  const Json answer = json_of({"compare", "--schedule", "gpipe,1f1b", "--pp", "4", "-m", "32", "--at-memory", "4"});
  EXPECT_EQ(answer.at("schedules")[0].at("memory_fit").at("microbatches"), 4);
  EXPECT_EQ(answer.at("schedules")[1].at("memory_fit").at("microbatches"), 32);
  EXPECT_EQ(answer.at("schedules")[1].at("memory_fit").at("unlimited"), true);
}

TEST(ScheduleCompare, TakesAFileAmongTheSchedules) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "mine.csv").string();
  write_text(path, "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  const Json answer = json_of({"compare", "--schedule", "1f1b,file:" + path, "--pp", "2", "-m", "2"});
  EXPECT_EQ(answer.at("schedules")[0].at("makespan"), answer.at("schedules")[1].at("makespan"));
  const CommandResult other = run_schedule({"compare", "--schedule", "file:" + path, "--pp", "2", "-m", "3"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.standard_error.find("--pp 2 --microbatches 2"), std::string::npos) << other.standard_error;
}

TEST(ScheduleCompare, StandsBelowTheTimelinesOfSeveralSchedules) {
  const std::vector<std::string> shape = {"--pp", "4", "--microbatches", "8"};
  const auto output_of = [&shape](std::vector<std::string> arguments, const std::string& schedules) {
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    arguments.insert(arguments.end(), {"--schedule", schedules});
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return result.standard_output;
  };
  const std::string table = output_of({"schedule", "compare"}, "gpipe,zb-h1");
  const std::string drawn = output_of({"timeline"}, "gpipe,zb-h1");
  ASSERT_GT(drawn.size(), table.size());
  EXPECT_EQ(drawn.substr(drawn.size() - table.size()), table);
  EXPECT_EQ(output_of({"timeline"}, "gpipe").find("closed form"), std::string::npos);
}

TEST(ScheduleCompare, RefusesWhatItCannotUse) {
  const auto refused = [](std::vector<std::string> arguments, const std::string& words) {
    arguments.insert(arguments.begin(), "compare");
    const CommandResult result = run_schedule(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({"--pp", "4"}, "--microbatches: is required");
  refused({"-m", "4"}, "--pp: is required");
  refused({"--pp", "4", "-m", "0"}, "0 is out of range");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpip"}, "did you mean gpipe");
  refused({"--pp", "4", "-m", "2", "--schedule", "gpipe,pipedream-2bw"}, "microbatches >= 4");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe,1f1b", "--vpp", "2"}, "means nothing to any");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe", "--group", "4"}, "means nothing to any");
  refused({"--pp", "4", "-m", "4", "--at-memory", "0"}, "from 1 to");
  refused({"--pp", "4", "-m", "4", "--columns", "semantic"}, "did you mean semantics");
  refused({"--pp", "4", "-m", "4", "--forward", "1,2"}, "numbers for 4 stages");
}

}  // namespace
}  // namespace flopcast
