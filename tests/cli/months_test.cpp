// Runs over months, as the command line requests them.
#include <gtest/gtest.h>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using MonthsJson = nlohmann::json;

std::vector<std::string> months_of(std::vector<std::string> words) {
  const std::vector<std::string> job = {"--model", "gpt3-13b", "--cluster", "32xdgx-h100", "--gbs",
                                        "512",     "--tokens", "20T",       "--price",     "2"};
  words.insert(words.end(), job.begin(), job.end());
  return words;
}

std::vector<std::string> one_layout(std::vector<std::string> words) {
  words.insert(words.end(), {"--tp", "8", "--pp", "4"});
  return months_of(std::move(words));
}

MonthsJson answer_of(std::vector<std::string> words) {
  words.insert(words.end(), {"--format", "json"});
  const CommandResult result = run_flopcast(words);
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  return MonthsJson::parse(result.standard_output);
}

TEST(Months, SimulateTellsTheRun) {
  const MonthsJson answer =
      answer_of(one_layout({"simulate", "--failures", "llama3", "--spares", "2", "--runs", "60"}));
  const MonthsJson rules = MonthsJson::parse(read_text(project_folder() / "docs" / "schema" / "result-1.schema.json"));
  EXPECT_EQ(schema_violation(rules, answer), "");
  const MonthsJson& run = answer.at("run");
  EXPECT_EQ(run.at("runs"), 60);
  for (const char* figure : {"goodput", "ettr", "days", "cost_usd"}) {
    EXPECT_LE(run.at(figure).at("p5"), run.at(figure).at("p50")) << figure;
    EXPECT_LE(run.at(figure).at("p50"), run.at(figure).at("p95")) << figure;
  }
  EXPECT_GT(run.at("days").at("p5"), answer.at("training").at("days"));
  // 256 GPUs, and two spare nodes of eight.
  EXPECT_NEAR(run.at("cost_usd").at("p50").get<double>(), run.at("days").at("p50").get<double>() * 24.0 * 272.0 * 2.0,
              1.0);
  for (const char* phase : {"detect", "restart", "redo", "checkpoint", "wait_for_spare"}) {
    EXPECT_TRUE(run.at("lost_s").at("by_phase").contains(phase)) << phase;
  }
  EXPECT_TRUE(run.at("lost_s").at("by_cause").contains("faulty GPU"));
  EXPECT_GT(run.at("checkpoint_interval_s"), 0.0);
  EXPECT_FALSE(run.at("options").empty());
  EXPECT_EQ(answer.at("job").at("failures").at("preset"), "llama3");
  EXPECT_EQ(answer.at("job").at("failures").at("spares"), 2);
}

TEST(Months, TablesTellTheRun) {
  const CommandResult result = run_flopcast(one_layout({"simulate", "--failures", "llama3"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  for (const char* words :
       {"with failures", "goodput (time of steps / wall-clock time)", "lost to", "cause: faulty GPU",
        "change to the run", "a checkpoint in storage every", "are worth their cost"}) {
    EXPECT_NE(result.standard_output.find(words), std::string::npos) << words;
  }
}

TEST(Months, TheReportShowsTheRun) {
  const TemporaryFolder folder;
  const std::string page = (folder.path() / "step.html").string();
  ASSERT_EQ(run_flopcast(one_layout({"simulate", "--failures", "llama3", "--html", page})).exit_code, 0);
  const std::string text = read_text(page);
  for (const char* words :
       {"The median run", "goodput (time of steps / wall-clock time)", "lost to", "change to the run"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words;
  }
  ASSERT_EQ(run_flopcast(one_layout({"simulate", "--html", page})).exit_code, 0);
  EXPECT_EQ(read_text(page).find("The median run"), std::string::npos);
}

TEST(Months, AShortRunIsTold) {
  std::vector<std::string> short_run = {"simulate", "--failures", "llama3", "--model",  "gpt3-125m", "--cluster",
                                        "dgx-h100", "--gbs",      "64",     "--tokens", "10B"};
  const CommandResult result = run_flopcast(short_run);
  const std::string line = result.standard_output.substr(0, result.standard_output.find('\n'));
  double middle = 0.0;
  double low = 0.0;
  double high = 0.0;
  const std::size_t place = line.find("%, ");
  ASSERT_NE(place, std::string::npos) << line;
  // Three times in the same unit.
  EXPECT_EQ(std::sscanf(line.c_str() + place, "%%, %lf h (%lf to %lf) with failures", &middle, &low, &high), 3) << line;
  EXPECT_LE(low, middle);
  EXPECT_LE(middle, high);
}

TEST(Months, OneCauseMeansTheSameToPlanAndSimulate) {
  const std::vector<std::string> cause = {"--mtbf", "2000h", "--checkpoint-time", "20s", "--restart-time", "10min"};
  std::vector<std::string> simulate = {"simulate"};
  simulate.insert(simulate.end(), cause.begin(), cause.end());
  const MonthsJson run = answer_of(one_layout(simulate)).at("run");
  EXPECT_EQ(run.at("checkpoint_cost_s"), 20.0);
  EXPECT_EQ(run.at("restore_s"), 600.0);
  std::vector<std::string> plan = {"plan", "--top", "1"};
  plan.insert(plan.end(), cause.begin(), cause.end());
  const MonthsJson best = answer_of(months_of(plan)).at("best");
  const double closed = best.at("run").at("goodput");
  EXPECT_NEAR(run.at("goodput").at("p50").get<double>(), closed, 0.01);
  // The best layout's run is simulated, too.
  EXPECT_NEAR(best.at("result").at("run").at("goodput").at("p50").get<double>(), closed, 0.01);
}

TEST(Months, AFlagHoldsTheSectionAsJson) {
  const MonthsJson answer = answer_of(one_layout({"simulate", "--failures", R"({"mtbf": "2000h", "runs": 7})"}));
  EXPECT_EQ(answer.at("run").at("runs"), 7);
}

TEST(Months, CompareAndSweepTellGoodput) {
  const MonthsJson compared = answer_of(one_layout({"compare", "failures=llama3", "failures=rsc-2", "--runs", "20"}));
  EXPECT_LT(compared.at("a").at("result").at("run").at("goodput").at("p50"),
            compared.at("b").at("result").at("run").at("goodput").at("p50"));
  const CommandResult swept = run_flopcast(one_layout(
      {"sweep", "--failures", "llama3", "--runs", "20", "--vary", "failures.spares=0,4", "--format", "csv"}));
  ASSERT_EQ(swept.exit_code, 0) << swept.standard_error;
  EXPECT_NE(swept.standard_output.find("run_days,goodput_percent"), std::string::npos) << swept.standard_output;
}

TEST(Months, LifeIsDrawn) {
  const TemporaryFolder folder;
  const std::string svg = (folder.path() / "run.svg").string();
  const std::string page = (folder.path() / "run.html").string();
  for (const std::string& file : {svg, page}) {
    const CommandResult result =
        run_flopcast(one_layout({"simulate", "--failures", "llama3", "--runs", "5", "--life", file}));
    ASSERT_EQ(result.exit_code, 0) << result.standard_error;
    const std::string text = read_text(file);
    EXPECT_NE(text.find("lost work"), std::string::npos);
    EXPECT_NE(text.find("</svg>"), std::string::npos);
  }
  EXPECT_EQ(read_text(page).rfind("<!doctype html>", 0), 0u);
  const CommandResult drawn = run_flopcast(
      one_layout({"timeline", "--failures", "llama3", "--runs", "5", "--life", "--ascii", "--width", "60"}));
  ASSERT_EQ(drawn.exit_code, 0) << drawn.standard_error;
  EXPECT_NE(drawn.standard_output.find("gpt3-13b on dgx-h100: "), std::string::npos);
  EXPECT_EQ(drawn.standard_output.find("█"), std::string::npos);
  const CommandResult nothing = run_flopcast(one_layout({"simulate", "--life", svg}));
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_NE(nothing.standard_error.find("--failures NAME"), std::string::npos);
}

TEST(Months, ALogOfInterruptionsIsCounted) {
  const TemporaryFolder folder;
  const std::string log = (folder.path() / "log.csv").string();
  write_text(log,
             "time,cause,per,takes,count\n"
             "1,\"GPU, memory\",gpu,,\n2,\"GPU, memory\",gpu,,2\n\n3,switch,link,nothing,\n");
  const std::vector<std::string> fleet = {
      "--failure-log", log, "--failures.observed.gpus", "256", "--failures.observed.days", "30"};
  std::vector<std::string> words = {"simulate"};
  words.insert(words.end(), fleet.begin(), fleet.end());
  const MonthsJson answer = answer_of(one_layout(words));
  const MonthsJson& causes = answer.at("job").at("failures").at("causes");
  ASSERT_EQ(causes.size(), 2u);
  EXPECT_EQ(causes[0].at("name"), "GPU, memory");
  EXPECT_EQ(causes[0].at("events"), 3.0);
  EXPECT_EQ(causes[1].at("takes"), "nothing");
  // Four interruptions in 30 days, on the same numbers of GPUs and network cards.
  EXPECT_NEAR(answer.at("run").at("interruptions_per_day").get<double>(), 4.0 / 30.0, 0.04);
  const auto message_of = [&](const std::string& text) {
    write_text(log, text);
    const CommandResult result = run_flopcast(one_layout(words));
    EXPECT_EQ(result.exit_code, 2) << text;
    return result.standard_error;
  };
  EXPECT_NE(message_of("time,per\n1,gpu\n").find("lacks a column cause"), std::string::npos);
  EXPECT_NE(message_of("cause,per\na,gpu\na,node\n").find("log.csv:3"), std::string::npos);
  EXPECT_NE(message_of("cause,per\na,gpus\n").find("did you mean gpu"), std::string::npos);
  EXPECT_NE(message_of("cause,count\na,-1\n").find("count"), std::string::npos);
  EXPECT_NE(message_of("cause\n\"a\n").find("quote"), std::string::npos);
  EXPECT_NE(message_of("cause\n").find("does not contain any interruption"), std::string::npos);
  EXPECT_NE(message_of("cause\na,b\n").find("has 2 fields"), std::string::npos);
}

TEST(Months, PublishedFiguresAreHeldAgainstRuns) {
  const CommandResult result = run_flopcast({"validate", "--failures", "--format", "csv"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  for (const char* row : {"llama3-effective", "byterobust-dense", "rsc-mttf-16384", "rsc-mttf-131072", "bloom-ckpt"}) {
    const std::size_t at = result.standard_output.find(std::string("\n") + row);
    ASSERT_NE(at, std::string::npos) << row;
    const std::string line = result.standard_output.substr(at + 1, result.standard_output.find('\n', at + 1) - at - 1);
    EXPECT_EQ(line.substr(line.rfind(',') + 1), "yes") << line;
  }
  // Missed limits are listed as well, each with its reason.
  const auto times_in = [](const std::string& text, std::string_view part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
    return times;
  };
  const int missed = times_in(result.standard_output, ",no\n");
  EXPECT_GT(missed, 0);
  const std::string told = run_flopcast({"validate", "--failures"}).standard_output;
  EXPECT_EQ(times_in(told, "; outside: "), missed);
  EXPECT_EQ(told.find("not explained"), std::string::npos);
  const std::optional<std::filesystem::path> reference = reference_folder();
  if (!reference || !std::filesystem::exists(*reference / "network" / "published.json")) {
    GTEST_SKIP() << "no reference/network/published.json";
  }
  const std::string own = (*reference / "network" / "published.json").string();
  const CommandResult given = run_flopcast({"validate", "--failures", "--published", own, "--format", "csv"});
  EXPECT_EQ(given.exit_code, 0) << given.standard_error;
  EXPECT_EQ(given.standard_output, result.standard_output);
}

}  // namespace
}  // namespace flopcast
