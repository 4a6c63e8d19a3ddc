#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string example() {
  return (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
}

TEST(Commands, SimulateAnswersInEveryFormat) {
  const CommandResult json = run_flopcast({"simulate", example(), "--format", "json"});
  ASSERT_EQ(json.exit_code, 0) << json.standard_error;
  const Json result = Json::parse(json.standard_output);
  EXPECT_EQ(result.at("schema"), "flopcast.result/1");
  double sum = 0.0;
  for (const auto& part : result.at("breakdown").items()) sum += part.value().get<double>();
  EXPECT_NEAR(sum, result.at("iteration").at("time_s").get<double>(), 1e-9);
  EXPECT_NEAR(result.at("iteration").at("time_s").get<double>() / 13.75, 1.0, 0.15);

  const CommandResult table = run_flopcast({"simulate", example()});
  EXPECT_NE(table.standard_output.find("step time"), std::string::npos);
  const CommandResult markdown = run_flopcast({"simulate", example(), "--format", "markdown"});
  EXPECT_NE(markdown.standard_output.find("| step time "), std::string::npos) << markdown.standard_output;
  const CommandResult csv = run_flopcast({"simulate", example(), "--format", "csv"});
  EXPECT_EQ(std::count(csv.standard_output.begin(), csv.standard_output.end(), '\n'), 2);
  EXPECT_NE(csv.standard_output.find("iteration.time_s"), std::string::npos);
}

TEST(Commands, TheSameQuestionGivesTheSameBytes) {
  EXPECT_EQ(run_flopcast({"simulate", example(), "--format", "json"}).standard_output,
            run_flopcast({"simulate", example(), "--format", "json"}).standard_output);
}

TEST(Commands, StepTimesThatVaryAreADistribution) {
  const auto drawn = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"simulate", example(), "--format", "json"});
    const CommandResult result = run_flopcast(flags);
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return Json::parse(result.standard_output);
  };
  const Json certain = drawn({"--jitter", "0", "--samples", "3"});
  EXPECT_EQ(certain.at("distribution").at("mean_s"), certain.at("iteration").at("time_s"));
  EXPECT_EQ(certain.at("distribution").at("std_s"), 0.0);
  const Json jitter = drawn({"--jitter", "0.03", "--seed", "5"}).at("distribution");
  EXPECT_EQ(jitter, drawn({"--jitter", "3%", "--seed", "5"}).at("distribution"));
  EXPECT_NE(jitter, drawn({"--jitter", "3%", "--seed", "6"}).at("distribution"));
  EXPECT_EQ(jitter.at("samples"), 1000);
  for (const auto& [lower, upper] : {std::pair{"p5_s", "p50_s"}, {"p50_s", "p95_s"}, {"p95_s", "p99_s"}}) {
    EXPECT_LT(jitter.at(lower), jitter.at(upper));
  }
  EXPECT_FALSE(drawn({}).contains("distribution"));

  const auto refused = [](std::vector<std::string> flags, const std::string& words) {
    flags.insert(flags.begin(), {"simulate", example()});
    const CommandResult result = run_flopcast(flags);
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({"--jitter", "much"}, "is not a fraction from 0 to 100 %");
  refused({"--jitter", "101%"}, "is not a fraction from 0 to 100 %");
  refused({"--straggler", "3"}, "has no factor");
  refused({"--straggler", "3:0.9"}, "needs a factor from 1 to 1000");
  refused({"--straggler", "64:2"}, "devices are 0 to 63");
  refused({"--samples", "10"}, "nothing to sample");
  refused({"--jitter", "3%", "--samples", "0"}, "0 is not between 1 and");
  refused({"--jitter", "3%", "--seed", "-1"}, "not a whole number");
  refused({"--jitter", "3%", "--schedule", "pipedream", "--vpp", "1"}, "require a schedule that flushes");
}

TEST(Commands, SequencesOfSeveralLengthsAreRead) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "lengths.txt").string();
  const auto simulated = [&file](const std::string& lengths, const std::string& attention) {
    write_text(file, lengths);
    return run_flopcast(
        {"simulate", example(), "--training.attention", attention, "--sequence-lengths", file, "--format", "json"});
  };
  const CommandResult full = simulated("2048", "flash");
  ASSERT_EQ(full.exit_code, 0) << full.standard_error;
  const Json result = Json::parse(full.standard_output);
  EXPECT_EQ(result.at("packing").at("time_s"), result.at("iteration").at("time_s"));
  const Json mixed = Json::parse(simulated("2048, 512*4\n1024 1024", "flash").standard_output).at("packing");
  EXPECT_EQ(mixed.at("sequences"), 22 + 21 * 4 + 21 * 2);
  EXPECT_LT(mixed.at("time_s"), result.at("iteration").at("time_s"));
  for (const auto& [lengths, words] : {std::pair{"512 x", "\"x\" is not a length"},
                                       {"512*0", "is not a length"},
                                       {"2049", "2049 tokens does not fit"},
                                       {" \n", "there are no sequences"}}) {
    const CommandResult refused = simulated(lengths, "flash");
    EXPECT_EQ(refused.exit_code, 2);
    EXPECT_NE(refused.standard_error.find(words), std::string::npos) << refused.standard_error;
  }
  EXPECT_NE(simulated("512", "unfused").standard_error.find("unfused attention"), std::string::npos);
}

TEST(Commands, FlagsAloneAreAJob) {
  const CommandResult flags = run_flopcast({"simulate",
                                            "--model",
                                            "gpt3-175b",
                                            "--cluster",
                                            "8xdgx-a100-80g",
                                            "--tensor-model-parallel-size",
                                            "8",
                                            "--pipeline-model-parallel-size",
                                            "8",
                                            "--vpp",
                                            "3",
                                            "--sequence-parallel",
                                            "--schedule",
                                            "interleaved",
                                            "--micro-batch-size",
                                            "1",
                                            "--global-batch-size",
                                            "64",
                                            "--recompute-granularity",
                                            "selective",
                                            "--seq-length",
                                            "2048",
                                            "--precision",
                                            "fp16",
                                            "--stack",
                                            "megatron-2022",
                                            "--format",
                                            "json"});
  ASSERT_EQ(flags.exit_code, 0) << flags.standard_error;
  const Json from_file = Json::parse(run_flopcast({"simulate", example(), "--format", "json"}).standard_output);
  EXPECT_EQ(Json::parse(flags.standard_output).at("iteration"), from_file.at("iteration"));
}

// The job printed in a result, including overrides, is a job file that gives the same result.
TEST(Commands, TheResolvedJobReadsBack) {
  const TemporaryFolder scratch;
  const std::vector<std::vector<std::string>> jobs = {
      {"simulate", example(), "--cluster.nic_bandwidth", "100Gbit/s", "--model.layers", "48"},
      {"simulate", "--model", "mixtral-8x7b", "--cluster", "4xdgx-h100", "--nodes", "2", "--ep", "8", "--gbs", "64"},
      {"simulate", "--model", "deepseek-v3", "--cluster", "32xdgx-h100", "--tp", "4", "--pp", "8", "--zero", "1",
       "--gbs", "256"},
      {"simulate", (project_folder() / "examples" / "uneven-nodes" / "job.json").string()},
      {"simulate", "--model", "llama3-8b", "--cluster", "2xdgx-h100", "--layout.data_parallel", "fsdp", "--gbs", "64"}};
  for (const std::vector<std::string>& job : jobs) {
    std::vector<std::string> first = job;
    first.insert(first.end(), {"--format", "json"});
    const CommandResult original = run_flopcast(first);
    ASSERT_EQ(original.exit_code, 0) << original.standard_error;
    const Json answer = Json::parse(original.standard_output);
    const std::string file = (scratch.path() / "job.json").string();
    write_text(file, answer.at("job").dump());
    const CommandResult again = run_flopcast({"simulate", file, "--format", "json"});
    ASSERT_EQ(again.exit_code, 0) << again.standard_error << answer.at("job").dump(2);
    const double time = answer.at("iteration").at("time_s").get<double>();
    EXPECT_NEAR(Json::parse(again.standard_output).at("iteration").at("time_s").get<double>() / time, 1.0, 1e-9)
        << job[1];
  }
}

TEST(Commands, SwitchesTakeTheirValueEitherWay) {
  const auto time_with = [](const std::vector<std::string>& flags) {
    std::vector<std::string> command = {"simulate", example(), "--format", "json"};
    command.insert(command.end(), flags.begin(), flags.end());
    const CommandResult result = run_flopcast(command);
    EXPECT_EQ(result.exit_code, 0) << result.standard_error;
    return Json::parse(result.standard_output).at("job").at("layout").at("sequence_parallel").get<bool>();
  };
  EXPECT_TRUE(time_with({"--sp"}));
  EXPECT_FALSE(time_with({"--sp", "false"}));
  EXPECT_FALSE(time_with({"--sp=false"}));
  EXPECT_FALSE(time_with({"--layout.sequence_parallel", "false"}));
}

TEST(Commands, SideFilesAreWritten) {
  const TemporaryFolder scratch;
  CommandOptions options;
  options.working_directory = scratch.path();
  const CommandResult result =
      run_flopcast({"simulate", example(), "--svg", "t.svg", "--trace", "t.json", "-o", "answer.txt"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_EQ(result.standard_output, "");
  EXPECT_NE(read_text(scratch.path() / "answer.txt").find("step time"), std::string::npos);
  EXPECT_EQ(read_text(scratch.path() / "t.svg").rfind("<svg", 0), 0u);
  const Json trace = Json::parse(read_text(scratch.path() / "t.json"));
  EXPECT_GT(trace.at("traceEvents").size(), 3'000u);
  bool counts_memory = false;
  bool draws_arrows = false;
  for (const Json& event : trace.at("traceEvents")) {
    counts_memory = counts_memory || event.at("ph") == "C";
    draws_arrows = draws_arrows || event.at("ph") == "s";
  }
  EXPECT_TRUE(counts_memory);
  EXPECT_TRUE(draws_arrows);
}

TEST(Commands, MemoryCheckSaysNoWithThree) {
  const CommandResult fits = run_flopcast({"memory", example(), "--check"});
  EXPECT_EQ(fits.exit_code, 0) << fits.standard_error;
  const CommandResult too_large = run_flopcast({"memory", example(), "--check", "--pp", "4", "--vpp", "2"});
  EXPECT_EQ(too_large.exit_code, 3) << too_large.standard_error;
  EXPECT_NE(too_large.standard_error.find("does not fit"), std::string::npos);
  // The forecast itself is a valid answer, with a warning.
  const CommandResult simulated = run_flopcast({"simulate", example(), "--pp", "4", "--vpp", "2"});
  EXPECT_EQ(simulated.exit_code, 0) << simulated.standard_error;
  EXPECT_NE(simulated.standard_error.find("warning: does not fit"), std::string::npos);
  // Suggested changes make the job fit; if there are none, the answer says so.
  for (const CommandResult& told : {too_large, simulated}) {
    EXPECT_NE(told.standard_error.find("\n  help: "), std::string::npos) << told.standard_error;
  }
  const std::vector<std::string> tuned = {"memory", "--model",   "qwen3-32b", "--finetune",
                                          "qlora",  "--cluster", "1xl40s-8x"};
  const std::string help = run_flopcast(tuned).standard_error;
  EXPECT_NE(help.find("help: recompute full fits: 27."), std::string::npos) << help;
  std::vector<std::string> recomputed = tuned;
  recomputed.insert(recomputed.end(), {"--recompute", "full", "--check"});
  EXPECT_EQ(run_flopcast(recomputed).exit_code, 0);
}

TEST(Commands, MemoryOverTimeReturnsToItsBase) {
  const Json answer =
      Json::parse(run_flopcast({"memory", example(), "--over-time", "--format", "json"}).standard_output);
  ASSERT_EQ(answer.at("over_time").size(), 8u);
  for (std::size_t rank = 0; rank < 8; ++rank) {
    const Json& points = answer.at("over_time").at(rank);
    double peak = 0.0;
    double base = points.front().at(1).get<double>();
    for (const Json& point : points) {
      peak = std::max(peak, point.at(1).get<double>());
      base = std::min(base, point.at(1).get<double>());
    }
    // Rank 0 starts its first forward pass at time 0, so its first point already includes an activation; the last
    // rank's does not.
    EXPECT_NEAR(points.back().at(1).get<double>(), base, 1e-9);
    EXPECT_NEAR(peak, answer.at("memory").at("per_pipeline_rank").at(rank).at("total_gib").get<double>(), 1e-9);
  }
}

TEST(Commands, ScheduleCheckSaysNoWithThree) {
  const TemporaryFolder scratch;
  const std::string good = (scratch.path() / "good.csv").string();
  const std::string bad = (scratch.path() / "bad.csv").string();
  write_text(good, "0F0,0B0\n1F0,1B0\n");
  write_text(bad, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n");
  EXPECT_EQ(run_flopcast({"schedule", "check", good}).exit_code, 0);
  const CommandResult refused = run_flopcast({"schedule", "check", bad});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.standard_error.find("<-- here"), std::string::npos) << refused.standard_error;
  const CommandResult json = run_flopcast({"schedule", "check", bad, "--format", "json"});
  EXPECT_EQ(json.exit_code, 3);
  EXPECT_FALSE(Json::parse(json.standard_output).at("valid").get<bool>());
}

TEST(Commands, ShowAndExportWriteTheSameCsv) {
  const std::vector<std::string> request = {"--schedule",     "interleaved", "--pp",  "2",
                                            "--microbatches", "4",           "--vpp", "2"};
  std::vector<std::string> show = {"schedule", "show", "--format", "csv"};
  std::vector<std::string> exported = {"schedule", "export", "--for", "torch"};
  show.insert(show.end(), request.begin(), request.end());
  exported.insert(exported.end(), request.begin(), request.end());
  const std::string csv = run_flopcast(show).standard_output;
  EXPECT_EQ(csv, run_flopcast(exported).standard_output);
  EXPECT_EQ(csv.rfind("0F0,0F1,2F0,", 0), 0u) << csv;
}

TEST(Commands, SchedulesWithCommunicationsAreWrittenCheckedAndSimulated) {
  const TemporaryFolder scratch;
  const std::string plain = (scratch.path() / "plain.csv").string();
  const std::string lowered = (scratch.path() / "lowered.csv").string();
  const std::string broken = (scratch.path() / "broken.csv").string();
  const std::vector<std::string> request = {"--schedule", "interleaved", "--pp", "2", "-m", "4", "--vpp", "2"};
  const auto run = [&request](std::vector<std::string> arguments, bool named) {
    if (named) arguments.insert(arguments.end(), request.begin(), request.end());
    return run_flopcast(arguments);
  };
  EXPECT_EQ(run({"schedule", "export", "-o", plain}, true).exit_code, 0);
  EXPECT_EQ(run({"schedule", "export", "--with-comm", "--for", "torch", "-o", lowered}, true).exit_code, 0);
  // The same text for a file, a name, and an already lowered schedule.
  const std::string text = read_text(lowered);
  EXPECT_EQ(run({"schedule", "show", plain, "--with-comm", "--format", "csv"}, false).standard_output, text);
  const CommandResult again = run({"schedule", "show", lowered, "--with-comm", "--format", "csv"}, false);
  EXPECT_EQ(again.standard_output, text);
  EXPECT_NE(again.standard_error.find("communications are ignored"), std::string::npos) << again.standard_error;
  EXPECT_EQ(run({"schedule", "show", lowered, "--format", "csv"}, false).standard_output, read_text(plain));
  const Json json =
      Json::parse(run({"schedule", "show", plain, "--with-comm", "--format", "json"}, false).standard_output);
  EXPECT_EQ(json.at("ranks").at(0).at(0), "0UNSHARD");

  const CommandResult good = run({"schedule", "check", lowered, "--in-order-transfers", "--format", "json"}, false);
  EXPECT_EQ(good.exit_code, 0) << good.standard_error;
  EXPECT_EQ(Json::parse(good.standard_output).at("actions"), 32);
  EXPECT_GT(Json::parse(good.standard_output).at("communications").get<int>(), 24);
  std::string damaged = text;
  damaged.erase(damaged.find("0SEND_F1,"), std::string("0SEND_F1,").size());
  write_text(broken, damaged);
  const CommandResult bad = run({"schedule", "check", broken}, false);
  EXPECT_EQ(bad.exit_code, 3);
  EXPECT_NE(bad.standard_error.find("(1RECV_F1): 0SEND_F1 of rank 0 is missing"), std::string::npos)
      << bad.standard_error;

  const std::vector<std::string> times = {"--forward", "1", "--backward", "2", "--format", "json"};
  const auto simulate = [&times](const std::string& file) {
    std::vector<std::string> arguments = {"schedule", "simulate", file};
    arguments.insert(arguments.end(), times.begin(), times.end());
    return run_flopcast(arguments);
  };
  EXPECT_EQ(simulate(lowered).standard_output, simulate(plain).standard_output);
  EXPECT_NE(simulate(lowered).standard_error.find("communications are ignored"), std::string::npos);
}

TEST(Commands, DeferredReceivesComeWithAWarning) {
  const TemporaryFolder scratch;
  const std::string file = (scratch.path() / "deferred.csv").string();
  const CommandResult shown = run_flopcast({"schedule", "export", "--schedule", "interleaved:2", "--pp", "2", "-m", "4",
                                            "--with-comm", "--defer-recv", "-o", file});
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_NE(shown.standard_error.find("different orders"), std::string::npos) << shown.standard_error;
  const CommandResult warned = run_flopcast({"schedule", "check", file});
  EXPECT_EQ(warned.exit_code, 0);
  EXPECT_NE(warned.standard_error.find("--in-order-transfers"), std::string::npos) << warned.standard_error;
  EXPECT_EQ(run_flopcast({"schedule", "check", file, "--in-order-transfers"}).exit_code, 3);
}

TEST(Commands, ABidirectionalFileAsksForItsChains) {
  const TemporaryFolder scratch;
  const std::string file = (scratch.path() / "two.csv").string();
  write_text(file, "0F0,3F0,3B0,0B0\n2F0,1F0,1B0,2B0\n");
  const CommandResult asked = run_flopcast({"schedule", "check", file});
  EXPECT_EQ(asked.exit_code, 3);
  EXPECT_NE(asked.standard_error.find("--chains 0-1,2-3"), std::string::npos) << asked.standard_error;
  EXPECT_EQ(run_flopcast({"schedule", "check", file, "--chains", "0-1,2-3"}).exit_code, 0);
  const std::vector<std::string> job = {"simulate", "--model",    "gpt3-175b",    "--cluster", "2xdgx-a100-80g",
                                        "--tp",     "8",          "--pp",         "2",         "--gbs",
                                        "2",        "--schedule", "file:" + file, "--chains",  "0-1,2-3"};
  EXPECT_EQ(run_flopcast(job).exit_code, 0) << run_flopcast(job).standard_error;
  EXPECT_EQ(run_flopcast({"timeline", "--schedule", "file:" + file, "--chains", "0-1,2-3"}).exit_code, 0);
}

TEST(Commands, EveryCommandHelps) {
  const std::vector<std::vector<std::string>> commands = {
      {"simulate"},          {"memory"},           {"timeline"},          {"catalog"},
      {"schedule", "list"},  {"schedule", "show"}, {"schedule", "check"}, {"schedule", "simulate"},
      {"schedule", "export"}};
  for (std::vector<std::string> command : commands) {
    command.emplace_back("--help");
    const CommandResult result = run_flopcast(command);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_NE(result.standard_output.find("usage: flopcast " + command[0]), std::string::npos)
        << result.standard_output;
    EXPECT_NE(result.standard_output.find("examples:"), std::string::npos);
  }
}

TEST(Commands, CatalogShowsFiguresWithSources) {
  const Json devices =
      Json::parse(run_flopcast({"catalog", "devices", "a100-80g", "--format", "json"}).standard_output);
  ASSERT_FALSE(devices.empty());
  for (const Json& figure : devices) EXPECT_FALSE(figure.at("source").get<std::string>().empty());
  for (const char* kind : {"models", "devices", "clusters", "stacks", "schedules"}) {
    EXPECT_EQ(run_flopcast({"catalog", kind}).exit_code, 0) << kind;
  }
}

TEST(Commands, DrawingsRespectTheirOptions) {
  const std::vector<std::string> timeline = {"timeline", "--schedule", "1f1b", "--pp", "2", "--microbatches", "3"};
  const auto with = [&timeline](std::vector<std::string> more) {
    more.insert(more.begin(), timeline.begin(), timeline.end());
    return run_flopcast(more);
  };
  EXPECT_EQ(with({}).standard_output.find('\x1b'), std::string::npos);  // no colour without a terminal
  EXPECT_NE(with({"--color", "always"}).standard_output.find('\x1b'), std::string::npos);
  for (const char character : with({"--ascii"}).standard_output) EXPECT_GE(character, 0);
}

TEST(Commands, AFullDiskIsTheEnvironmentsFault) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const CommandResult result = run_flopcast({"simulate", example(), "-o", "/dev/full"});
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_NE(result.standard_error.find("/dev/full"), std::string::npos) << result.standard_error;
  EXPECT_EQ(run_flopcast({"simulate", example(), "--svg", "/nonexistent/t.svg"}).exit_code, 4);
}

}  // namespace
}  // namespace flopcast
