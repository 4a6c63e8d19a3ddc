// flopcast schedule compare, asynchronous schedules in schedule show and simulate, and searched schedules of jobs.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

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

// Output of `schedule show --versions` equals independently computed versions in all 19 cases.
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
  refused({"show", path, "--policy", "newest"}, "add --versions");
  refused({"show", path, "--versions", "--policy", "vertical-sync"}, "the same number of replicas");
  refused({"show", path, "--replicas", "3,1"}, "applies only to generated schedules");
  refused({"show", "--schedule", "pipedream-2bw", "--pp", "2", "-m", "4", "--versions", "--policy", "newest"},
          "conflicts with pipedream-2bw");
  refused({"show", "--schedule", "pipedream", "--pp", "2", "-m", "4", "--replicas", "3,,1"}, "whole number per stage");
  refused({"show", "--schedule", "gpipe", "--pp", "2", "-m", "4", "--replicas", "3,1"}, "has no effect on schedule");
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

std::string written(const TemporaryFolder& folder, const std::string& name, const std::string& text) {
  const std::string path = (folder.path() / name).string();
  write_text(path, text);
  return "file:" + path;
}

Json makespans(const Json& comparison) {
  Json times = Json::array();
  for (const Json& schedule : comparison.at("schedules")) times.push_back(schedule.at("makespan"));
  return times;
}

TEST(ScheduleCompare, GivesEveryRankTheSameWorkHoweverTheModelIsCut) {
  const TemporaryFolder folder;
  const std::string replicated = written(folder, "replicated.csv", "0F0,0B0\n0F1,0B1\n");
  const std::string uneven = written(folder, "uneven.csv", "0F0,1F0,1B0,0B0\n2F0,2B0\n");
  EXPECT_EQ(makespans(json_of({"compare", "--schedule", replicated})), Json({3}));
  EXPECT_EQ(makespans(json_of({"compare", "--schedule", uneven + ",1f1b", "--pp", "2", "-m", "1"})), Json({6, 6}));
  const CommandResult drawn = run_flopcast({"timeline", "--schedule", replicated});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.standard_error;
  EXPECT_NE(drawn.standard_output.find("makespan 3"), std::string::npos) << drawn.standard_output;
}

TEST(ScheduleCompare, DerivesThePartsOfTheBackwardPassFromEachOther) {
  const auto of = [](std::vector<std::string> times) {
    times.insert(times.begin(),
                 {"compare", "--pp", "4", "-m", "8", "--schedule", "1f1b,zb-h1,zbv,dualpipe", "--forward", "10"});
    return makespans(json_of(times));
  };
  const Json expected = of({"--backward", "20", "--backward-input", "10", "--backward-weight", "10"});
  EXPECT_EQ(expected, Json({330, 270, 255, 260}));
  EXPECT_EQ(of({"--backward", "20"}), expected);
  EXPECT_EQ(of({"--backward", "20", "--backward-input", "10"}), expected);
  EXPECT_EQ(of({"--backward", "20,20,20,20", "--backward-weight", "10"}), expected);
  EXPECT_EQ(of({"--backward-input", "10", "--backward-weight", "10"}), expected);
  const CommandResult unequal = run_schedule({"compare", "--pp", "2", "-m", "2", "--schedule", "1f1b,zb-h1",
                                              "--backward", "4", "--backward-input", "1", "--backward-weight", "1"});
  EXPECT_EQ(unequal.exit_code, 0);
  EXPECT_NE(unequal.standard_error.find("warning: --backward 4 is not"), std::string::npos) << unequal.standard_error;
}

TEST(ScheduleSimulate, HalvesTheBackwardPassAloud) {
  const CommandResult halved =
      run_schedule({"simulate", "--schedule", "zb-h1", "--pp", "2", "-m", "3", "--forward", "1", "--backward", "3"});
  EXPECT_EQ(halved.exit_code, 0);
  EXPECT_NE(halved.standard_output.find("makespan 13.5"), std::string::npos) << halved.standard_output;
  EXPECT_NE(halved.standard_error.find("assumed to be half"), std::string::npos) << halved.standard_error;
  const std::vector<std::string> sliced = {"simulate", "--schedule", "terapipe",  "--pp", "3",          "-m", "2",
                                           "--slices", "3",          "--forward", "1",    "--backward", "2"};
  EXPECT_EQ(json_of(sliced).at("makespan"), 8);
  const CommandResult drawn =
      run_flopcast({"timeline", "--schedule", "terapipe", "--pp", "3", "-m", "2", "--slices", "3", "--format", "csv"});
  EXPECT_NE(drawn.standard_output.find("0F3,compute,1,1.333333\n"), std::string::npos) << drawn.standard_output;
}

TEST(ScheduleCompare, SharesANumberForEachRankOutToItsChunks) {
  const Json answer = json_of({"compare", "--pp", "2", "-m", "4", "--schedule", "gpipe,interleaved,chimera",
                               "--forward", "3,1", "--backward", "6,2"});
  // Rank 0 is busy for 4 (3 + 6), and waits while the pipeline fills.
  EXPECT_EQ(answer.at("schedules")[0].at("makespan"), 39);
  for (const Json& schedule : answer.at("schedules")) EXPECT_GE(schedule.at("makespan"), 36) << schedule;
  const Json all = json_of({"compare", "--pp", "2", "-m", "4", "--forward", "1,2,3"});
  ASSERT_FALSE(all.at("refused").empty());
  EXPECT_TRUE(all.at("schedules").empty());
  EXPECT_EQ(all.at("refused")[0].at("reason"), "--forward: 3 numbers for 2 stages of naive");
  const CommandResult unit = run_schedule({"compare", "--pp", "2", "-m", "4", "--forward", "1ms"});
  EXPECT_EQ(unit.exit_code, 2);
  EXPECT_NE(unit.standard_error.find("without a unit"), std::string::npos) << unit.standard_error;
}

TEST(ScheduleFiles, KeepToTheShapeThatIsGiven) {
  const TemporaryFolder folder;
  const std::string small = written(folder, "small.csv", "0F0,0B0\n1F0,1B0\n");
  const std::string replicated = written(folder, "replicated.csv", "0F0,0B0\n0F1,0B1\n");
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& words) {
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({"timeline", "--schedule", small, "--pp", "4"}, "cannot be compared with 4 and 1");
  refused({"timeline", "--schedule", small, "-m", "2"}, "--pp 2 --microbatches 1");
  refused({"timeline", "--schedule", small, "--vpp", "2"}, "has 2 stages on 2 ranks");
  refused({"timeline", "--schedule", "1f1b", "--pp", "2", "-m", "2", "--vpp", "2"}, "has no effect on any");
  refused({"schedule", "compare", "--schedule", small + "," + replicated}, "cannot be compared");
  refused({"schedule", "show", "--schedule", small, "--pp", "2"}, "applies only to generated schedules");
  refused({"schedule", "compare", "--schedule", "1f1b", "--pp", "2", "-m", "2", "--chains", "0-0,1-1"},
          "given as a file");
  const CommandResult both = run_flopcast({"timeline", "--schedule", small + "," + replicated});
  EXPECT_EQ(both.exit_code, 0) << both.standard_error;
  EXPECT_NE(both.standard_output.find("no comparison: " + small + " has 2 ranks and 1 microbatch, "), std::string::npos)
      << both.standard_output;
}

TEST(ScheduleFiles, StandWhereverAScheduleDoes) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "mine.csv", "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(run_schedule({"show", "--schedule", file}).standard_output,
            run_schedule({"show", file.substr(5)}).standard_output);
  EXPECT_EQ(run_schedule({"check", "--schedule", file}).exit_code, 0);
  EXPECT_EQ(run_schedule({"export", "--schedule", file}).standard_output, "0F0,0B0\n1F0,1B0\n");
  EXPECT_EQ(json_of({"simulate", "--schedule", file, "--forward", "1", "--backward", "2"}).at("makespan"), 6);
  const Json fit = json_of({"compare", "--schedule", file, "--at-memory", "1"}).at("schedules")[0];
  EXPECT_EQ(fit.at("name"), file);
  EXPECT_EQ(fit.at("memory_fit").at("microbatches"), 1);
  const std::string deep = written(folder, "deep.csv", "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  const Json none = json_of({"compare", "--schedule", deep, "--at-memory", "1"}).at("schedules")[0];
  EXPECT_EQ(none.at("memory_fit").at("microbatches"), 0);
}

TEST(ScheduleFiles, WithTwoChainsCompare) {
  const TemporaryFolder folder;
  const CommandResult chimera = run_schedule({"export", "--schedule", "chimera", "--pp", "2", "-m", "4"});
  ASSERT_EQ(chimera.exit_code, 0);
  const std::string file = written(folder, "chimera.csv", chimera.standard_output);
  const Json times =
      makespans(json_of({"compare", "--schedule", "chimera," + file, "--pp", "2", "-m", "4", "--chains", "0-1,2-3"}));
  EXPECT_EQ(times[0], times[1]);
}

TEST(ScheduleCompare, TakesReplicatedStages) {
  const std::vector<std::string> shape = {"--schedule", "1f1b,pipedream", "--pp", "2", "-m", "6", "--replicas", "2,1"};
  std::vector<std::string> compare = {"schedule", "compare"};
  std::vector<std::string> timeline = {"timeline"};
  compare.insert(compare.end(), shape.begin(), shape.end());
  timeline.insert(timeline.end(), shape.begin(), shape.end());
  const std::string table = run_flopcast(compare).standard_output;
  EXPECT_NE(table.find("pipedream: once the pipeline is full: a microbatch every 3, idle share 0.3333"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("hold once the pipeline is full"), std::string::npos) << table;
  const std::string drawn = run_flopcast(timeline).standard_output;
  EXPECT_NE(drawn.find("pipedream: 3 ranks, 6 microbatches"), std::string::npos) << drawn;
  EXPECT_NE(drawn.find(table), std::string::npos) << drawn;
}

TEST(ScheduleShow, CountsUpdatesOfCopiesAndReplicas) {
  const TemporaryFolder folder;
  const std::string file = written(folder, "replicated.csv", "0F0,0B0\n0F1,0B1\n");
  const auto title = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"show", "--versions"});
    const std::string text = run_schedule(std::move(arguments)).standard_output;
    return text.substr(0, text.find('\n'));
  };
  const std::string path = file.substr(5);
  EXPECT_EQ(title({path}), path + ": flushed weights, updated every 2 microbatches");
  EXPECT_EQ(title({path, "--policy", "newest"}), path + ": newest weights, updated every 1 microbatch of each replica");
  EXPECT_EQ(title({"--schedule", "chimera", "--pp", "2", "-m", "4"}),
            "chimera: flushed weights, updated every 2 microbatches of each copy");
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
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe,1f1b", "--vpp", "2"}, "has no effect on any");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe", "--group", "4"}, "has no effect on any");
  refused({"--pp", "4", "-m", "4", "--at-memory", "0"}, "from 1 to");
  refused({"--pp", "4", "-m", "4", "--columns", "semantic"}, "did you mean semantics");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe", "--forward", "1,2"}, "2 numbers for 4 stages of gpipe");
  refused({"--pp", "4", "-m", "4", "--schedule", "GPipe"}, "did you mean gpipe");
  refused({"--pp", "4", "-m", "4", "--schedule", "ZB-H1"}, "did you mean zb-h1");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe", "--replicas", "1,1,1,1"}, "has no effect on any");
  refused({"--pp", "4", "-m", "4", "--schedule", "gpipe,1f1b", "--fused", "2"},
          "no forward and backward passes overlap");
  refused({"--pp", "4", "-m", "4", "--backward", "2", "--backward-input", "3"}, "is more than --backward");
  const CommandResult partition = run_flopcast({"partition", "--costs", "1,2,3", "--stages", "2", "--tp", "2"});
  EXPECT_EQ(partition.exit_code, 2);
  EXPECT_NE(partition.standard_error.find("--tp: applies only to a job"), std::string::npos)
      << partition.standard_error;
}

Json simulated(const std::string& schedule, std::vector<std::string> more = {}) {
  std::vector<std::string> command = {"simulate", "--model",    "gpt3-175b", "--cluster", "8xdgx-a100-80g",
                                      "--tp",     "8",          "--pp",      "8",         "--gbs",
                                      "32",       "--schedule", schedule,    "--format",  "json"};
  command.insert(command.end(), more.begin(), more.end());
  const CommandResult result = run_flopcast(command);
  EXPECT_EQ(result.exit_code, 0) << schedule << '\n' << result.standard_error;
  return Json::parse(result.standard_output);
}

double time_of(const Json& answer) {
  return answer.at("iteration").at("time_s").get<double>();
}

int peak_of(const Json& answer) {
  int peak = 0;
  for (const Json& rank : answer.at("memory").at("per_pipeline_rank")) {
    peak = std::max(peak, rank.at("peak_in_flight").get<int>());
  }
  return peak;
}

// The search uses the job's times, so its promise holds for the forecast: a step no longer than with the fixed orders
// in the same memory, and longer steps with less memory.
TEST(Simulate, SearchesZeroBubbleSchedulesForTheJobsTimes) {
  const Json shallow = simulated("zb-h1");
  const Json deep = simulated("zb-h2");
  EXPECT_EQ(peak_of(shallow), 8);
  EXPECT_EQ(peak_of(deep), 15);
  EXPECT_LE(time_of(simulated("zb-auto")), time_of(deep));

  const Json within_shallow = simulated("zb-auto", {"--memory-limit", "8"});
  EXPECT_LE(peak_of(within_shallow), 8);
  EXPECT_LE(time_of(within_shallow), time_of(shallow));
  const Json halves = simulated("zb-auto:half", {"--memory-limit", "8"});
  EXPECT_LE(time_of(halves), time_of(within_shallow));
  const Json scarce = simulated("zb-auto", {"--memory-limit", "4"});
  EXPECT_LE(peak_of(scarce), 4);
  EXPECT_GT(time_of(scarce), time_of(within_shallow));
}

TEST(Simulate, RefusesAMemoryLimitThatNobodyReads) {
  const std::vector<std::string> job = {"simulate", "--model", "gpt3-175b", "--cluster", "8xdgx-a100-80g", "--tp", "8",
                                        "--pp",     "8",       "--gbs",     "32"};
  const auto refused = [&job](const std::string& schedule, const std::string& limit) {
    std::vector<std::string> command = job;
    command.insert(command.end(), {"--schedule", schedule, "--memory-limit", limit});
    const CommandResult result = run_flopcast(command);
    EXPECT_EQ(result.exit_code, 2);
    return result.standard_error;
  };
  EXPECT_NE(refused("1f1b", "4").find("zb-auto"), std::string::npos) << refused("1f1b", "4");
  EXPECT_NE(refused("zb-auto", "0").find("layout.memory_limit"), std::string::npos) << refused("zb-auto", "0");
  EXPECT_NE(refused("v-auto:chunks", "1").find("2 chunks"), std::string::npos) << refused("v-auto:chunks", "1");
}

// The table of schedule compare, below the drawing.
TEST(Timeline, TellsWhatFitsIntoAMemory) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"timeline", "--pp", "4", "-m", "8"});
    return run_flopcast(more);
  };
  const CommandResult compared =
      run_schedule({"compare", "--schedule", "gpipe,1f1b", "--pp", "4", "-m", "8", "--at-memory", "4"});
  const std::string title = "memory for the activations of 4 microbatches per rank; 8 in the step";
  const std::size_t place = compared.standard_output.find(title);
  ASSERT_NE(place, std::string::npos) << compared.standard_output;
  const CommandResult drawn = with({"--schedule", "gpipe,1f1b", "--at-memory", "4"});
  EXPECT_NE(drawn.standard_output.find(compared.standard_output.substr(place)), std::string::npos)
      << drawn.standard_output;
  EXPECT_NE(with({"--schedule", "zb-auto", "--at-memory", "4"}).standard_output.find(title), std::string::npos);
  const auto refusal = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"timeline", "--pp", "4", "--schedule", "1f1b", "--at-memory"});
    const CommandResult result = run_flopcast(more);
    EXPECT_EQ(result.exit_code, 2);
    return result.standard_error;
  };
  EXPECT_NE(refusal({"4", "-m", "8", "--format", "json"}).find("schedule compare --at-memory"), std::string::npos);
  EXPECT_NE(refusal({"0", "-m", "8"}).find("--at-memory: 0 is out of range"), std::string::npos);
  EXPECT_NE(refusal({"4", "--model", "gpt3-175b", "--cluster", "8xdgx-a100-80g", "--gbs", "8"})
                .find("--at-memory: applies only to schedules without a job"),
            std::string::npos);
}

}  // namespace
}  // namespace flopcast
