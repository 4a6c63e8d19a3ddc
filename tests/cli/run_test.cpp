// `flopcast run`: real training on threads, seen from outside. Tests check structure, never time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/cli/report_page.hpp"
#include "tests/cli/small_run.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_command.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::vector<std::string> run_of(std::vector<std::string> more) {
  more.insert(more.end(), {"--steps", "3"});
  return small_run(more);
}

Json rules_of(const std::string& schema) {
  return Json::parse(read_text(project_folder() / "docs" / "schema" / (schema + ".schema.json")));
}

class Run : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("flopcast-run-test-" + std::to_string(getpid()));
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }
};

// Thread and name of every slice, which align when two traces are overlaid.
std::set<std::string> slices_of(const fs::path& trace) {
  std::set<std::string> slices;
  const Json document = Json::parse(read_text(trace));
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    slices.insert(event.at("pid").dump() + "/" + event.at("tid").dump() + "/" + event.at("name").get<std::string>());
  }
  return slices;
}

TEST_F(Run, TakesAPlan) {
  const fs::path plan = folder_ / "plan.json";
  std::vector<std::string> question = small_run({"--precision", "fp32", "--tp", "1", "-o", plan.string()});
  question.front() = "plan";
  ASSERT_EQ(start_flopcast(question).exit_code, 0);
  const CommandResult result = start_flopcast({"run", plan.string(), "--steps", "3", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json best = Json::parse(read_text(plan)).at("best");
  for (const char* part : {"forecast", "measured"}) {
    const Json layout = Json::parse(result.standard_output).at(part).at("job").at("layout");
    for (const char* axis : {"tp", "pp", "dp", "micro_batch_size"}) {
      EXPECT_EQ(layout.at(axis), best.at("layout").at(axis)) << part << " " << axis;
    }
    // A plan without pipeline has no schedule, but a job always has one.
    EXPECT_EQ(best.at("layout").at("schedule").is_null(), best.at("layout").at("pp") == 1);
    EXPECT_TRUE(layout.at("schedule").is_string()) << part;
  }
}

TEST_F(Run, TrainsAdaptersAndSaysWhatOfTheBaseIsNotExecuted) {
  const CommandResult result = start_flopcast(run_of({"--finetune", "qlora", "--lora-rank", "4", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_NE(result.standard_error.find("note: frozen weights have 32 bits in this run, not nf4"), std::string::npos);
  const Json run = Json::parse(result.standard_output);
  const Json sent = run.at("measured").at("communication").at("dp").at("bytes_sent_per_rank");
  // 8 replicas: r·(in + out) elements of queries, keys, values, output and both halves of a plain MLP, in 4 layers.
  const double elements = 4 * 4.0 * (4 * 32 + 2 * (16 + 64));
  EXPECT_NEAR(sent.get<double>(), 2.0 * 7 / 8 * 4 * elements, 1.0);
}

TEST_F(Run, TracesOfRunAndForecastUseTheSameNames) {
  const std::vector<std::string> layout = {"--pp", "2", "--model.tied_embeddings", "false"};
  std::vector<std::string> run = run_of(layout);
  const fs::path measured = folder_ / "measured.json";
  const fs::path page = folder_ / "run.html";
  run.insert(run.end(), {"--trace", measured.string(), "--html", page.string()});
  const CommandResult result = start_flopcast(run);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;

  std::vector<std::string> simulate = run_of(layout);
  simulate.front() = "simulate";
  simulate.erase(std::find(simulate.begin(), simulate.end(), "--steps"),
                 std::find(simulate.begin(), simulate.end(), "--steps") + 2);
  const fs::path forecast = folder_ / "forecast.json";
  simulate.insert(simulate.end(), {"--trace", forecast.string()});
  const CommandResult simulated = start_flopcast(simulate);
  ASSERT_EQ(simulated.exit_code, 0) << simulated.standard_error;

  const std::set<std::string> names = slices_of(forecast);
  const std::set<std::string> found = slices_of(measured);
  EXPECT_GE(found.size(), 2u * 2u * 4u) << "two passes of four microbatches on two ranks";
  for (const std::string& name : found) EXPECT_TRUE(names.count(name) == 1) << name;
  for (const std::string& name : names) {
    const bool of_an_action = name.find("/F ") != std::string::npos || name.find("/B ") != std::string::npos;
    EXPECT_TRUE(!of_an_action || found.count(name) == 1) << name;
  }
  const std::string html = read_text(page);
  EXPECT_LT(html.find("\"name\":\"forecast\""), html.find("\"name\":\"measured\""));
}

TEST_F(Run, FilesThatCannotBeWrittenAreRefusedBeforeTraining) {
  const fs::path measured = folder_ / "measured.json";
  for (const char* flag : {"--svg", "--html", "--trace", "--loss-svg"}) {
    std::vector<std::string> run = run_of({"--pp", "2", "-o", measured.string()});
    run.insert(run.end(), {flag, (folder_ / "missing" / "x").string()});
    const CommandResult result = start_flopcast(run);
    EXPECT_EQ(result.exit_code, 4) << flag;
    EXPECT_NE(result.standard_error.find("does not exist"), std::string::npos) << result.standard_error;
    EXPECT_EQ(result.standard_output, "");
    EXPECT_FALSE(fs::exists(measured)) << flag << ": it has trained";
  }
  const CommandResult directory = start_flopcast(run_of({"--pp", "2", "--svg", folder_.string()}));
  EXPECT_EQ(directory.exit_code, 4);
  EXPECT_NE(directory.standard_error.find("is a directory"), std::string::npos) << directory.standard_error;
}

TEST_F(Run, ShowsForecastReplayAndMeasurement) {
  const CommandResult result =
      start_flopcast(run_of({"--pp", "2", "--model.tied_embeddings", "false", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json answer = Json::parse(result.standard_output);
  EXPECT_EQ(schema_violation(rules_of("run-1"), answer), "");
  for (const char* side : {"forecast", "measured"}) {
    EXPECT_GT(answer.at(side).at("iteration").at("time_s").get<double>(), 0) << side;
    EXPECT_EQ(answer.at(side).at("memory").at("per_pipeline_rank").size(), 2U) << side;
  }
  // Bytes are counted in both directions as in the forecast: in fp32, whatever the job's precision.
  const auto sent = [&](const char* side) { return answer[side]["communication"]["pp"]["bytes_sent_per_rank"]; };
  EXPECT_DOUBLE_EQ(sent("forecast").get<double>(), sent("measured").get<double>());
  EXPECT_EQ(answer.at("repetitions").at("count"), 1);
  EXPECT_EQ(answer.at("disturbed").at("stretch").size(), 1U);
  EXPECT_EQ(answer.at("error").at("terms")[0].at("term"), "time_s");
  EXPECT_GT(answer.at("calibration").at("before_s").get<double>(), 0.0);
  EXPECT_GT(answer.at("calibration").at("after_s").get<double>(), 0.0);
}

TEST_F(Run, AReportOfASavedRunTellsWhatItsOwnPageDoes) {
  const fs::path page = folder_ / "run.html";
  const fs::path saved = folder_ / "run.json";
  const fs::path report = folder_ / "report.html";
  const fs::path kept = folder_ / "measured.json";
  const CommandResult result =
      start_flopcast(run_of({"--pp", "2", "--model.tied_embeddings", "false", "--schedule", "1f1b", "--html",
                             page.string(), "-o", kept.string(), "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  std::ofstream(saved) << result.standard_output;
  const Json own = Json::parse(data_of_page(read_text(page))).at("views");
  ASSERT_EQ(own.size(), 2U);
  for (const fs::path& file : {saved, kept}) {
    const CommandResult reported = start_flopcast({"report", file.string(), "-o", report.string()});
    ASSERT_EQ(reported.exit_code, 0) << reported.standard_error;
    EXPECT_EQ(Json::parse(data_of_page(read_text(report))), Json::parse(data_of_page(read_text(page)))) << file;
  }
  for (const Json& view : own) EXPECT_EQ(view.at("memory").at("of"), "activations");
  const auto header = Json::parse(data_of_page(read_text(page))).at("question").get<std::string>();
  EXPECT_NE(header.find("measured with backend threads"), std::string::npos) << header;
  EXPECT_EQ(header.find(" 0 M parameters"), std::string::npos) << header;
  EXPECT_EQ(Json::parse(data_of_page(read_text(report))).at("question"), header);
}

// The bytes held by the spans of the forecast's timeline peak at the forecast's memory peak.
TEST_F(Run, TellsWhatItsActionsKeep) {
  const CommandResult result = start_flopcast(
      run_of({"--pp", "2", "--model.tied_embeddings", "false", "--schedule", "zb-h1", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json answer = Json::parse(result.standard_output);
  const Json& kept = answer.at("activation_bytes").at("forecast");
  ASSERT_EQ(kept.size(), 2U);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto from_forward = kept[rank].at("from_forward").get<double>();
    const auto after = kept[rank].at("after_input_gradient").get<double>();
    EXPECT_NE(from_forward, after);
    double bytes = 0.0;
    double peak = 0.0;
    for (const Json& span : answer.at("timelines").at("forecast").at("ranks")[rank]) {
      if (span.at("kind") == "forward") bytes += from_forward;
      if (span.at("kind") == "input gradient") bytes += after - from_forward;
      if (span.at("kind") == "weight gradient") bytes -= after;
      peak = std::max(peak, bytes);
    }
    const Json& memory = answer.at("forecast").at("memory").at("per_pipeline_rank")[rank];
    EXPECT_DOUBLE_EQ(peak / 1073741824.0, memory.at("activations_gib").get<double>());
  }
}

TEST_F(Run, SleptRanksKeepNothingAndThePageSaysSo) {
  const fs::path page = folder_ / "slept.html";
  const CommandResult result =
      start_flopcast(run_of({"--pp", "2", "--compute", "sleep", "--forward", "1ms", "--backward", "2ms", "--html",
                             page.string(), "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_FALSE(Json::parse(result.standard_output).contains("activation_bytes"));
  const Json data = Json::parse(data_of_page(read_text(page)));
  for (const Json& view : data.at("views")) EXPECT_FALSE(view.contains("memory"));
  EXPECT_NE(data.at("question").get<std::string>().find("no memory over time: the ranks slept"), std::string::npos);
}

TEST_F(Run, RepeatsFifteenTimesUnlessTold) {
  for (const auto& [schedule, losses] : {std::pair("gpipe", 17U), std::pair("pipedream-2bw", 18U)}) {
    const CommandResult result = start_flopcast(
        small_run({"--pp", "2", "--format", "json", "--model.tied_embeddings", "false", "--schedule", schedule}));
    ASSERT_EQ(result.exit_code, 0) << result.standard_error;
    const Json answer = Json::parse(result.standard_output);
    EXPECT_EQ(answer.at("repetitions").at("time_s").size(), 15U) << schedule;
    EXPECT_EQ(answer.at("repetitions").at("warmup"), 2) << schedule;
    EXPECT_EQ(answer.at("losses").size(), losses) << schedule;
  }
}

TEST_F(Run, EmulatesMoreRanksThanProcessors) {
  const CommandResult result = start_flopcast(run_of(
      {"--pp", "4", "--compute", "sleep", "--forward", "2ms", "--backward", "3ms,3ms,3ms,4ms", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json answer = Json::parse(result.standard_output);
  EXPECT_EQ(answer.at("compute"), "sleep");
  EXPECT_TRUE(answer.at("losses").empty());
  // Two replicas: the slowest rank works 8 times 6 ms, after the other ranks have filled the pipeline.
  EXPECT_GE(answer.at("forecast").at("iteration").at("time_s").get<double>(), 8 * 6e-3);
  EXPECT_GE(answer.at("measured").at("iteration").at("time_s").get<double>(), 8 * 6e-3 * 0.99);
}

// Finds a rank that takes twice as long as forecast, from the file of the run and from its trace.
TEST_F(Run, CompareNamesItsSlowRank) {
  const std::string job = (folder_ / "job.json").string();
  const std::string file = (folder_ / "slow.json").string();
  const std::string trace = (folder_ / "slow.trace.json").string();
  write_text(job, R"({"model": {"layers": 4, "hidden": 64, "heads": 4, "ffn": 256, "vocab": 64, "sequence_length": 64,
                                "tied_embeddings": false},
      "cluster": {"nodes": 2, "devices_per_node": 2, "nics_per_node": 2, "intra_bandwidth": "10GB/s",
                  "nic_bandwidth": "10GB/s", "intra_latency": "20us", "inter_latency": "20us",
                  "device": {"name": "slow", "generation": "ampere", "peak": {"fp32": "4GFLOP/s"},
                             "memory_capacity": "16GiB", "memory_bandwidth": "20GB/s", "multiprocessors": 4}},
      "layout": {"pp": 4, "global_batch_size": 4}, "training": {"precision": "fp32", "stack": "pytorch-ddp"}})");
  const CommandResult ran =
      start_flopcast({"run", job, "--compute", "sleep", "--times", "job", "--steps", "3", "--warmup", "1", "--forward",
                      "39ms,39ms,78ms,39ms", "--backward", "58ms,58ms,116ms,58ms", "-o", file, "--trace", trace});
  ASSERT_EQ(ran.exit_code, 0) << ran.standard_error;
  for (const std::string& traced : {file, trace}) {
    const CommandResult result = start_flopcast({"compare", job, "--trace", traced, "--format", "json"});
    ASSERT_EQ(result.exit_code, 0) << result.standard_error;
    const Json answer = Json::parse(result.standard_output);
    EXPECT_EQ(answer.at("traced").size(), 4u);
    EXPECT_EQ(answer.at("traced").at(0).at("steps").size(), traced == file ? 2u : 1u) << "the first step warms up";
    EXPECT_EQ(answer.at("logged").at("steps"), traced == file ? 2 : 1) << "which all ranks share";
    const Json& best = answer.at("hypotheses").at(0);
    EXPECT_EQ(best.at("name"), "straggler") << answer.at("hypotheses").dump(1);
    EXPECT_EQ(best.at("evidence").get<std::string>().find("rank 2 computes for "), 0u) << best.at("evidence");
  }
}

TEST_F(Run, PackedDocumentsAreRefused) {
  const CommandResult result = start_flopcast(run_of({"--training.document_length", "4"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.standard_error.find("error: training.document_length: "), 0U) << result.standard_error;
}

TEST_F(Run, FilesOfRunsWithWrongNumbersOfRanksAreRefused) {
  const std::string file = (folder_ / "run.json").string();
  ASSERT_EQ(start_flopcast(run_of({"--pp", "2", "-o", file})).exit_code, 0);
  const std::string text = read_text(file);
  const auto compared = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    write_text(file, changed.replace(at, from.size(), to));
    return start_flopcast(
        {"compare", "--model", "gpt2-124m", "--cluster", "dgx-a100-80g", "--pp", "2", "--gbs", "16", "--trace", file});
  };
  const std::pair<const char*, const char*> cases[] = {{"\"dp\":4,", "\"dp\":0,"},
                                                       {"\"tp\":1,", "\"tp\":-1,"},
                                                       {"\"pipeline_ranks\":2", "\"pipeline_ranks\":1"},
                                                       {"\"axis\":\"pp\"", "\"axis\":\"x\""}};
  for (const auto& [from, to] : cases) {
    const CommandResult result = compared(from, to);
    EXPECT_EQ(result.exit_code, 2) << to << result.standard_error;
    EXPECT_EQ(result.standard_error.find("error: run."), 0U) << result.standard_error;
  }
  const CommandResult asynchronous = compared("\"schedule\":\"1f1b\"", "\"schedule\":\"pipedream\"");
  EXPECT_EQ(asynchronous.exit_code, 2) << asynchronous.standard_error;
  EXPECT_NE(asynchronous.standard_error.find("pass --measured TIME"), std::string::npos) << asynchronous.standard_error;
}

TEST_F(Run, LossesOfSeveralRunsShareAFigure) {
  const std::string first = (folder_ / "first.json").string();
  const std::string figure = (folder_ / "loss.svg").string();
  ASSERT_EQ(start_flopcast(run_of({"--pp", "2", "--schedule", "gpipe", "-o", first})).exit_code, 0);
  const CommandResult result =
      start_flopcast(run_of({"--pp", "2", "--schedule", "pipedream-2bw", "--model.tied_embeddings", "false",
                             "--loss-svg", figure, "--beside", first}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const std::string svg = read_text(figure);
  EXPECT_NE(svg.find("gpipe"), std::string::npos);
  EXPECT_NE(svg.find("pipedream-2bw"), std::string::npos);
}

TEST_F(Run, KeepsTheMeasurementFile) {
  const fs::path file = folder_ / "measured.json";
  const CommandResult result =
      start_flopcast(run_of({"--pp", "4", "--tp", "2", "--zero", "1", "-o", file.string(), "--svg",
                             (folder_ / "m.svg").string(), "--trace", (folder_ / "m.trace.json").string()}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const std::string svg = read_text(folder_ / "m.svg");
  EXPECT_LT(svg.find("forecast: step"), svg.find("measured: step"));
  EXPECT_NE(svg.find("measured: step"), std::string::npos);
  EXPECT_TRUE(fs::exists(folder_ / "m.trace.json"));
  const Json measurement = Json::parse(read_text(file));
  EXPECT_EQ(measurement.at("schema"), "flopcast.measurement/1");
  EXPECT_EQ(schema_violation(rules_of("measurement-1"), measurement), "");
  EXPECT_EQ(schema_violation(rules_of("run-1"), measurement.at("comparison")), "");
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
    // 16 activations over each of three boundaries, and the same number of gradients back.
    EXPECT_EQ(step.at("timeline").at("transfers").size(), 96U);
  }
}

TEST_F(Run, EqualRunsLearnEqually) {
  const auto losses = [&](const std::string& name) {
    const fs::path file = folder_ / name;
    const CommandResult result = start_flopcast(run_of({"--pp", "2", "-o", file.string()}));
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
    const CommandResult result = start_flopcast(run_of(
        {"--pp", "2", "--model.tied_embeddings", "false", "--layout.compression", compression, "-o", file.string()}));
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
  // Four replicas: three times 8 bytes for 1 % of the values instead of 2 · 3/4 times 4 bytes for each value.
  EXPECT_NEAR(bytes_of("topk:0.01") / whole, 0.04, 0.005);
}

// Neither the calibrations nor their agreement matter.
TEST_F(Run, TheJobsTimesNeedNoCalibration) {
  const fs::path file = folder_ / "job-times.json";
  const CommandResult result =
      start_flopcast(run_of({"--pp", "2", "--times", "job", "--format", "json", "-o", file.string()}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json answer = Json::parse(result.standard_output);
  EXPECT_EQ(schema_violation(rules_of("run-1"), answer), "");
  EXPECT_FALSE(answer.contains("calibration"));
  EXPECT_EQ(result.standard_error.find("calibrations"), std::string::npos) << result.standard_error;
  const Json calibration = Json::parse(read_text(file)).at("run").at("calibration");
  for (const char* part : {"timelines", "later_timelines", "messages"}) EXPECT_TRUE(calibration.at(part).empty());
}

// A loss may become NaN or infinite: the run and its file are complete nevertheless.
TEST_F(Run, ALossThatIsNoNumberIsShown) {
  const std::string file = (folder_ / "diverged.json").string();
  const std::vector<std::string> words = {"--pp", "2", "--learning-rate", "999999", "--training.optimizer", "sgd"};
  std::vector<std::string> diverging = words;
  diverging.insert(diverging.end(), {"--steps", "8", "-o", file});
  const CommandResult result = start_flopcast(small_run(diverging));
  EXPECT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_NE(result.standard_output.find("nan in the last of 8 steps"), std::string::npos) << result.standard_output;
  const Json measurement = Json::parse(read_text(file));
  EXPECT_EQ(schema_violation(rules_of("measurement-1"), measurement), "");
  EXPECT_EQ(schema_violation(rules_of("run-1"), measurement.at("comparison")), "");
  EXPECT_TRUE(measurement.at("comparison").at("losses").back().is_null());
  const std::string figure = (folder_ / "diverged.svg").string();
  EXPECT_EQ(start_flopcast(run_of({"--pp", "2", "--loss-svg", figure, "--beside", file})).exit_code, 0);
  EXPECT_EQ(read_text(figure).find("nan"), std::string::npos);
}

TEST_F(Run, ItsFileMakesNoProfile) {
  const std::string file = (folder_ / "measured.json").string();
  ASSERT_EQ(start_flopcast(run_of({"-o", file})).exit_code, 0);
  const CommandResult result = start_flopcast({"calibrate", "--from", file});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.standard_error.find("steps of a run"), std::string::npos) << result.standard_error;
}

TEST_F(Run, ScalesAModelDownUnderItsLayout) {
  const std::string file = (folder_ / "scaled.json").string();
  const CommandResult result = start_flopcast(
      {"run",   "--model", "gpt3-175b", "--cluster", "1xdgx-a100-80g", "--tp", "2",        "--pp", "4",  "--dp", "1",
       "--gbs", "4",       "--scale",   "1/64",      "--steps",        "3",    "--format", "json", "-o", file});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  // 96 layers over four stages, 96 heads over two ranks; the width of a head follows from the hidden size.
  EXPECT_NE(result.standard_error.find("layers 4 (of 96), hidden size 192 (of 12288), heads 2 (of 96) of width 96"),
            std::string::npos)
      << result.standard_error;
  const Json job = Json::parse(result.standard_output).at("forecast").at("job");
  EXPECT_EQ(job.at("layout").at("pp"), 4);
  const Json kept = Json::parse(read_text(file)).at("run").at("job");
  EXPECT_EQ(kept.at("model").at("vocab"), 786);
  EXPECT_EQ(kept.at("training").at("sequence_length"), 32);
  // Two of 128 experts remain, without groups.
  const CommandResult grouped =
      start_flopcast({"run", "--model", "qwen3-30b-a3b", "--model.experts.groups", "8", "--model.experts.group_top_k",
                      "4", "--cluster", "1xdgx-h100", "--dp", "8", "--gbs", "8", "--scale", "1/64", "--steps", "1"});
  EXPECT_EQ(grouped.exit_code, 0) << grouped.standard_error;
}

TEST_F(Run, MistakesAreNamed) {
  const auto message_of = [](const std::vector<std::string>& more, int exit_code) {
    const CommandResult result = start_flopcast(run_of(more));
    EXPECT_EQ(result.exit_code, exit_code) << result.standard_error;
    return result.standard_error;
  };
  EXPECT_NE(message_of({"--backend", "smoke"}, 2).find("unknown backend \"smoke\""), std::string::npos);
  EXPECT_NE(message_of({"--recompute", "selective", "--layout.recompute_modules", "moe"}, 2).find("core_attn"),
            std::string::npos);
  EXPECT_NE(message_of({"--layout.data_parallel", "dataparallel"}, 2).find("layout.data_parallel"), std::string::npos);
  EXPECT_NE(message_of({"--layout.compression", "8bit", "--zero", "2"}, 2).find("zero 0"), std::string::npos);
  EXPECT_NE(message_of({"--schedule", "pipedream", "--pp", "2"}, 2).find("model.tied_embeddings"), std::string::npos);
  EXPECT_NE(message_of({"--scale", "2"}, 2).find("above 0 and at most 1"), std::string::npos);
  EXPECT_NE(message_of({"--scale", "1/0"}, 2).find("above 0 and at most 1"), std::string::npos);
  EXPECT_NE(message_of({"--times", "guess"}, 2).find("valid: calibration, job"), std::string::npos);
  EXPECT_NE(message_of({"--repetitions", "3"}, 2).find("conflicts with --repetitions"), std::string::npos);
  EXPECT_NE(message_of({"--warmup", "3"}, 2).find("leave none to measure"), std::string::npos);
  EXPECT_NE(message_of({"--forward", "5ms"}, 2).find("also set --compute sleep"), std::string::npos);
  EXPECT_NE(message_of({"--compute", "sleep", "--forward", "5"}, 2).find("has no unit"), std::string::npos);
  EXPECT_NE(message_of({"--compute", "sleep", "--pp", "2", "--forward", "5ms,6ms,7ms"}, 2).find("3 times for 2 stages"),
            std::string::npos);
  EXPECT_NE(message_of({"--compute", "doze"}, 2).find("network"), std::string::npos);
  EXPECT_NE(message_of({"--beside", "x.json"}, 2).find("--loss-svg"), std::string::npos);
  EXPECT_NE(message_of({"--learning-rate", "-1"}, 2).find("positive"), std::string::npos);
  EXPECT_NE(message_of({"-o", "/dev/full"}, 4).find("/dev/full"), std::string::npos);
  EXPECT_NE(message_of({"--partition", "green"}, 2).find("only with --backend virtual-gpus"), std::string::npos);
  EXPECT_NE(message_of({"--one-gpu", "2"}, 2).find("only with --backend nccl"), std::string::npos);
  EXPECT_NE(message_of({"--backend", "virtual-gpus", "--partition", "half"}, 2).find("green, streams"),
            std::string::npos);
  EXPECT_NE(message_of({"--backend", "nccl", "--one-gpu", "7"}, 2).find("7, but the job has"), std::string::npos);
  EXPECT_NE(message_of({"--backend", "nccl", "--compute", "sleep"}, 2).find("sleep is not supported on GPUs"),
            std::string::npos);
  const CommandResult huge = start_flopcast({"run", "--model", "gpt3-175b", "--cluster", "dgx-a100-80g", "--gbs", "8"});
  EXPECT_EQ(huge.exit_code, 2);
  EXPECT_NE(huge.standard_error.find("this machine has"), std::string::npos) << huge.standard_error;
}

}  // namespace
}  // namespace flopcast
