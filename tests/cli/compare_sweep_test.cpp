// compare and sweep: differences that add up, and a sweep that continues where it stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string job_file() {
  return (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
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
  // The first file, too: its time comes from the file, not from a forecast.
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

TEST(Compare, ReportsShowWhatItWrote) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast({"simulate", job_file(), "--format", "json", "-o", "saved.json"}, options).exit_code, 0);
  ASSERT_EQ(
      run_flopcast({"compare", job_file(), "recompute=full", "saved.json", "--format", "json", "-o", "c.json"}, options)
          .exit_code,
      0);
  // The results of the layouts equal those of simulate.
  const Json comparison = Json::parse(read_text(folder.path() / "c.json"));
  Json saved = Json::parse(read_text(folder.path() / "saved.json"));
  EXPECT_EQ(comparison.at("others").at(0).at("b").at("result"), saved);
  saved.erase("critical_path");
  EXPECT_EQ(comparison.at("a").at("result"), saved);

  const CommandResult report = run_flopcast({"report", "c.json", "-o", "c.html"}, options);
  ASSERT_EQ(report.exit_code, 0) << report.standard_error;
  const std::string page = read_text(folder.path() / "c.html");
  for (const char* name : {R"("name":"job")", R"("name":"recompute=full")", R"("name":"saved.json")"}) {
    EXPECT_NE(page.find(name), std::string::npos) << name;
  }
}

TEST(ReportOfSchedules, TimelinesOfOtherUnitsAreRefused) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast({"simulate", job_file(), "--format", "json", "-o", "job.json"}, options).exit_code, 0);
  ASSERT_EQ(run_flopcast({"timeline", "--schedule", "1f1b", "--pp", "2", "--microbatches", "3", "--format", "json",
                          "-o", "bare.json"},
                         options)
                .exit_code,
            0);
  const CommandResult mixed = run_flopcast({"report", "job.json", "bare.json", "-o", "x.html"}, options);
  EXPECT_EQ(mixed.exit_code, 2);
  EXPECT_NE(
      mixed.standard_error.find("the timeline of job.json is in s, but that of bare.json in the units of a schedule"),
      std::string::npos)
      << mixed.standard_error;
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.html"));
  EXPECT_EQ(run_flopcast({"report", "bare.json", "bare.json", "-o", "x.html"}, options).exit_code, 0);
}

TEST(Compare, AnswersItsOtherQuestions) {
  for (const char* question : {"--strategies", "--optimizations"}) {
    const CommandResult result = run_flopcast({"compare", job_file(), question, "--format", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    EXPECT_GE(Json::parse(result.standard_output).size(), 5u) << question;
  }
}

// Gloo for gradients does not affect tensor-parallel traffic; a job with transport gloo uses it for everything.
TEST(Compare, OptimizationsSayWhatTheyChange) {
  const auto first_row = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"compare",  "--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g",
                                          "--gbs",    "64",      "--tp",     "4",         "--optimizations",
                                          "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_of(run_flopcast(arguments))[0];
  };
  const auto step_s = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", "--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g",
                                          "--gbs",    "64",      "--tp",     "4",         "--format",
                                          "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return json_of(run_flopcast(arguments));
  };
  const Json of_gradients = first_row({});
  EXPECT_EQ(of_gradients["changes"], "dp: gloo to nccl");
  const Json nccl = step_s({});
  const Json mixed = step_s({"--training.gradient_transport", "gloo"});
  const Json gloo = step_s({"--training.transport", "gloo"});
  EXPECT_NEAR(of_gradients["without_s"].get<double>() / mixed["iteration"]["time_s"].get<double>(), 1.0, 1e-3);
  EXPECT_NEAR(of_gradients["with_s"].get<double>() / nccl["iteration"]["time_s"].get<double>(), 1.0, 1e-3);
  EXPECT_EQ(mixed["communication"]["tp"], nccl["communication"]["tp"]);
  // Except for the gradient norm, which all ranks of the model sum.
  EXPECT_NEAR(
      mixed["communication"]["dp"]["total_s"].get<double>() / gloo["communication"]["dp"]["total_s"].get<double>(), 1.0,
      1e-4);
  EXPECT_EQ(mixed["job"]["training"]["gradient_transport"], "gloo");
  const Json of_all = first_row({"--training.transport", "gloo"});
  EXPECT_EQ(of_all["changes"], "all axes: gloo to nccl");
  EXPECT_NEAR(of_all["without_s"].get<double>() / gloo["iteration"]["time_s"].get<double>(), 1.0, 1e-3);
  EXPECT_EQ(of_all["with_s"], of_gradients["with_s"]);
}

double sum_of_parts(const Json& gap) {
  double sum = 0.0;
  for (const Json& term : gap.at("terms")) sum += term.at("gap_s").get<double>();
  return sum;
}

TEST(Compare, SpreadsTheGapToAMeasuredStep) {
  const Json forecast = json_of(run_flopcast({"simulate", job_file(), "--format", "json"}));
  const double time_s = forecast["iteration"]["time_s"].get<double>();
  const Json rules = Json::parse(read_text(project_folder() / "docs" / "schema" / "gap-1.schema.json"));
  for (const double factor : {1.25, 0.9}) {
    const std::string measured = std::to_string(time_s * factor) + "s";
    const Json gap = json_of(run_flopcast({"compare", job_file(), "--measured", measured, "--format", "json"}));
    EXPECT_EQ(schema_violation(rules, gap), "");
    EXPECT_NEAR(gap["gap_s"].get<double>(), time_s * (factor - 1.0), 1e-5);
    EXPECT_NEAR(sum_of_parts(gap), gap["gap_s"].get<double>(), 1e-9);
    for (const Json& term : gap["terms"]) {
      const double forecast_s = term["forecast_s"].get<double>();
      EXPECT_NEAR(term["gap_s"].get<double>(), forecast_s * (factor - 1.0), 1e-5) << term;
      EXPECT_FALSE(term["check"].get<std::string>().empty()) << term;
      // A term smaller than the gap cannot explain all of it.
      EXPECT_EQ(term.contains("alone"), forecast_s + gap["gap_s"].get<double>() >= 0.0) << term;
    }
    const Json& compute = gap["terms"][0];
    EXPECT_EQ(compute["name"], "compute");
    EXPECT_NEAR(compute["alone"].get<double>(), 1.0 + time_s * (factor - 1.0) / compute["forecast_s"].get<double>(),
                1e-5);
  }
}

// Names must be equal in the table of `simulate`, where readers look them up; advice depends on the term, not on its
// name.
TEST(Compare, TermsHaveTheNamesOfTheForecastAndAdviceEach) {
  const std::vector<std::string> job = {job_file(), "--layout.offload",         "activations", "--recompute",
                                        "full",     "--cluster.host_bandwidth", "1GB/s"};
  const auto ask = [&job](std::vector<std::string> words, std::vector<std::string> more) {
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), more.begin(), more.end());
    return run_flopcast(words);
  };
  const std::string table = ask({"simulate"}, {}).standard_output;
  const Json gap = json_of(ask({"compare"}, {"--measured", "60s", "--format", "json"}));
  bool offloads = false;
  for (const Json& term : gap["terms"]) {
    const std::string name = term["name"].get<std::string>();
    EXPECT_NE(table.find(name), std::string::npos) << name << " is not in\n" << table;
    EXPECT_FALSE(term["check"].get<std::string>().empty()) << name;
    offloads = offloads || name == "activations to and from the host";
  }
  EXPECT_TRUE(offloads) << gap.dump(1);
}

std::string log_line(int iteration, double milliseconds, int batch, const std::string& more = "") {
  return " [2026-01-02 03:04:05] iteration " + std::to_string(iteration) +
         "/ 100 | consumed samples: 64 | elapsed time " + "per iteration (ms): " + std::to_string(milliseconds) +
         " | global batch size: " + std::to_string(batch) + " |" + more + "\n";
}

TEST(Compare, ReadsTheGapOutOfAMegatronLog) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "train.log").string();
  const auto compared = [&file](const std::string& log, const char* format) {
    write_text(file, log);
    return run_flopcast({"compare", job_file(), "--log", file, "--format", format});
  };
  // Warm-up, smaller batches during a ramp-up, and skipped updates do not count.
  const std::string log = "  world_size ...................................... 64\n" + log_line(1, 60'000, 32) +
                          log_line(2, 9'000, 32) + log_line(3, 15'000, 64) + log_line(4, 15'400, 64) +
                          log_line(5, 99'000, 64, " number of skipped iterations: 1 |") + log_line(6, 15'200, 64) +
                          log_line(7, 15'100, 64);
  const Json gap = json_of(compared(log, "json"));
  EXPECT_NEAR(gap["measured_s"].get<double>(), 15.15, 1e-9);
  EXPECT_EQ(gap["logged"]["steps"], 4);
  EXPECT_NEAR(gap["logged"]["p5_s"].get<double>(), 15.015, 1e-9);
  EXPECT_NEAR(gap["logged"]["p95_s"].get<double>(), 15.37, 1e-9);
  EXPECT_NEAR(sum_of_parts(gap), gap["gap_s"].get<double>(), 1e-9);

  EXPECT_EQ(compared(log, "table").standard_output.find("step times vary"), std::string::npos);
  EXPECT_NE(compared(log + log_line(8, 19'000, 64), "table").standard_output.find("step times vary"),
            std::string::npos);

  const auto refused = [&compared](const std::string& text, const std::string& words) {
    const CommandResult result = compared(text, "table");
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused("nothing of note\n", "no training progress");
  refused(log_line(1, 60'000, 64), "no steps after the warm-up");
  refused(log_line(1, 60'000, 32) + log_line(2, 9'000, 48), "the log has --gbs 32, 48");
  refused("  world_size ... 8\n" + log, "the run had 8 ranks, but the job has 64 devices");
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
  EXPECT_NE(answer["rows"][2]["error"].get<std::string>().find("not a multiple"), std::string::npos);
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
  // The output cannot be written until the second run: the first run ends after its rows, as if killed.
  std::vector<std::string> arguments = sweep_arguments();
  arguments.back() = "sweep.json";
  std::filesystem::create_symlink("/dev/full", folder.path() / "sweep.json");
  ASSERT_EQ(run_flopcast(arguments, options).exit_code, 4);
  const std::filesystem::path partial = folder.path() / "sweep.json.partial";
  std::string text = read_text(partial);
  // One row is marked to show that it is not computed again, and the last line is truncated.
  const std::size_t marked = text.find("not a multiple");
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
  // Another question does not use these rows.
  write_text(partial, text);
  arguments[3] = "pp=1,2";
  EXPECT_EQ(run_flopcast(arguments, options).exit_code, 2);
}

// The memory of a sweep does not grow with its rows: 3,000 results of 6 kB pass through 24 MB.
TEST(Sweep, RowsPassThrough) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  std::string lengths;
  constexpr int kRows = 3'000;
  for (int row = 1; row <= kRows; ++row) lengths += (row == 1 ? "" : ",") + std::to_string(row * 2);
  const std::vector<std::string> sweep = {FLOPCAST_PROGRAM, "sweep",   "--model", "gpt3-125m",
                                          "--cluster",      "one-gpu", "--gbs",   "1",
                                          "--threads",      "1",       "--vary",  "seq=" + lengths};
  for (const char* const output : {"> all.json --format json", "-o all.json", "-o all.csv"}) {
    std::string script = "ulimit -d 24000 && exec";
    for (const std::string& word : sweep) script += " " + word;
      // Sanitizers need additional memory.
#ifdef __SANITIZE_ADDRESS__
    script.erase(0, script.find("exec"));
#endif
    const CommandResult result = run_command({"sh", "-c", script + " " + output}, options);
    ASSERT_EQ(result.exit_code, 0) << output << result.standard_error;
  }
  const Json all = Json::parse(read_text(folder.path() / "all.json"));
  ASSERT_EQ(all.at("rows").size(), static_cast<std::size_t>(kRows));
  for (int row = 0; row < kRows; ++row) {
    EXPECT_EQ(all.at("rows").at(row).at("values").at("training.sequence_length"), std::to_string(2 * (row + 1)));
  }
  const std::string csv = read_text(folder.path() / "all.csv");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), kRows + 1);
}

TEST(Sweep, ATableTooLongToReadIsRefused) {
  std::string lengths = "1";
  for (int row = 2; row <= 50'001; ++row) lengths += "," + std::to_string(row);
  const std::vector<std::string> sweep = {"sweep", "--model", "gpt3-125m", "--cluster",     "one-gpu",
                                          "--gbs", "1",       "--vary",    "seq=" + lengths};
  const CommandResult result = run_flopcast(sweep);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("at most 50000 rows; give --format csv or json"), std::string::npos)
      << result.standard_error;
}

// Another process with the same question may append and remove rows at any time: unreadable rows are computed again.
TEST(Sweep, RowsThatAreGoneAreComputedAgain) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(run_flopcast(sweep_arguments(), options).exit_code, 0);
  const std::string expected = read_text(folder.path() / "sweep.json");
  std::filesystem::remove(folder.path() / "sweep.json");
  std::vector<std::string> words = {FLOPCAST_PROGRAM};
  for (const std::string& word : sweep_arguments()) words.push_back(word);
  std::string script =
      "(while [ ! -e sweep.json ]; do [ ! -s sweep.json.partial ] || : > sweep.json.partial; done) & exec";
  for (const std::string& word : words) script += " '" + word + "'";
  const CommandResult result = run_command({"sh", "-c", script}, options);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_EQ(read_text(folder.path() / "sweep.json"), expected);
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
  const auto refused = [&options](std::vector<std::string> more, const std::string& words, int exit_code = 2) {
    more.insert(more.begin(), {"sweep", job_file()});
    const CommandResult result = run_flopcast(more, options);
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({}, "--vary");
  refused({"--vary", "pp"}, "has no values");
  refused({"--vary", "pq=1"}, "unknown key");
  refused({"--vary", "pp=1", "--vary", "layout.pp=2"}, "is varied twice");
  refused({"--vary", "pp=8", "--svg", "x.svg"}, "two keys");
  refused({"--vary", "pp=8", "--metric", "step_s"}, "--svg");
  refused({"--vary", "pp=4,8", "--vary", "mbs=1,2", "--svg", "x.svg", "--metric", "foo"}, "unknown value");
  refused({"--vary", "pp=8", "-o", ""}, "is empty");
  refused({"--vary", "pp=8", "-o", "."}, "is a directory", 4);
  refused({"--vary", "pp=8", "-o", "missing/sweep.csv"}, "does not exist", 4);
  refused({"--vary", "pp=8", "--threads", "1000000"}, "out of range");
  refused({"--vary", "pp=4,8", "--vary", "mbs=1", "--svg", "x.svg", "--metric", "days"}, "--tokens");
}

TEST(Sweep, OfNoCombinationIsAnAnswerThatIsNo) {
  for (const char* format : {"csv", "json", "table"}) {
    const CommandResult none = run_flopcast({"sweep", job_file(), "--vary", "tp=3,5", "--format", format});
    EXPECT_EQ(none.exit_code, 3) << format;
    EXPECT_NE(none.standard_error.find("no combination can be forecast; the first: layout."), std::string::npos)
        << none.standard_error;
    EXPECT_NE(none.standard_output.find("layout."), std::string::npos) << none.standard_output;
    EXPECT_EQ(run_flopcast({"sweep", job_file(), "--vary", "tp=3,8", "--format", format}).exit_code, 0) << format;
  }
}

// The page describes the fixed part of the job, whatever the job would be without the varied keys.
TEST(Sweep, APageWhoseBaseIsNoJob) {
  const TemporaryFolder folder;
  const std::string page = (folder.path() / "x.html").string();
  const CommandResult result = run_flopcast({"sweep", "--model", "gpt2-124m", "--gbs", "64", "--vary",
                                             "cluster=dgx-h100,dgx-a100-80g", "--vary", "mbs=1,2", "--html", page});
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_NE(read_text(page).find("Sweep: gpt2-124m on dgx-h100"), std::string::npos);
}

}  // namespace
}  // namespace flopcast
