// compare and sweep: differences that add up, and a sweep that goes on where it stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string job_file() {
  return (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
}

Json json_of(const CommandResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return Json::parse(result.standard_output);
}

TEST(Compare, DeltasSumToTheDifference) {
  const Json answer =
      json_of(run_flopcast({"compare", job_file(), "tp=4,pp=16,vpp=6", "recompute=full", "--format", "json"}));
  const Json rules = Json::parse(read_text(project_folder() / "docs" / "schema" / "comparison-1.schema.json"));
  EXPECT_EQ(schema_violation(rules, answer), "");
  const auto check = [&answer](const Json& b, const Json& terms) {
    double sum = 0.0;
    for (const Json& term : terms) sum += term["delta_s"].get<double>();
    const double difference = b["time_s"].get<double>() - answer["a"]["time_s"].get<double>();
    EXPECT_NEAR(sum, difference, 1e-12 * answer["a"]["time_s"].get<double>());
  };
  check(answer["b"], answer["terms"]);
  ASSERT_EQ(answer["others"].size(), 1u);
  check(answer["others"][0]["b"], answer["others"][0]["terms"]);
}

TEST(Compare, SavedResultsArePlayedBackAsTheyAre) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast({"simulate", job_file(), "--format", "json", "-o", "a.json"}, options).exit_code, 0);
  const Json answer = json_of(run_flopcast({"compare", job_file(), "a.json", "--format", "json"}, options));
  for (const Json& term : answer["terms"]) EXPECT_EQ(term["delta_s"], 0.0) << term["name"];
  // The first one too: its time is the file's, not a forecast's.
  Json slower = Json::parse(read_text(folder.path() / "a.json"));
  const double time_s = 2.0 * slower["iteration"]["time_s"].get<double>();
  slower["iteration"]["time_s"] = time_s;
  write_text(folder.path() / "slower.json", slower.dump());
  const Json both = json_of(run_flopcast({"compare", "slower.json", "a.json", "--format", "json"}, options));
  EXPECT_EQ(both["a"]["time_s"], time_s);
  EXPECT_EQ(both["a"]["name"], "slower.json");
}

TEST(Compare, StrategiesUseEveryAxisTheyName) {
  const Json rows = json_of(run_flopcast({"compare", "--model", "gpt3-1.3b", "--cluster", "dgx-a100-80g", "--gbs", "16",
                                          "--strategies", "--format", "json"}));
  int answered = 0;
  for (const Json& row : rows) {
    const std::string name = row["strategy"];
    const std::string layout = row["layout"];
    if (layout.rfind("tp ", 0) != 0) continue;
    ++answered;
    for (const auto& [axis, word] : {std::pair("TP", "tp 1 "), {"PP", "pp 1 "}, {"DP", "dp 1 "}}) {
      EXPECT_EQ(layout.find(word) == std::string::npos, name.find(axis) != std::string::npos) << name << ": " << layout;
    }
  }
  EXPECT_GE(answered, 5);
}

TEST(Compare, AnswersItsThreeOtherQuestions) {
  for (const char* question : {"--strategies", "--optimizations"}) {
    const CommandResult result = run_flopcast({"compare", job_file(), question, "--format", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_GE(Json::parse(result.standard_output).size(), 5u) << question;
  }
  const Json gap = json_of(run_flopcast({"compare", job_file(), "--measured", "15s", "--format", "json"}));
  double sum = 0.0;
  for (const Json& term : gap) sum += term["gap_s"].get<double>();
  const Json forecast = json_of(run_flopcast({"simulate", job_file(), "--format", "json"}));
  EXPECT_NEAR(sum, 15.0 - forecast["iteration"]["time_s"].get<double>(), 0.01);
}

TEST(Compare, RefusesWhatMakesNoSense) {
  EXPECT_EQ(run_flopcast({"compare", job_file()}).exit_code, 2);
  const CommandResult misspelt = run_flopcast({"compare", job_file(), "recompte=full"});
  EXPECT_EQ(misspelt.exit_code, 2);
  EXPECT_NE(misspelt.standard_error.find("did you mean recompute"), std::string::npos) << misspelt.standard_error;
  EXPECT_EQ(run_flopcast({"compare", job_file(), "--strategies", "--optimizations"}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"compare", job_file(), "--measured", "15"}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"compare", job_file(), "--strategies", "tp=4"}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"compare", job_file(), "tp=4", "--show-config"}).exit_code, 2);
}

const std::vector<std::string> kSweep = {"--vary",       "pp=1,2,4,8", "--vary",     "mbs=1,2,3",
                                         "--layout.vpp", "1",          "--schedule", "1f1b",
                                         "--format",     "json",       "-o",         "sweep.json"};

std::vector<std::string> sweep_arguments() {
  std::vector<std::string> arguments = {"sweep", job_file()};
  arguments.insert(arguments.end(), kSweep.begin(), kSweep.end());
  return arguments;
}

TEST(Sweep, GoesOnWhereItStopped) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast(sweep_arguments(), options).exit_code, 0);
  const std::string whole = read_text(folder.path() / "sweep.json");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "sweep.json.partial"));
  const Json answer = Json::parse(whole);
  ASSERT_EQ(answer["rows"].size(), 12u);
  EXPECT_EQ(answer["keys"], Json::parse(R"(["layout.pp", "layout.micro_batch_size"])"));
  EXPECT_TRUE(answer["rows"][2]["result"].is_null());
  EXPECT_NE(answer["rows"][2]["error"].get<std::string>().find("no multiple"), std::string::npos);
}

TEST(Sweep, TakesPlansAndLists) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  const std::vector<std::string> question = {"--model", "gpt3-1.3b", "--cluster", "dgx-a100-80g", "--gbs", "16"};
  std::vector<std::string> plan = {"plan", "--schedule", "1f1b", "--pp", "2", "-o", "plan.json"};
  plan.insert(plan.end(), question.begin(), question.end());
  ASSERT_EQ(run_flopcast(plan, options).exit_code, 0);
  const Json tensor = json_of(run_flopcast({"sweep", "plan.json", "--vary", "tp=1,2,4", "--format", "json"}, options));
  for (const Json& row : tensor["rows"]) EXPECT_TRUE(row["result"].is_object()) << row["error"];
  std::vector<std::string> split = {"sweep",    "--vary", "layout.stage_layers=10,14;12,12", "--pp", "2",
                                    "--format", "json"};
  split.insert(split.end(), question.begin(), question.end());
  const Json lists = json_of(run_flopcast(split, options));
  ASSERT_EQ(lists["rows"].size(), 2u);
  EXPECT_EQ(lists["rows"][0]["result"]["job"]["layout"]["stage_layers"], Json::parse("[10, 14]"));
}

TEST(Sweep, KeepsTheRowsOfAKilledRun) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  // The output cannot be written until the second run: the first one ends behind its rows, as a kill would end it.
  std::vector<std::string> arguments = sweep_arguments();
  arguments.back() = "sweep.json";
  std::filesystem::create_symlink("/dev/full", folder.path() / "sweep.json");
  ASSERT_EQ(run_flopcast(arguments, options).exit_code, 4);
  const std::filesystem::path partial = folder.path() / "sweep.json.partial";
  std::string text = read_text(partial);
  // One row shows that it is not computed again, and the last line is cut short.
  const std::size_t marked = text.find("no multiple");
  ASSERT_NE(marked, std::string::npos);
  text.replace(marked, 11, "kept as was");
  text.resize(text.size() - 20);
  text.insert(text.find('\n') + 1, "{\"index\":1}\n");
  write_text(partial, text);
  std::filesystem::remove(folder.path() / "sweep.json");
  ASSERT_EQ(run_flopcast(arguments, options).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(partial));
  const std::string resumed = read_text(folder.path() / "sweep.json");
  EXPECT_NE(resumed.find("kept as was"), std::string::npos);
  EXPECT_EQ(Json::parse(resumed)["rows"].size(), 12u);
  // Another question does not take these rows.
  write_text(partial, text);
  arguments[3] = "pp=1,2";
  EXPECT_EQ(run_flopcast(arguments, options).exit_code, 2);
}

TEST(Sweep, DrawsTwoKeysAndRefusesTheRest) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast({"sweep", job_file(), "--vary", "pp=4,8", "--vary", "mbs=1,2", "--layout.vpp", "1",
                          "--schedule", "1f1b", "--svg", "map.svg", "--metric", "mfu_percent"},
                         options)
                .exit_code,
            0);
  const std::string svg = read_text(folder.path() / "map.svg");
  EXPECT_NE(svg.find("</svg>"), std::string::npos);
  const auto refused = [&options](std::vector<std::string> more, const std::string& words) {
    more.insert(more.begin(), {"sweep", job_file()});
    const CommandResult result = run_flopcast(more, options);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({}, "--vary");
  refused({"--vary", "pp"}, "names no values");
  refused({"--vary", "pq=1"}, "unknown key");
  refused({"--vary", "pp=1", "--vary", "layout.pp=2"}, "varies twice");
  refused({"--vary", "pp=8", "--svg", "x.svg"}, "two keys");
  refused({"--vary", "pp=8", "--metric", "step_s"}, "--svg");
  refused({"--vary", "pp=4,8", "--vary", "mbs=1,2", "--svg", "x.svg", "--metric", "foo"}, "unknown value");
  refused({"--vary", "pp=8", "-o", ""}, "is empty");
  refused({"--vary", "pp=8", "-o", "."}, "is a directory");
  refused({"--vary", "pp=8", "-o", "missing/sweep.csv"}, "no folder missing");
  refused({"--vary", "pp=8", "--threads", "1000000"}, "out of range");
  refused({"--vary", "pp=4,8", "--vary", "mbs=1", "--svg", "x.svg", "--metric", "days"}, "--tokens");
}

}  // namespace
}  // namespace flopcast
