// explain, --show-config and completion from the user's view.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "model/job/user_spelling.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

const std::vector<std::string> kGpt3Job = {"--model", "gpt3-175b", "--cluster", "8xdgx-a100-80g", "--tp",
                                           "8",       "--pp",      "8",         "--gbs",          "64"};

std::vector<std::string> with_job(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kGpt3Job.begin(), kGpt3Job.end());
  return arguments;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Explain, PutsTheUsersNumbersIn) {
  const CommandResult result = run_flopcast(with_job({"explain", "bubble", "--format", "json"}));
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json json = Json::parse(result.standard_output);
  ASSERT_EQ(json.at("your_job").size(), 3u);
  EXPECT_EQ(json.at("your_job")[0], "p = 8, m = 64, v = 1, schedule 1f1b");
  // 7 / 71
  EXPECT_NE(json.at("your_job")[1].get<std::string>().find("(8 - 1) / (1 * 64 + 8 - 1) = 9.86 %"), std::string::npos);
}

TEST(Explain, EveryTermHasItsPartsAndEverySentenceFindsItsNumbers) {
  const CommandResult list = run_flopcast({"explain", "--format", "json"});
  ASSERT_EQ(list.exit_code, 0);
  std::set<std::string> names;
  for (const Json& row : Json::parse(list.standard_output)) names.insert(row.at("term").get<std::string>());
  for (const char* term : {"bubble",
                           "bubble ratio",
                           "mfu",
                           "hfu",
                           "microbatch",
                           "mini-batch",
                           "accumulation",
                           "GiB",
                           "zero",
                           "offload",
                           "compression",
                           "tensor parallelism",
                           "context parallelism",
                           "expert parallelism",
                           "weight stashing",
                           "staleness",
                           "1f1b",
                           "interleaving",
                           "recompute",
                           "sequence parallelism",
                           "busbw",
                           "world size",
                           "arithmetic intensity",
                           "exposed communication",
                           "actions",
                           "warm-up",
                           "cool-down",
                           "uneven stages",
                           "dependencies",
                           "critical path",
                           "interval",
                           "memory overhead",
                           "data parallelism",
                           "pipeline parallelism",
                           "exit codes",
                           "errors"}) {
    EXPECT_TRUE(names.count(term) == 1) << term;
  }
  for (const std::string& name : names) {
    const CommandResult plain = run_flopcast({"explain", name, "--format", "json"});
    ASSERT_EQ(plain.exit_code, 0) << name;
    const Json term = Json::parse(plain.standard_output);
    EXPECT_FALSE(term.at("what").get<std::string>().empty()) << name;
    EXPECT_FALSE(term.at("source").get<std::string>().empty()) << name;
    EXPECT_TRUE(term.at("your_job").empty()) << name;
    for (const Json& other : term.at("see")) EXPECT_TRUE(names.count(other.get<std::string>()) == 1) << other;
    const CommandResult job = run_flopcast(with_job({"explain", name, "--format", "json"}));
    ASSERT_EQ(job.exit_code, 0) << name << job.standard_error;
    const bool about_the_program = name == "exit codes" || name == "errors";
    EXPECT_EQ(Json::parse(job.standard_output).at("your_job").empty(), about_the_program) << name;
  }
}

TEST(Explain, KnowsAliasesAndOffersNeighbours) {
  EXPECT_EQ(run_flopcast({"explain", "Bubble_Fraction"}).standard_output,
            run_flopcast({"explain", "bubble"}).standard_output);
  const CommandResult unknown = run_flopcast({"explain", "buble"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.standard_error.find("did you mean bubble"), std::string::npos) << unknown.standard_error;
  EXPECT_EQ(run_flopcast({"explain", "bubble", "--tp", "4"}).exit_code, 2);
}

TEST(ShowConfig, ListsEveryKeyWithItsOrigin) {
  for (const char* command : {"simulate", "memory", "timeline"}) {
    const CommandResult result = run_flopcast(with_job({command, "--show-config", "--format", "json"}));
    ASSERT_EQ(result.exit_code, 0) << result.standard_error;
    const Json rows = Json::parse(result.standard_output);
    // Keys of links between nodes apply only to clusters that have them.
    const auto shown = std::count_if(job_keys().begin(), job_keys().end(), [](const JobKey& key) {
      return key.field != "cluster.network" && key.field.rfind("cluster.network.", 0) != 0;
    });
    ASSERT_EQ(rows.size(), static_cast<std::size_t>(shown));
    std::map<std::string, Json> by_key;
    for (const Json& row : rows) by_key[row.at("key").get<std::string>()] = row;
    EXPECT_EQ(by_key["layout.tp"].at("value"), 8);
    EXPECT_EQ(by_key["layout.tp"].at("origin"), "--tp");
    EXPECT_EQ(by_key["layout.dp"].at("value"), 1);
    EXPECT_EQ(by_key["layout.dp"].at("origin"), "derived");
    EXPECT_EQ(by_key["layout.ep"].at("origin"), "default");
    EXPECT_TRUE(by_key["layout.memory_limit"].at("value").is_null());
    EXPECT_EQ(by_key["layout.schedule"].at("value"), "1f1b");
    EXPECT_EQ(by_key["model.layers"].at("value"), 96);
    EXPECT_EQ(by_key["model.layers"].at("origin"), "catalogue entry gpt3-175b");
    EXPECT_EQ(by_key["training.stack"].at("value"), "megatron-core");
  }
}

TEST(ShowConfig, TellsNestedKeysAndWhereTheyWereGiven) {
  const std::vector<std::string> job = {"simulate",
                                        "--model",
                                        "mixtral-8x7b",
                                        "--cluster",
                                        "2xdgx-h100",
                                        "--gbs",
                                        "64",
                                        "--ep",
                                        "4",
                                        "--moe-expert-capacity-factor",
                                        "1.25",
                                        "--training.stack",
                                        "nemo"};
  std::vector<std::string> shown = job;
  shown.insert(shown.end(), {"--show-config", "--format", "json"});
  const std::string rows = run_flopcast(shown).standard_output;
  std::map<std::string, Json> by_key;
  for (const Json& row : Json::parse(rows)) by_key[row.at("key").get<std::string>()] = row;
  const auto expect = [&by_key](const char* key, const Json& value, const char* origin) {
    EXPECT_EQ(by_key[key].at("value"), value) << key;
    EXPECT_EQ(by_key[key].at("origin"), origin) << key;
  };
  expect("model.experts.capacity_factor", 1.25, "--moe-expert-capacity-factor");
  expect("model.experts.count", 8, "catalogue entry mixtral-8x7b");
  expect("model.causal", true, "default");
  expect("cluster.nodes", 2, "--cluster");
  expect("cluster.device", "h100", "catalogue entry dgx-h100");
  expect("cluster.device.multiprocessors", 132, "catalogue entry h100");
  expect("training.stack", "nemo", "--training.stack");
  expect("training.gradient_transport", "nccl", "derived");
  EXPECT_TRUE(by_key["layout.chains"].at("value").is_null());
  // Read back, it gives the same job.
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "config.json").string();
  write_text(file, rows);
  EXPECT_EQ(run_flopcast({"simulate", file, "--show-config", "--format", "json"}).exit_code, 0);
  const auto figures = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    Json result = Json::parse(run_flopcast(words).standard_output);
    result.erase("assumptions");
    return result;
  };
  EXPECT_EQ(figures({"simulate", file}), figures(job));
}

TEST(ShowConfig, NamesThePlaceInAFile) {
  const std::string file = (project_folder() / "examples" / "gpt3-175b-64-gpus" / "job.json").string();
  const CommandResult result =
      run_flopcast({"simulate", file, "--pp", "4", "--vpp", "2", "--show-config", "--format", "csv"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  EXPECT_NE(result.standard_output.find("layout.pp,4,--pp\n"), std::string::npos) << result.standard_output;
  EXPECT_NE(result.standard_output.find("layout.recompute,selective," + file + ":/layout/recompute\n"),
            std::string::npos);
}

TEST(Completion, FollowsTheCommandLinesOwnTables) {
  const auto words = [](std::vector<std::string> typed) {
    typed.insert(typed.begin(), {"completion", "words", "--"});
    const std::vector<std::string> lines = lines_of(run_flopcast(typed).standard_output);
    return std::set<std::string>(lines.begin(), lines.end());
  };
  EXPECT_EQ(words({}).count("simulate"), 1u);
  EXPECT_EQ(words({"schedule"}).count("show"), 1u);
  EXPECT_EQ(words({"schedule", "show"}).count("--microbatches"), 1u);
  EXPECT_EQ(words({"simulate", "--model"}).count("gpt3-175b"), 1u);
  EXPECT_EQ(words({"simulate", "--recompute"}), std::set<std::string>({"none", "selective", "full"}));
  EXPECT_EQ(words({"catalog"}).count("devices"), 1u);
  EXPECT_EQ(words({"explain"}).count("bubble"), 1u);
  const std::set<std::string> flags = words({"simulate"});
  for (const JobKey& key : job_keys()) {
    EXPECT_EQ(flags.count("--" + std::string(key.field)), 1u) << key.field;
    for (const std::string_view alias : key.aliases) EXPECT_EQ(flags.count(std::string(alias)), 1u) << alias;
  }
}

TEST(Completion, GoesOnWithinAWord) {
  const auto words = [](const std::string& current, std::vector<std::string> typed) {
    typed.insert(typed.begin(), {"completion", "words", "--current", current, "--"});
    const std::vector<std::string> lines = lines_of(run_flopcast(typed).standard_output);
    return std::set<std::string>(lines.begin(), lines.end());
  };
  EXPECT_EQ(words("8xdgx", {"simulate", "--cluster"}).count("8xdgx-h100"), 1u);
  EXPECT_EQ(words("dgx", {"simulate", "--cluster"}).count("dgx-h100"), 1u);
  EXPECT_EQ(words("gpipe,1f", {"schedule", "compare", "--schedule"}).count("gpipe,1f1b"), 1u);
  EXPECT_EQ(words("1f", {"schedule", "compare", "--schedule"}).count("1f1b"), 1u);
  EXPECT_EQ(words("", {"plan", "--objective"}), std::set<std::string>({"time", "cost", "gpus", "energy"}));
  EXPECT_EQ(words("sim", {}).count("simulate"), 1u);
}

TEST(Completion, TheBashScriptCompletes) {
  const CommandResult script = run_flopcast({"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0);
  const TemporaryFolder folder;
  write_text(folder.path() / "completion.bash",
             script.standard_output + "COMP_WORDS=(flopcast sim); COMP_CWORD=1; _flopcast; echo \"${COMPREPLY[@]}\"\n");
  const CommandResult shell = run_command({"bash", "-n", (folder.path() / "completion.bash").string()});
  EXPECT_EQ(shell.exit_code, 0) << shell.standard_error;
  for (const char* name : {"zsh", "fish"}) EXPECT_EQ(run_flopcast({"completion", name}).exit_code, 0);
  EXPECT_EQ(run_flopcast({"completion", "tcsh"}).exit_code, 2);
  EXPECT_EQ(run_flopcast({"completion"}).exit_code, 2);
}

// Once installed, the whole text is the function that zsh calls, so it must call the function that it defines.
TEST(Completion, TheZshScriptAnswersTheFirstTab) {
  const std::string script = run_flopcast({"completion", "zsh"}).standard_output;
  EXPECT_EQ(script.rfind("#compdef flopcast\n", 0), 0u);
  EXPECT_NE(script.find("  _flopcast \"$@\"\n", script.find("\n}\n")), std::string::npos) << script;
}

TEST(WeightVersions, AreShownForASchedule) {
  const CommandResult result = run_flopcast({"schedule", "show", "--schedule", "pipedream", "--pp", "3",
                                             "--microbatches", "5", "--versions", "--format", "json"});
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  const Json json = Json::parse(result.standard_output);
  EXPECT_EQ(json.at("policy"), "stashed");
  EXPECT_EQ(json.at("stages")[0].at("versions_kept"), 3);
  EXPECT_EQ(json.at("stages")[0].at("version"), Json({0, 0, 0, 1, 2}));
  const CommandResult refused = run_flopcast(
      {"schedule", "show", "--schedule", "1f1b", "--pp", "3", "--microbatches", "5", "--versions", "--vertical-sync"});
  EXPECT_EQ(refused.exit_code, 2);
}

TEST(LayerProfile, IsAModelByItsPath) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "two.json").string();
  write_text(path, R"({"micro_batch_size": 4, "layers": [{"forward_s": 0.1, "backward_s": 0.2},
                                                        {"forward_s": 0.1, "backward_s": 0.2}]})");
  const std::vector<std::string> job = {"simulate", "--model", path,    "--cluster", "dgx-a100-80g", "--pp", "2",
                                        "--mbs",    "4",       "--gbs", "64",        "--format",     "json"};
  const CommandResult result = run_flopcast(job);
  ASSERT_EQ(result.exit_code, 0) << result.standard_error;
  // dp 4, 4 microbatches on 2 equal stages: (4 + 1) (0.1 + 0.2).
  EXPECT_NEAR(Json::parse(result.standard_output).at("iteration").at("time_s").get<double>(), 1.5, 0.01);
  write_text(path, R"({"layers": [{"forward_s": 0.1, "backward_s": -0.2}]})");
  const CommandResult refused = run_flopcast(job);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.standard_error.find("two.json:/layers/0/backward_s"), std::string::npos) << refused.standard_error;
}

}  // namespace
}  // namespace flopcast
