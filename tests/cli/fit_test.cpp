// User-defined runs: constants fitted to them, and reasons for slow steps.

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Json run_row(const std::string& id, int tp, int nodes, double seconds) {
  return {{"id", id},
          {"job",
           {{"model", "llama3-8b"},
            {"cluster", {{"name", "dgx-h100"}, {"nodes", nodes}}},
            {"layout", {{"tp", tp}, {"zero", 1}, {"sequence_parallel", tp > 1}, {"global_batch_size", 128}}},
            {"training", {{"stack", "nemo"}}}}},
          {"measured", {{"iteration_s", seconds}}}};
}

void expect_valid(const char* schema, const Json& answer) {
  const Json rules =
      Json::parse(read_text(project_folder() / "docs" / "schema" / (std::string(schema) + ".schema.json")));
  EXPECT_EQ(schema_violation(rules, answer), "");
}

class FitCommand : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string file(const std::string& name, const std::string& text) const {
    write_text(path(name), text);
    return path(name);
  }
  // The same jobs, with measurements 10 % slower than their forecasts.
  std::string runs_file() const {
    Json rows = Json::array();
    for (const auto& [id, tp, nodes, seconds] : {std::tuple("a", 1, 1, 14.9), {"b", 2, 2, 7.5}, {"c", 4, 4, 4.0}}) {
      rows.push_back(run_row(id, tp, nodes, seconds));
    }
    return file("runs.json", rows.dump());
  }
  TemporaryFolder folder_;
};

TEST_F(FitCommand, RunsThatContradictAreTold) {
  const auto fitted = [this](const Json& rows) { return run_flopcast({"fit", file("rows.json", rows.dump())}); };
  const CommandResult twice = fitted({run_row("a", 1, 1, 14.9), run_row("b", 1, 1, 29.8)});
  EXPECT_NE(twice.standard_error.find("'a' and 'b' are the same job but took 14.9 and 29.8 s"), std::string::npos)
      << twice.standard_error;
  const CommandResult again = fitted({run_row("a", 1, 1, 14.9), run_row("b", 1, 1, 15.1)});
  EXPECT_EQ(again.standard_error.find("one job"), std::string::npos) << again.standard_error;
  const CommandResult same = fitted({run_row("a", 1, 1, 14.9), run_row("a", 2, 2, 7.5)});
  EXPECT_EQ(same.exit_code, 2);
  EXPECT_NE(same.standard_error.find("two runs have the id \"a\""), std::string::npos) << same.standard_error;
}

TEST_F(FitCommand, AProfileOfOnesOwnForecastsTheRuns) {
  const std::string runs = runs_file();
  const Json answer = json_of(run_flopcast({"fit", runs, "-o", path("mine.json"), "--format", "json"}));
  expect_valid("fit-1", answer);
  expect_valid("profile-1", Json::parse(read_text(path("mine.json"))));
  EXPECT_LT(answer["constants"][0]["low"], answer["constants"][0]["value"]);
  EXPECT_GT(answer["constants"][0]["high"], answer["constants"][0]["value"]);
  ASSERT_TRUE(answer["next"].is_object());
  const std::string next = file("next.json", answer["next"]["job"].dump());
  EXPECT_EQ(run_flopcast({"simulate", next}).exit_code, 0);
  for (const Json& run : answer["runs"]) {
    const std::string id = run["id"];
    const int tp = id == "a" ? 1 : id == "b" ? 2 : 4;
    Json job = run_row(id, tp, tp, 1.0)["job"];
    job["training"]["profile"] = path("mine.json");
    const Json result = json_of(run_flopcast({"simulate", file("job.json", job.dump()), "--format", "json"}));
    EXPECT_NEAR(result["iteration"]["time_s"], run["fitted_s"], 1e-6 * run["fitted_s"].get<double>()) << id;
    EXPECT_NE(result["step_time_interval"]["evidence"].get<std::string>().find("3 steps of your own"),
              std::string::npos);
  }
  EXPECT_EQ(run_flopcast({"plan", "--model", "llama3-8b", "--cluster", "2xdgx-h100", "--gbs", "64", "--stack", "nemo",
                          "--profile", path("mine.json")})
                .exit_code,
            0);
}

TEST_F(FitCommand, JobsAndLogsMayLieBesideTheRows) {
  file("job.json", run_row("a", 2, 2, 1.0)["job"].dump());
  std::string log;
  for (int step = 1; step <= 6; ++step) {
    log += " iteration " + std::to_string(step) +
           "/ 9 | elapsed time per iteration (ms): 7500.0 | global batch size: 128 |\n";
  }
  file("train.log", log);
  const std::string runs =
      file("runs.json", Json{{"id", "a"}, {"job", "job.json"}, {"measured", {{"log", "train.log"}}}}.dump());
  const Json answer = json_of(run_flopcast({"fit", runs, "--format", "json", "-o", path("mine.json")}));
  EXPECT_DOUBLE_EQ(answer["runs"][0]["measured_s"], 7.5);
}

TEST_F(FitCommand, SaysHowFarRunsLeftOutAre) {
  const CommandResult curve =
      run_flopcast({"fit", runs_file(), "--held-out", "1,2", "--repeat", "3", "--format", "csv"});
  EXPECT_EQ(curve.exit_code, 0) << curve.standard_error;
  EXPECT_NE(curve.standard_output.find("mape_percent"), std::string::npos) << curve.standard_output;
  EXPECT_EQ(run_flopcast({"fit", runs_file(), "--held-out", "3"}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"fit", runs_file(), "--choose", "random"}).exit_code, 2);
}

TEST_F(FitCommand, RefusesWhatIsNoRun) {
  const auto message_of = [this](const std::string& text) {
    const CommandResult result = run_flopcast({"fit", file("runs.json", text), "-o", path("mine.json")});
    EXPECT_EQ(result.exit_code, 2) << text << result.standard_error;
    return result.standard_error;
  };
  EXPECT_EQ(run_flopcast({"fit"}).exit_code, 2);
  EXPECT_NE(message_of("[]").find("empty list"), std::string::npos);
  EXPECT_NE(message_of("3").find("no rows"), std::string::npos);
  EXPECT_NE(message_of(R"([{"id": "a", "measured": {"iteration_s": 1}}])").find("job"), std::string::npos);
  Json row = run_row("a", 2, 1, 1.0);
  row["measured"] = Json::object();
  EXPECT_NE(message_of(row.dump()).find("has no step time"), std::string::npos);
  row = run_row("a", 3, 1, 1.0);
  EXPECT_NE(message_of(row.dump()).find("runs.json#a"), std::string::npos);
  row = run_row("a", 2, 1, -1.0);
  message_of(row.dump());
}

const char* const kSlowLinks =
    "# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824\n"
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
    "#wrong\n";

// A profile in which an all-reduce over the 8 devices of a node has a bus bandwidth of 45 GB/s, a tenth of the links'.
class SlowLinks : public FitCommand {
 protected:
  void SetUp() override {
    std::string log = kSlowLinks;
    for (double bytes = 1 << 20; bytes <= (1 << 30); bytes *= 2) {
      const double us = bytes * 1.75 / 45e3 + 20;
      char line[200];
      std::snprintf(line, sizeof line, "%12.0f %13.0f float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f 0\n", bytes,
                    bytes / 4, us, bytes / us / 1e3, 1.75 * bytes / us / 1e3, us, bytes / us / 1e3,
                    1.75 * bytes / us / 1e3);
      log += line;
    }
    ASSERT_EQ(run_flopcast({"calibrate", "--nccl-tests", file("slow.log", log), "--ranks", "8", "--nodes", "1",
                            "--collective", "all_reduce", "--device", "h100", "-o", path("slow.json")})
                  .exit_code,
              0);
  }
};

// Llama 3 8B on 16 devices with tp 4 and sequence parallelism, and the optimizer sharded over 4 replicas.
TEST_F(SlowLinks, SlowAWholeStepAsByHand) {
  constexpr double kRate = 45e9;
  constexpr double kMicrobatches = 128.0 / 4.0;
  constexpr double kLayers = 32.0;
  constexpr double kTokens = 8192.0;
  // A rank sends 3/4 of a gathered microbatch ten times per layer (gathers and scatters around attention and MLP in
  // both directions, and two more gathers of the inputs for the weight gradients), and four times around embedding and
  // head.
  constexpr double kTensor = (10.0 * kLayers + 4.0) * 0.75 * kTokens * 4096.0 * 2.0 * kMicrobatches / kRate;
  // 3/4 of a quarter of 8.03 billion gradients in 32 bits, and of the same number of weights in 16 bits; the ring over
  // two nodes is as slow as its links inside them.
  constexpr double kData = 0.75 * 8.03e9 / 4.0 * (4.0 + 2.0) / kRate;
  const auto step = [this](bool overlaps, bool slow) {
    std::vector<std::string> words = {"simulate", "--model", "llama3-8b", "--cluster", "2xdgx-h100",
                                      "--gbs",    "128",     "--tp",      "4",         "--sp",
                                      "--zero",   "1",       "--format",  "json"};
    for (const char* what : {"gradients", "parameters", "tp"}) {
      if (!overlaps) words.insert(words.end(), {std::string("--training.overlap.") + what, "false"});
    }
    if (slow) words.insert(words.end(), {"--profile", path("slow.json")});
    return json_of(run_flopcast(words));
  };
  const Json fast = step(false, false);
  const double computes = fast["breakdown"]["compute_s"].get<double>() + fast["breakdown"]["optimizer_s"].get<double>();
  const double by_hand = computes + kTensor + kData;
  const double slow_s = step(false, true)["iteration"]["time_s"];
  EXPECT_GT(by_hand, 2.0 * fast["iteration"]["time_s"].get<double>());
  EXPECT_NEAR(slow_s / by_hand, 1.0, 0.01) << "without any overlap; what it is above is latency";
  // With overlap, 0.76 of the gather time of the two inputs is hidden under their weight-gradient GEMMs: 4 FLOPs for
  // each of 4096 · (6144 + 28672) weights per layer and each token, a quarter of them per device, at the catalogue's
  // 0.65 of 989 TFLOP/s.
  constexpr double kMargin =
      4.0 * 4096.0 * (6144.0 + 28672.0) * kTokens / 4.0 * kLayers * kMicrobatches / (0.65 * 989e12);
  EXPECT_NEAR(step(true, true)["iteration"]["time_s"].get<double>() / (by_hand - 0.76 * kMargin), 1.0, 0.01);
}

TEST_F(SlowLinks, AProfileOfWhichNothingIsUsedIsAnError) {
  const std::vector<std::string> job = {"--cluster", "2xdgx-h100", "--gbs",           "128",      "--model",
                                        "llama3-8b", "--profile",  path("slow.json"), "--format", "json"};
  const auto with = [&job](std::vector<std::string> words) {
    words.insert(words.begin(), "simulate");
    words.insert(words.end(), job.begin(), job.end());
    return run_flopcast(words);
  };
  // Sequence parallelism and a distributed optimizer send no all-reduce over 8 ranks, but their times follow its curve.
  const Json slowed = json_of(with({"--tp", "4", "--sp", "--zero", "1"}));
  const double sent = slowed["communication"]["tp"]["bytes_sent_per_rank"];
  EXPECT_NEAR(slowed["communication"]["tp"]["total_s"].get<double>() / (sent / 45e9), 1.0, 0.05);
  // Data parallelism with one device per node uses no link inside nodes.
  const CommandResult idle = with({"--cluster.devices_per_node", "1"});
  EXPECT_EQ(idle.exit_code, 2);
  EXPECT_NE(idle.standard_error.find("is not used: it covers"), std::string::npos) << idle.standard_error;
}

TEST_F(FitCommand, CompareReadsTracesOfSeveralRanks) {
  const auto trace = [](int rank, double compute) {
    Json root = {{"distributedInfo", {{"rank", rank}}}, {"traceEvents", Json::array()}};
    const auto add = [&root](const char* category, const char* name, double start, double length) {
      root["traceEvents"].push_back(
          {{"ph", "X"}, {"cat", category}, {"name", name}, {"ts", start}, {"dur", length}, {"args", Json::object()}});
    };
    add("user_annotation", "ProfilerStep#3", 0, 10e6);
    add("kernel", "nvjet_gemm", 0, compute * 1e6);
    add("kernel", "ncclDevKernel_AllReduce_Sum_bf16", compute * 1e6, (9.9 - compute) * 1e6);
    return root.dump();
  };
  file("rank0.json", trace(0, 6.6));
  file("rank1.json", trace(1, 9.8));
  const std::string job = file("job.json", run_row("a", 2, 2, 1.0)["job"].dump());
  for (const std::vector<std::string>& traces :
       {std::vector<std::string>{path("rank0.json"), path("rank1.json")}, {path("rank*.json")}}) {
    std::vector<std::string> words = {"compare", job, "--measured", "10s", "--format", "json", "--trace"};
    words.insert(words.end(), traces.begin(), traces.end());
    const Json answer = json_of(run_flopcast(words));
    expect_valid("gap-1", answer);
    ASSERT_EQ(answer["traced"].size(), 2u);
    EXPECT_EQ(answer["hypotheses"][0]["name"], "straggler") << answer["hypotheses"].dump(1);
  }
  EXPECT_EQ(run_flopcast({"compare", job, "--measured", "10s", "--trace", path("none*.json")}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"compare", job, "--trace", path("rank1.json"), path("rank0.json"), "--svg", path("o.svg")})
                .exit_code,
            0);
  const std::string drawing = read_text(path("o.svg"));
  for (const char* words : {"forecast, rank 0", "traced, rank 0", "traced, rank 1", "communication"}) {
    EXPECT_NE(drawing.find(words), std::string::npos) << words;
  }
  EXPECT_EQ(run_flopcast({"compare", job, "--measured", "10s", "--svg", path("o.svg")}).exit_code, 2);
}

TEST_F(FitCommand, ValidateTellsDriftOfOnesOwnRuns) {
  const Json plain =
      json_of(run_flopcast({"simulate", file("job.json", run_row("a", 2, 2, 1.0)["job"].dump()), "--format", "json"}));
  const double forecast = plain["iteration"]["time_s"];
  const auto history = [&](double later) {
    Json rows = Json::array();
    for (int month = 1; month <= 8; ++month) {
      const double times = (month >= 5 ? later : 1.0) + (month % 2 == 0 ? 0.004 : -0.004);
      rows.push_back(run_row("m" + std::to_string(month), 2, 2, forecast * times));
      rows.back()["date"] = "2026-0" + std::to_string(month) + "-03";
    }
    std::filesystem::create_directories(folder_.path() / "runs");
    write_text(path("runs/history.json"), rows.dump());
    return run_flopcast({"validate", "--runs", path("runs"), "--format", "json"});
  };
  const Json drifted = json_of(history(1.06));
  expect_valid("validation-1", drifted);
  EXPECT_EQ(drifted["sources"][0]["drift"]["since"], "2026-05-03");
  EXPECT_NEAR(drifted["sources"][0]["drift"]["error_since"], 1.0 / 1.06 - 1.0, 0.005);
  EXPECT_NE(
      run_flopcast({"validate", "--runs", path("runs")}).standard_output.find("since 2026-05-03 forecasts are 5."),
      std::string::npos);
  EXPECT_FALSE(json_of(history(1.0))["sources"][0].contains("drift"));
  Json undated = run_row("a", 2, 2, forecast);
  undated["date"] = "May";
  write_text(path("runs/history.json"), undated.dump());
  EXPECT_EQ(run_flopcast({"validate", "--runs", path("runs")}).exit_code, 2);
}

}  // namespace
}  // namespace flopcast
