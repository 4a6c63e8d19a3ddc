// flopcast validate: its JSON, exit codes, error messages, and the page that it writes.

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

void expect_keys(const Json& object, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    EXPECT_TRUE(object.contains(key)) << key << " in " << object.dump().substr(0, 200);
}

TEST(Validate, AnswersInJson) {
  const CommandResult result = run_flopcast({"validate", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json json = Json::parse(result.standard_output);
  ASSERT_GT(json.at("sources").size(), 10u);
  std::size_t evaluated = 0;
  for (const Json& source : json.at("sources")) {
    expect_keys(source, {"source", "rows", "evaluated", "skipped", "fit_rows", "time", "memory", "group", "n", "mape",
                         "bias", "inside", "half_width", "memory_mape", "regret", "rank_correlation", "floor"});
    expect_keys(source.at("time"), {"mape", "median", "p90", "max", "bias", "naive_mape"});
    expect_keys(source.at("memory"), {"mape", "median", "p90", "max", "bias"});
    EXPECT_EQ(source.at("rows"), source.at("evaluated").get<std::size_t>() + source.at("skipped").size());
    for (const Json& row : source.at("skipped")) expect_keys(row, {"id", "reason"});
    if (source.at("group").is_null()) evaluated += source.at("evaluated").get<std::size_t>();
  }
  EXPECT_EQ(json.at("rows").size(), evaluated);
  for (const Json& row : json.at("rows")) {
    expect_keys(row, {"id", "source", "used_in_fit", "predicted_s", "measured_s", "error", "memory_predicted_gib",
                      "memory_measured_gib"});
    if (row.at("error").is_null()) continue;
    const double relative = row.at("predicted_s").get<double>() / row.at("measured_s").get<double>() - 1.0;
    EXPECT_NEAR(row.at("error").get<double>(), relative, 1e-12);
  }
}

TEST(Validate, EvaluatesRowsItHasNeverSeen) {
  const TemporaryFolder folder;
  write_text(folder.path() / "somebody.json", R"({"meta": {}, "rows": [
    {"id": "new-1", "complete_for_e2e": true, "hardware": {"gpu": "H100-SXM5-80GB", "gpus_per_node": 8, "num_gpus": 8},
     "model": {"layers": 8, "hidden": 2048, "heads": 16, "kv_heads": 16, "ffn": 8192, "seq": 2048, "vocab": 50304},
     "parallel": {"dp": 8, "micro_batch": 2, "global_batch": 64, "recompute": "none", "schedule": "none"},
     "measured": {"iteration_s": 0.5}}, {"id": "new-2", "measured": {"iteration_s": 0.5}}]})");
  const CommandResult result = run_flopcast({"validate", "--published", folder.path().string(), "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json json = Json::parse(result.standard_output);
  EXPECT_EQ(json.at("sources").at(0).at("source"), "somebody");
  EXPECT_EQ(json.at("sources").at(0).at("evaluated"), 1);
  EXPECT_EQ(json.at("sources").at(0).at("skipped").at(0).at("id"), "new-2");
  EXPECT_EQ(json.at("rows").at(0).at("used_in_fit"), false);
}

TEST(Validate, ExitsWith3BeyondTheLimit) {
  EXPECT_EQ(run_flopcast({"validate", "--source", "simumax", "--max-error", "0.5"}).exit_code, 0);
  const CommandResult result = run_flopcast({"validate", "--source", "simumax", "--max-error", "0.0001"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.standard_error.find("simumax"), std::string::npos);
}

TEST(Validate, RefusesWhatItCannotDo) {
  const std::vector<std::vector<std::string>> wrong = {
      {"validate", "--source", "simumaxx"},      {"validate", "--max-error", "much"},
      {"validate", "--published", "/no/folder"}, {"validate", "--published", "a", "--runs", "b"},
      {"validate", "--refit", "--runs", "b"},    {"validate", "--refit", "--source", "simumax"}};
  for (const auto& arguments : wrong) {
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments[1] << result.standard_error;
    EXPECT_EQ(result.standard_error.rfind("error: ", 0), 0u) << result.standard_error;
  }
  EXPECT_NE(run_flopcast({"validate", "--source", "simumaxx"}).standard_error.find("simumax"), std::string::npos);
}

TEST(Validate, PutsDocumentedRunsBesideTheirForecasts) {
  const TemporaryFolder folder;
  const std::string job = R"({"model": "gpt3-1.3b", "cluster": "dgx-a100-80g", "layout": {"global_batch_size": 64)";
  write_text(folder.path() / "a.json", R"({"run": "a", "source": "here", "published": {"iteration.time_s": 2.5},
    "job": )" + job + R"(, "tp": 2, "pp": 2}}})");
  write_text(folder.path() / "b.json", R"({"run": "b", "source": "there", "assumed": "all", "planned": true,
    "published": {"iteration.samples_per_s": 30}, "job": )" +
                                           job + R"(, "zero": 1}}})");
  const CommandResult table = run_flopcast({"validate", "--documented", folder.path().string(), "--format", "json"});
  ASSERT_EQ(table.exit_code, 0) << table.standard_error;
  const Json rows = Json::parse(table.standard_output);
  ASSERT_EQ(rows.size(), 2u);
  const Json simulated = Json::parse(run_flopcast({"simulate", "--model", "gpt3-1.3b", "--cluster", "dgx-a100-80g",
                                                   "--gbs", "64", "--tp", "2", "--pp", "2", "--format", "json"})
                                         .standard_output);
  const double step = simulated["iteration"]["time_s"].get<double>();
  EXPECT_NEAR(rows[0]["predicted"].get<double>(), step, 1e-3 * step);
  EXPECT_NEAR(rows[0]["error_percent"].get<double>(), 100.0 * (step / 2.5 - 1.0), 0.06);
  const Json planned = Json::parse(run_flopcast({"plan", "--model", "gpt3-1.3b", "--cluster", "dgx-a100-80g", "--gbs",
                                                 "64", "--zero", "1", "--format", "json"})
                                       .standard_output);
  const double samples = planned["best"]["result"]["iteration"]["samples_per_s"].get<double>();
  EXPECT_NEAR(rows[1]["predicted"].get<double>(), samples, 1e-3 * samples);
  const CommandResult text = run_flopcast({"validate", "--documented", folder.path().string()});
  EXPECT_NE(text.standard_output.find("b: there; assumed: all"), std::string::npos) << text.standard_output;
}

TEST(Validate, RefusesDocumentedRunsThatSayNothing) {
  const TemporaryFolder folder;
  const auto refused = [&folder](const std::string& published, const std::string& rest, const std::string& words) {
    write_text(folder.path() / "a.json", R"({"run": "a", "source": "here", "published": )" + published + rest +
                                             R"(, "job": {"model": "gpt3-1.3b", "cluster": "dgx-a100-80g",
                                                 "layout": {"global_batch_size": 64}}})");
    const CommandResult result = run_flopcast({"validate", "--documented", folder.path().string()});
    EXPECT_EQ(result.exit_code, 2) << result.standard_output;
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
    EXPECT_NE(result.standard_error.find("a.json"), std::string::npos) << result.standard_error;
  };
  refused("{}", "", "has no figure");
  refused(R"({"iteration.time": 3})", "", "is not a number in results");
  refused(R"({"training.days": 3})", "", "is not a number in results");
  refused(R"({"iteration.time_s": 0})", "", "is not a number above 0");
  refused(R"({"iteration.time_s": 3})", R"(, "asumed": "x")", "did you mean assumed");
}

TEST(Validate, ReadsSavedRuns) {
  const TemporaryFolder folder;
  write_text(folder.path() / "one.json",
             R"([{"term": "step time", "unit": "s", "forecast": 0.1, "replay": 0.22, "measured": 0.2}])");
  write_text(folder.path() / "two.json",
             R"({"forecast": {"iteration": {"time_s": 0.9}}, "measured": {"iteration": {"time_s": 1.0}}})");
  const CommandResult result = run_flopcast({"validate", "--runs", folder.path().string(), "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json json = Json::parse(result.standard_output);
  EXPECT_NEAR(json.at("sources").at(0).at("time").at("mape").get<double>(), 0.1, 1e-9);
  write_text(folder.path() / "three.json", "{}");
  EXPECT_EQ(run_flopcast({"validate", "--runs", folder.path().string()}).exit_code, 2);
}

TEST(Validate, AppendsTablesToThePage) {
  const TemporaryFolder scratch;
  const auto section = scratch.path() / "section.md";
  write_text(section, "## A GPU\n");
  const CommandResult page = run_flopcast({"validate", "--markdown-page", "--append", section.string()});
  EXPECT_EQ(page.exit_code, 0) << page.standard_error;
  EXPECT_EQ(page.standard_output.substr(page.standard_output.size() - 10), "\n## A GPU\n");
  EXPECT_EQ(run_flopcast({"validate", "--append", section.string()}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"validate", "--markdown-page", "--append", "/missing.md"}).exit_code, 2);
}

// FLOPCAST_BLESS=1 rewrites the page and its chart.
TEST(Validate, WritesThePageInTheDocuments) {
  const TemporaryFolder scratch;
  const auto chart = scratch.path() / "validation.svg";
  std::vector<std::string> words = {"validate", "--markdown-page", "--svg", chart.string()};
  // Tables of GPU sessions, written by tests/gpu/evaluate.
  std::set<std::string> sections;
  const auto folder = project_folder() / "docs" / "validation";
  if (std::filesystem::exists(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (std::filesystem::exists(entry.path() / "section.md")) sections.insert(entry.path() / "section.md");
    }
  }
  for (const std::string& section : sections) words.insert(words.end(), {"--append", section});
  const CommandResult result = run_flopcast(words);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const auto page = project_folder() / "docs" / "validation.md";
  const auto image = project_folder() / "docs" / "images" / "validation.svg";
  if (std::getenv("FLOPCAST_BLESS") != nullptr) {
    write_text(page, result.standard_output);
    write_text(image, read_text(chart));
    return;
  }
  EXPECT_TRUE(read_text(page) == result.standard_output)
      << page << " is not what flopcast validate --markdown-page says";
  EXPECT_TRUE(read_text(image) == read_text(chart)) << image;
}

}  // namespace
}  // namespace flopcast
