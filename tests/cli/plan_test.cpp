// flopcast plan from the user's view: one answer in every format, files that other commands accept, and negative
// answers with changes that would help.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tests/support/folders.hpp"
#include "tests/support/json_schema.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kSmall = {"plan", "--model", "gpt3-1.3b", "--cluster", "2xdgx-a100-80g", "--gbs", "64"};

CommandResult plan_small(const std::vector<std::string>& more, const CommandOptions& options = {}) {
  std::vector<std::string> arguments = kSmall;
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_flopcast(arguments, options);
}

TEST(Plan, HoldsWhatTheUserGives) {
  const Json answer = json_of(plan_small({"--tp", "2", "--zero", "1", "--schedule", "1f1b", "--format", "json"}));
  for (const Json& entry : answer["ranked"]) {
    EXPECT_EQ(entry["layout"]["tp"], 2);
    EXPECT_EQ(entry["layout"]["zero"], 1);
    EXPECT_EQ(entry["layout"]["schedule"], entry["layout"]["pp"] == 1 ? Json() : Json("1f1b"));
  }
  std::int64_t sum = answer["space"]["pruned"].get<std::int64_t>() + answer["space"]["simulated"].get<std::int64_t>();
  for (const Json& rejected : answer["rejected"]) sum += rejected["count"].get<std::int64_t>();
  EXPECT_EQ(answer["space"]["enumerated"], sum);
}

// Reserved memory, not only tensors, must fit with room to spare.
TEST(Plan, RankedLayoutsLeaveRoomByReservedMemory) {
  constexpr double kRoom = 0.95;
  for (const char* stack : {"megatron-core", "nemo", "torchtitan", "megatron-deepspeed", "deepspeed", "pytorch-fsdp"}) {
    const Json answer = json_of(run_flopcast({"plan", "--model", "llama3-8b", "--cluster", "2xdgx-h100", "--gbs", "32",
                                              "--stack", stack, "--format", "json"}));
    for (const char* list : {"ranked", "pareto"}) {
      for (const Json& entry : answer[list]) {
        const Json& memory = entry["result"]["memory"];
        EXPECT_TRUE(memory["fits"].get<bool>());
        const bool roomy = memory["reserved_gib"].get<double>() <= kRoom * memory["capacity_gib"].get<double>();
        EXPECT_TRUE(roomy || entry.value("tight", false)) << stack << entry["layout"];
      }
    }
  }
}

// DeepSpeed refuses ZeRO 2 and 3 with pipelines, and Megatron-LM's FSDP does not support them.
TEST(Plan, PipelinesAreShardedNoFurtherThanTheStackRuns) {
  const auto most_sharded = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--pp", "2", "--top", "1000", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    int most = 0;
    const Json answer = json_of(plan_small(arguments));
    for (const char* list : {"ranked", "pareto"}) {
      for (const Json& entry : answer[list]) most = std::max(most, entry["layout"]["zero"].get<int>());
    }
    return most;
  };
  EXPECT_EQ(most_sharded({}), 1);
  EXPECT_EQ(most_sharded({"--stack", "deepspeed"}), 1);
  EXPECT_EQ(most_sharded({"--stack", "nanotron"}), 1);
  EXPECT_EQ(most_sharded({"--schedules", "all"}), 3);
  EXPECT_EQ(most_sharded({"--zero", "2"}), 2);
  EXPECT_GE(most_sharded({"--stack", "torchtitan"}), 2);
}

// Interruptions cost days, also in the first line of the answer.
TEST(Plan, TheFirstLineSaysTheDaysOfTheFirstRow) {
  const std::vector<std::string> run = {"--tokens", "300B", "--price", "1", "--mtbf", "200h"};
  const CommandResult table = plan_small(run);
  std::vector<std::string> as_json = run;
  as_json.insert(as_json.end(), {"--format", "json"});
  const double days = json_of(plan_small(as_json))["ranked"][0]["run"]["days"].get<double>();
  EXPECT_NE(table.standard_output.substr(0, table.standard_output.find('\n')).find(fmt::format(", {:.3g} days", days)),
            std::string::npos)
      << table.standard_output.substr(0, 200) << days;
}

TEST(Plan, ItsFileIsAJobWhoseForecastItHolds) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(plan_small({"-o", "plan.json"}, options).exit_code, 0);
  const Json plan = Json::parse(read_text(folder.path() / "plan.json"));
  const CommandResult simulated = run_flopcast({"simulate", "plan.json", "--format", "json"}, options);
  Json result = json_of(simulated);
  result.erase("critical_path");
  EXPECT_EQ(result, plan["best"]["result"]);
  EXPECT_EQ(run_flopcast({"memory", "plan.json", "--check"}, options).exit_code, 0);
}

TEST(Plan, DrawsTheLayoutsItFoundAndTheirFront) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  const Json answer = json_of(plan_small({"--top", "4", "--svg", "plan.svg", "--format", "json"}, options));
  std::set<std::string> layouts;
  for (const char* list : {"ranked", "pareto"}) {
    for (const Json& entry : answer[list]) layouts.insert(entry["layout"].dump());
  }
  const std::string svg = read_text(folder.path() / "plan.svg");
  std::size_t points = 0;
  for (std::size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++points;
  EXPECT_EQ(points, layouts.size());
  EXPECT_NE(svg.find("peak memory, GiB"), std::string::npos);
  ASSERT_EQ(plan_small({"--max-gpus", "16", "--objective", "energy", "--svg", "sizes.svg"}, options).exit_code, 0);
  EXPECT_NE(read_text(folder.path() / "sizes.svg").find(">GPUs<"), std::string::npos);
}

TEST(Plan, ThreadsDoNotShowInAnyByte) {
  const CommandResult one = plan_small({"--threads", "1", "--format", "json"});
  const CommandResult three = plan_small({"--threads", "3", "--format", "json"});
  EXPECT_EQ(one.exit_code, 0);
  EXPECT_EQ(one.standard_output, three.standard_output);
}

// Rows are kept without the actions of their steps: 200 rows of up to 4,096 microbatches fit into 60 MB.
TEST(Plan, ManyRowsAreKeptInProportion) {
  std::string script = "exec";
#ifndef __SANITIZE_ADDRESS__
  script = "ulimit -d 60000 && exec";
#endif
  for (const char* word : {FLOPCAST_PROGRAM, "plan", "--model", "gpt3-13b", "--cluster", "8xdgx-a100-80g", "--gbs",
                           "4096", "--mbs", "1", "--top", "200", "--threads", "1", "--format", "json"}) {
    script += std::string(" ") + word;
  }
  const CommandResult result = run_command({"sh", "-c", script});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_EQ(Json::parse(result.standard_output).at("ranked").size(), 200u);
}

TEST(Plan, SaysNoWithTheNearestYes) {
  const CommandResult result = run_flopcast({"plan", "--model", "gpt3-13b", "--cluster", "1xdgx-a100-80g", "--gbs",
                                             "64", "--recompute", "none", "--mbs", "64", "--zero", "0"});
  EXPECT_EQ(result.exit_code, 3) << result.standard_output;
  EXPECT_NE(result.standard_error.find("does not fit in memory"), std::string::npos) << result.standard_error;
  EXPECT_NE(result.standard_error.find(" to spare"), std::string::npos) << result.standard_error;
  const CommandResult nodes =
      run_flopcast({"plan", "--model", "gpt3-175b", "--cluster", "3xdgx-a100-80g", "--gbs", "96"});
  EXPECT_EQ(nodes.exit_code, 3);
  EXPECT_NE(nodes.standard_error.find("more node"), std::string::npos) << nodes.standard_error;
}

TEST(Plan, NamesTheSmallestChangeThatWouldDo) {
  const auto helps = [](const std::vector<std::string>& question) {
    const CommandResult result = run_flopcast(question);
    EXPECT_EQ(result.exit_code, 3) << result.standard_output;
    EXPECT_EQ(result.standard_output, "");
    return result.standard_error;
  };
  // Every suggested change makes the job fit.
  const std::vector<std::string> full = {
      "plan", "--model", "gpt3-13b", "--cluster", "1xdgx-a100-80g", "--gbs", "64",         "--zero", "1",
      "--tp", "2",       "--pp",     "1",         "--mbs",          "16",    "--recompute"};
  std::vector<std::string> question = full;
  question.emplace_back("none");
  const std::string told = helps(question);
  EXPECT_NE(told.find("recompute full fits with "), std::string::npos) << told;
  question.back() = "full";
  EXPECT_EQ(run_flopcast(question).exit_code, 0);
  const std::string nodes = helps({"plan", "--model", "gpt3-175b", "--cluster", "2xdgx-a100-80g", "--gbs", "96"});
  const std::size_t place = nodes.find("needs ");
  const std::size_t more = nodes.find(" more node", place);
  ASSERT_NE(more, std::string::npos) << nodes;
  const std::size_t digits = nodes.find_last_of(' ', more - 1);
  const int needed = 2 + std::stoi(nodes.substr(digits + 1));
  const auto of_nodes = [](int count) {
    return run_flopcast({"plan", "--model", "gpt3-175b", "--cluster", std::to_string(count) + "xdgx-a100-80g", "--gbs",
                         "96", "--top", "1"})
        .exit_code;
  };
  EXPECT_EQ(of_nodes(needed), 0);
  EXPECT_EQ(of_nodes(needed - 1), 3);
  const std::string late = helps({"plan", "--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g", "--gbs", "512",
                                  "--tokens", "300B", "--deadline", "60d"});
  EXPECT_NE(late.find("misses the deadline"), std::string::npos) << late;
  EXPECT_NE(late.find(" more node"), std::string::npos) << late;
}

TEST(Plan, ListsNoSelectiveRecomputationBesideFusedAttention) {
  const CommandResult fused = plan_small({"--format", "csv", "--top", "100"});
  EXPECT_EQ(fused.standard_output.find("selective"), std::string::npos);
  const auto listed = [](const char* attention) {
    const Json answer = json_of(plan_small({"--training.attention", attention, "--format", "json", "--top", "1"}));
    return answer["space"]["enumerated"].get<std::int64_t>();
  };
  EXPECT_GT(listed("unfused"), listed("flash"));
  const Json asked = json_of(plan_small({"--recompute", "selective", "--format", "json"}));
  EXPECT_EQ(asked["best"]["layout"]["recompute"], "selective");
}

// TDP x time x devices, over the whole run or a step.
TEST(Plan, EnergyIsThatOfTheDevices) {
  const Json run =
      json_of(plan_small({"--objective", "energy", "--tokens", "300B", "--format", "json"}))["best"]["run"];
  EXPECT_NEAR(run["energy_kwh"].get<double>(), 0.4 * run["gpu_hours"].get<double>(),
              1e-6 * run["gpu_hours"].get<double>());
  const std::string table = plan_small({"--objective", "energy", "--top", "1"}).standard_output;
  EXPECT_NE(table.find("kJ per step"), std::string::npos);
  const CommandResult csv = plan_small({"--objective", "energy", "--top", "1", "--format", "csv"});
  const std::size_t last = csv.standard_output.rfind(',');
  const Json best = json_of(plan_small({"--objective", "energy", "--top", "1", "--format", "json"}))["best"]["result"];
  const double devices = 8.0;
  EXPECT_NEAR(std::stod(csv.standard_output.substr(last + 1)),
              0.4 * devices * best["iteration"]["time_s"].get<double>(), 1e-3);
}

TEST(Plan, EnergyNeedsThePowerOfTheDevice) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  const auto plan_with = [&](const std::string& power) {
    write_text(folder.path() / "job.json",
               R"({"model": "gpt3-1.3b", "cluster": {"name": "mine", "devices_per_node": 8, "nodes": 1, "device": {
               "generation": "hopper", "peak": {"bf16": "900TFLOP/s"}, "memory_capacity": "80GiB",
               "memory_bandwidth": "3TB/s", "multiprocessors": 132)" +
                   power + R"(}, "intra_bandwidth": "450GB/s",
               "intra_latency": "5us", "nic_bandwidth": "50GB/s", "inter_latency": "10us"},
               "layout": {"global_batch_size": 16}})");
    return run_flopcast({"plan", "job.json", "--objective", "energy"}, options);
  };
  const CommandResult without = plan_with("");
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.standard_error.find("cluster.device.tdp: is not given"), std::string::npos)
      << without.standard_error;
  const CommandResult with = plan_with(R"(, "tdp": "650W")");
  EXPECT_EQ(with.exit_code, 0) << with.standard_error;
  EXPECT_NE(with.standard_output.find("650 W each (datasheet)"), std::string::npos);
}

TEST(Plan, TheClosestThatDoesNotFitIsForecastExactly) {
  const CommandResult refused =
      run_flopcast({"plan", "--model", "gpt3-13b", "--cluster", "1xdgx-a100-80g", "--gbs", "64", "--recompute", "none",
                    "--mbs", "64", "--zero", "0", "--schedule", "1f1b"});
  ASSERT_EQ(refused.exit_code, 3);
  const std::string& text = refused.standard_error;
  const std::string words = "the closest layout needs ";
  const std::size_t place = text.find(words);
  ASSERT_NE(place, std::string::npos) << text;
  const double needs = std::stod(text.substr(place + words.size()));
  std::vector<std::string> simulate = {"simulate", "--model",     "gpt3-13b", "--cluster",  "1xdgx-a100-80g",
                                       "--gbs",    "64",          "--format", "json",       "--mbs",
                                       "64",       "--recompute", "none",     "--schedule", "1f1b"};
  const std::string layout = text.substr(text.find(": tp", place), text.find('\n', place) - text.find(": tp", place));
  for (const char* axis : {"tp", "cp", "pp", "vpp", "zero"}) {
    const std::size_t found = layout.find(std::string(" ") + axis + " ");
    ASSERT_NE(found, std::string::npos) << layout;
    const int value = std::stoi(layout.substr(found + std::string(axis).size() + 2));
    simulate.insert(simulate.end(), {std::string("--") + axis, std::to_string(value)});
  }
  const std::size_t split = layout.find("stage_layers ");
  if (split != std::string::npos)
    simulate.insert(simulate.end(), {"--layout.stage_layers", layout.substr(layout.find(' ', split) + 1)});
  if (layout.find("sp yes") != std::string::npos) simulate.emplace_back("--sp");
  EXPECT_NEAR(json_of(run_flopcast(simulate))["memory"]["shown_gib"].get<double>(), needs, 0.06) << text;
}

TEST(Plan, FailuresCountInEveryFormat) {
  const std::vector<std::string> run = {"--tokens", "300B", "--price", "2", "--mtbf", "500h", "--top", "2"};
  std::vector<std::string> json = run;
  json.insert(json.end(), {"--format", "json"});
  const Json answer = json_of(plan_small(json));
  const Json rules = Json::parse(read_text(project_folder() / "docs" / "schema" / "plan-1.schema.json"));
  EXPECT_EQ(schema_violation(rules, answer), "");
  const Json& length = answer["best"]["run"];
  EXPECT_LT(length["goodput"].get<double>(), 0.999);
  EXPECT_NEAR(length["days"].get<double>() * length["goodput"].get<double>(),
              answer["best"]["result"]["training"]["days"].get<double>(), 1e-9 * length["days"].get<double>());
  EXPECT_NEAR(length["failures_per_day"].get<double>(), 16 * 24.0 / 500.0, 1e-9);
  std::vector<std::string> csv = run;
  csv.insert(csv.end(), {"--format", "csv"});
  const std::string table = plan_small(csv).standard_output;
  const std::string best = table.substr(table.find('\n') + 1, table.find('\n', table.find('\n') + 1));
  EXPECT_NE(best.find(fmt::format(",{:.4g},{:.0f}", length["days"].get<double>(), length["cost_usd"].get<double>())),
            std::string::npos)
      << table;
}

TEST(Plan, SaysThatARunNeverEnds) {
  for (const std::vector<std::string>& hopeless :
       {std::vector<std::string>{"--mtbf", "1s"}, {"--checkpoint-time", "1000000d"}, {"--mtbf", "5min"}}) {
    std::vector<std::string> more = {"--tokens", "300B"};
    more.insert(more.end(), hopeless.begin(), hopeless.end());
    const CommandResult result = plan_small(more);
    EXPECT_EQ(result.exit_code, 3) << result.standard_output;
    EXPECT_NE(result.standard_error.find("never finishes: a failure every"), std::string::npos);
    EXPECT_NE(result.standard_error.find("of one GPU"), std::string::npos) << result.standard_error;
  }
}

TEST(Plan, AMissedDeadlineIsNoMatterOfMemory) {
  const CommandResult late = plan_small({"--tokens", "300B", "--deadline", "1d", "--price", "2"});
  EXPECT_EQ(late.exit_code, 3);
  EXPECT_NE(late.standard_error.find("error: no layout meets the deadline"), std::string::npos) << late.standard_error;
  EXPECT_NE(late.standard_error.find("the fastest layout: 16 GPUs take"), std::string::npos) << late.standard_error;
  EXPECT_EQ(late.standard_error.find("the closest layout needs"), std::string::npos) << late.standard_error;
  const CommandResult dear = plan_small({"--tokens", "300B", "--budget", "$1K", "--price", "2"});
  EXPECT_EQ(dear.exit_code, 3);
  EXPECT_NE(dear.standard_error.find("error: no layout meets the budget"), std::string::npos) << dear.standard_error;
  EXPECT_NE(dear.standard_error.find("the cheapest layout: "), std::string::npos) << dear.standard_error;
}

TEST(Plan, CostAndEnergyTryEveryNumberOfNodes) {
  for (const auto& [objective, note] :
       {std::pair("cost", "--price for dollars"), std::pair("energy", "400 W each (datasheet)")}) {
    const CommandResult chosen = plan_small({"--objective", objective, "--top", "1"});
    ASSERT_EQ(chosen.exit_code, 0) << chosen.standard_error;
    EXPECT_NE(chosen.standard_output.find("on 1 x dgx-a100-80g (8 a100-80g)"), std::string::npos)
        << chosen.standard_output;
    EXPECT_NE(chosen.standard_output.find(note), std::string::npos) << chosen.standard_output;
  }
}

TEST(Plan, TheWholeFrontHoldsEverySize) {
  const auto sizes_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--max-gpus", "16", "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::set<int> sizes;
    const Json answer = json_of(plan_small(arguments));
    for (const Json& entry : answer["pareto"]) sizes.insert(entry["result"]["job"]["cluster"]["nodes"].get<int>());
    return sizes;
  };
  EXPECT_EQ(sizes_of({}), (std::set<int>{2}));
  EXPECT_EQ(sizes_of({"--whole-front"}), (std::set<int>{1, 2}));
  const std::string table = plan_small({"--whole-front", "--top", "1"}).standard_output;
  EXPECT_NE(table.find("Pareto front: no other layout is better in time, memory and GPUs"), std::string::npos);
}

TEST(Plan, RecomputesOnlyWhereLessDoesNotFit) {
  const CommandResult wasteful = plan_small({"--recompute", "full", "--top", "1", "--verbose"});
  EXPECT_NE(wasteful.standard_output.find("recompute full, none also fits"), std::string::npos);
}

TEST(Plan, PlansEveryForm) {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{"--cp", "2", "--layout.context_parallel", "ulysses"},
        {"--layout.context_parallel", "ulysses"},
        {"--tp", "8", "--layout.tensor_parallel", "2.5d", "--layout.tensor_depth", "2"},
        {"--recompute", "full", "--layout.partition_checkpoints"},
        {"--cluster", "dgx-a100-80g", "--layout.data_parallel", "dataparallel"}}) {
    std::vector<std::string> arguments = {"plan", "--model", "gpt3-1.3b", "--gbs", "64", "--top", "1"};
    if (form.front() != "--cluster") arguments.insert(arguments.end(), {"--cluster", "2xdgx-a100-80g"});
    arguments.insert(arguments.end(), form.begin(), form.end());
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 0) << form[1] << result.standard_error;
  }
}

TEST(Plan, AListedSplitSetsTheStages) {
  const std::vector<std::string> question = {"plan",         "--model", "gpt3-1.3b", "--cluster",
                                             "dgx-a100-80g", "--gbs",   "16",        "--layout.stage_layers"};
  const auto planned = [&question](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = question;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_flopcast(arguments);
  };
  const Json answer = json_of(planned({"10,14", "--top", "2", "--format", "json"}));
  for (const Json& entry : answer["ranked"]) {
    EXPECT_EQ(entry["layout"]["stage_layers"], Json::parse("[10, 14]"));
    EXPECT_EQ(entry["layout"]["pp"].get<int>() * entry["layout"]["vpp"].get<int>(), 2);
  }
  EXPECT_EQ(planned({"10,15"}).exit_code, 2);
  EXPECT_EQ(planned({"10,14", "--pp", "4"}).exit_code, 2);
}

TEST(Plan, TheFileNamesTheFormat) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(plan_small({"--tp", "2", "-o", "plan.csv"}, options).exit_code, 0);
  EXPECT_EQ(read_text(folder.path() / "plan.csv").rfind("rank,gpus,tp,", 0), 0u);
  ASSERT_EQ(plan_small({"--tp", "2", "-o", "plan.json"}, options).exit_code, 0);
  const Json compared = json_of(run_flopcast({"compare", "plan.json", "tp=4", "--format", "json"}, options));
  ASSERT_EQ(run_flopcast({"compare", "plan.json", "tp=4", "-o", "both.json"}, options).exit_code, 0);
  EXPECT_EQ(Json::parse(read_text(folder.path() / "both.json")), compared);
}

TEST(Plan, AnswersTheInverseQuestions) {
  const Json fewest = json_of(run_flopcast({"plan", "--model", "gpt3-175b", "--cluster", "16xdgx-a100-80g", "--gbs",
                                            "64", "--min-gpus", "--format", "json", "--top", "1"}));
  const int nodes = fewest["best"]["result"]["job"]["cluster"]["nodes"];
  const CommandResult fewer =
      run_flopcast({"plan", "--model", "gpt3-175b", "--cluster", std::to_string(nodes - 1) + "xdgx-a100-80g", "--gbs",
                    "64", "--min-gpus", "--headroom", "5%"});
  EXPECT_EQ(fewer.exit_code, 3);
  const CommandResult deadline =
      run_flopcast({"plan", "--model", "gpt3-13b", "--cluster", "32xdgx-a100-80g", "--gbs", "512", "--tokens", "300B",
                    "--deadline", "20d", "--price", "2", "--format", "csv", "--top", "1"});
  EXPECT_EQ(deadline.exit_code, 0) << deadline.standard_error;
  const CommandResult poor = run_flopcast({"plan", "--model", "gpt3-13b", "--cluster", "2xdgx-a100-80g", "--gbs", "512",
                                           "--tokens", "300B", "--budget", "100", "--price", "2"});
  EXPECT_EQ(poor.exit_code, 3);
  EXPECT_NE(poor.standard_error.find("exceeds the budget"), std::string::npos) << poor.standard_error;
}

TEST(Plan, RefusesWhatMakesNoSense) {
  const auto refused = [](const std::vector<std::string>& more, const std::string& words) {
    const CommandResult result = plan_small(more);
    EXPECT_EQ(result.exit_code, 2) << result.standard_output;
    EXPECT_NE(result.standard_error.find(words), std::string::npos) << result.standard_error;
  };
  refused({"--objective", "tiem"}, "did you mean time");
  refused({"--deadline", "45d"}, "--tokens");
  refused({"--deadline", "45", "--tokens", "1B"}, "has no unit");
  refused({"--budget", "100", "--tokens", "1B"}, "--price");
  refused({"--schedules", "1f1b,zigzag"}, "unknown schedule");
  refused({"--schedules", "interleaved:2"}, "--vpp 2");
  refused({"--budget", "much", "--tokens", "1B", "--price", "2"}, "--budget");
  refused({"--budget", "100/h", "--tokens", "1B", "--price", "2"}, "--budget");
  refused({"--mtbf", "500h"}, "--tokens");
  refused({"--schedule", "1f1b", "--schedules", "zbv"}, "conflicts with --schedule 1f1b");
  refused({"--show-config"}, "simulate JOB --show-config");
  refused({"--max-gpus", "4"}, "less than one node");
  refused({"--max-gpus", "2147483647"}, "at most 16384 nodes");
  refused({"--top", "0"}, "out of range");
  refused({"--threads", "0"}, "out of range");
  refused({"--min-gpus", "--objective", "time"}, "conflicts with");
  refused({"--schedule", "file:x.csv"}, "one layout");
  EXPECT_EQ(run_flopcast({"plan", "--model", "gpt3-1.3b", "--cluster", "2xdgx-a100-80g"}).exit_code, 2);
}

TEST(Plan, EmitsWhatOtherProgramsRead) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  struct Program {
    std::string name;
    std::string file;
    std::vector<std::string> rest;  // settings that are not in the file
  };
  const std::vector<Program> programs = {
      {"megatron", "arguments.txt", {"--cluster", "2xdgx-a100-80g"}},
      {"torchrun", "train.sh", {"--cluster", "dgx-a100-80g"}},
      {"deepspeed", "ds_config.json", {"--cluster", "2xdgx-a100-80g", "--model", "gpt3-1.3b"}},
      {"accelerate", "accelerate.yaml", {"--cluster", "dgx-a100-80g", "--model", "gpt3-1.3b"}}};
  for (const Program& program : programs) {
    const CommandResult emitted =
        plan_small({"--emit", program.name, "--stack", "megatron-core", "-o", program.file}, options);
    ASSERT_EQ(emitted.exit_code, 0) << emitted.standard_error;
    EXPECT_EQ(emitted.standard_output, "");
    // The forecast in the note equals that of the file read back.
    const std::size_t note = emitted.standard_error.find("note: forecast: ");
    ASSERT_NE(note, std::string::npos) << emitted.standard_error;
    const double planned = std::stod(emitted.standard_error.substr(note + std::string("note: forecast: ").size()));
    std::vector<std::string> simulate = {"simulate", program.file, "--stack", "megatron-core", "--format", "json"};
    simulate.insert(simulate.end(), program.rest.begin(), program.rest.end());
    if (program.name == "accelerate") {
      const std::size_t size = emitted.standard_error.find("micro-batch of ");
      ASSERT_NE(size, std::string::npos);
      simulate.insert(simulate.end(), {"--mbs", std::to_string(std::stoi(emitted.standard_error.substr(size + 15)))});
    }
    const Json result = json_of(run_flopcast(simulate, options));
    EXPECT_NEAR(result["iteration"]["time_s"].get<double>(), planned, 1e-3 * planned) << program.name;
    EXPECT_EQ(result["job"]["layout"]["global_batch_size"], 64) << program.name;
  }
}

TEST(Plan, EmitsNothingThatAProgramCannotDo) {
  const CommandResult refused = plan_small({"--emit", "deepspeed", "--pp", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.standard_output, "");
  EXPECT_NE(refused.standard_error.find("cannot express layout.pp 2"), std::string::npos) << refused.standard_error;
  const CommandResult unknown = plan_small({"--emit", "megatrn"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.standard_error.find("did you mean megatron"), std::string::npos) << unknown.standard_error;
  const CommandResult format = plan_small({"--emit", "megatron", "--format", "json"});
  EXPECT_EQ(format.exit_code, 2);
  EXPECT_NE(format.standard_error.find("--format"), std::string::npos) << format.standard_error;
  const CommandResult converted =
      run_flopcast({"convert", "--model", "gpt3-1.3b", "--cluster", "2xdgx-a100-80g", "--gbs", "64", "--pp", "2",
                    "--schedule", "zb-h1", "--emit", "torchrun"});
  EXPECT_EQ(converted.exit_code, 2);
  EXPECT_NE(converted.standard_error.find("cannot express layout.schedule zb-h1"), std::string::npos);
}

TEST(Plan, ItsFileFeedsCompare) {
  const TemporaryFolder folder;
  CommandOptions options;
  options.working_directory = folder.path();
  ASSERT_EQ(plan_small({"-o", "plan.json"}, options).exit_code, 0);
  const Json plan = Json::parse(read_text(folder.path() / "plan.json"));
  const Json compared = json_of(run_flopcast({"compare", "plan.json", "tp=4,dp=4", "--format", "json"}, options));
  EXPECT_EQ(compared["a"]["time_s"], plan["best"]["result"]["iteration"]["time_s"]);
}

// Full fine-tuning of 8 B parameters takes at least 16 bytes for each, too much for 24 GiB. Four bits fit.
TEST(Plan, MethodsOfFineTuningStandSideBySide) {
  const std::vector<std::string> asked = {"--model", "llama3-8b", "--cluster", "rtx-4090-8x",
                                          "--gbs",   "8",         "--seq",     "1024"};
  const auto run = [&asked](const char* command, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {command};
    arguments.insert(arguments.end(), asked.begin(), asked.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_flopcast(arguments);
  };
  const CommandResult table = run("plan", {"--methods", "--format", "json"});
  ASSERT_EQ(table.exit_code, 0) << table.standard_error;
  const Json rows = Json::parse(table.standard_output);
  ASSERT_EQ(rows.size(), 16U) << "four methods on 1, 2, 4 and 8 GPUs";
  EXPECT_EQ(rows.at(0), Json::parse(R"({"method": "full", "gpus": 1, "fits": false, "time_s": null,
                                        "memory_gib": null})"));
  const Json& qlora = rows.at(12);
  EXPECT_EQ(qlora.at("method"), "qlora");
  EXPECT_EQ(qlora.at("gpus"), 1);
  EXPECT_EQ(qlora.at("fits"), true);
  EXPECT_GT(qlora.at("time_s").get<double>(), 0.0);
  EXPECT_LT(qlora.at("memory_gib").get<double>(), 24.0);
  EXPECT_NE(run("plan", {"--methods"}).standard_output.find(" GiB"), std::string::npos);
  EXPECT_EQ(run("memory", {"--finetune", "qlora"}).standard_output.rfind("qlora fits: ", 0), 0U);
}

TEST(Plan, MethodsRefuseWhatTheyHaveNoUseFor) {
  const auto message_of = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan",  "--model", "llama3-8b", "--cluster", "rtx-4090-8x",
                                          "--gbs", "8",       "--seq",     "1024",      "--methods"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_flopcast(arguments);
    EXPECT_EQ(result.exit_code, 2);
    return result.standard_error;
  };
  EXPECT_NE(message_of({"--emit", "torchrun"}).find("omit --emit"), std::string::npos);
  EXPECT_NE(message_of({"--svg", "a.svg", "--max-gpus", "4", "--min-gpus"}).find("omit --svg, --max-gpus, --min-gpus"),
            std::string::npos);
}

// int8 is the base of the job's lora, so it appears only in that row.
TEST(Plan, MethodsKeepTheBaseOfTheJobsOwn) {
  const auto lora = [](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"plan",     "--model", "llama3-8b",  "--cluster", "rtx-4090-8x",
                                          "--gbs",    "8",       "--seq",      "1024",      "--methods",
                                          "--format", "json",    "--finetune", "lora"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Json rows = json_of(run_flopcast(arguments));
    return std::pair(rows.at(8), rows.at(12));
  };
  const auto [plain, qlora] = lora({});
  const auto [quantised, other_qlora] = lora({"--training.finetune.base", "int8"});
  ASSERT_EQ(quantised.at("fits"), true);
  EXPECT_NE(quantised, plain);
  EXPECT_EQ(qlora, other_qlora) << "nf4 with both";
}

// The number of microbatches that a pipeline holds depends on the batch.
TEST(Memory, OfFineTunedPipelinesAsksForTheBatch) {
  const std::vector<std::string> asked = {"memory", "--model", "llama3-8b",  "--cluster", "dgx-h100",
                                          "--seq",  "1024",    "--finetune", "lora"};
  const auto with = [&asked](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_flopcast(arguments);
  };
  EXPECT_EQ(with({}).exit_code, 0);
  EXPECT_EQ(with({"--pp", "1"}).exit_code, 0);
  const CommandResult piped = with({"--pp", "4"});
  EXPECT_EQ(piped.exit_code, 2);
  EXPECT_NE(piped.standard_error.find("global_batch_size"), std::string::npos) << piped.standard_error;
  EXPECT_EQ(with({"--pp", "4", "--gbs", "16"}).exit_code, 0);
  const TemporaryFolder folder;
  write_text(folder.path() / "job.json", R"({"layout": {"pp": 4}})");
  EXPECT_EQ(with({(folder.path() / "job.json").string()}).exit_code, 2);
}

// A galore rank in the file is ignored if a flag sets another optimizer; next to the file's optimizer it is an error,
// as is a rank given by a flag.
TEST(Memory, TheRankOfAnOptimizerThatAFlagReplacesIsLeftOut) {
  const TemporaryFolder folder;
  const auto run = [&folder](const char* training, const std::vector<std::string>& more) {
    const std::string job = (folder.path() / "job.json").string();
    write_text(job, std::string(R"({"model": "llama3-8b", "cluster": "dgx-h100", "layout": {"global_batch_size": 8},
                                    "training": )") +
                        training + "}");
    std::vector<std::string> arguments = {"memory", job, "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_flopcast(arguments);
  };
  const char* const galore = R"({"optimizer": "galore", "optimizer_rank": 64})";
  const Json answer = json_of(run(galore, {"--training.optimizer", "adam"}));
  EXPECT_EQ(answer.at("job").at("training").at("optimizer"), "adam");
  EXPECT_NE(answer.at("assumptions").dump().find("optimizer_rank: ignored, since"), std::string::npos)
      << answer.at("assumptions");
  EXPECT_EQ(run(galore, {}).exit_code, 0);
  EXPECT_EQ(run(galore, {"--training.optimizer", "adam", "--training.optimizer_rank", "8"}).exit_code, 2);
  EXPECT_EQ(run(R"({"optimizer": "adam", "optimizer_rank": 64})", {}).exit_code, 2);
}

}  // namespace
}  // namespace flopcast
