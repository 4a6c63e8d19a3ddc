// Every key of a job survives writing and reading: the job in a result reproduces that result, and --show-config prints
// the job. Jobs are made by walking the tables of keys, so that a new key is tested automatically.

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/fields.hpp"
#include "model/job/read_job.hpp"
#include "model/job/user_spelling.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/run/run.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/cli/small_run.hpp"
#include "tests/property/random_jobs.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

std::string figures_of(const Job& job) {
  nlohmann::ordered_json result = nlohmann::ordered_json::parse(write_simulation(forecast(job, no_files)));
  // Assumptions are text; a job that states everything makes fewer.
  result.erase("assumptions");
  result.erase("warnings");
  return result.dump();
}

void expect_round_trip(const Json& root) {
  const Job job = read_job(root, {});
  const Json written = job_json(job);
  const Job read = read_job(written, {});
  RC_ASSERT(Json(job_json(read)).dump() == written.dump());
  RC_ASSERT(figures_of(read) == figures_of(job));
  // The job in a result has the chosen schedule and the distributed layers, and refers to no files.
  const Job chosen = *prepared_job(root);
  const Json echo = job_json(chosen);
  const Job again = *prepared_job(echo);
  RC_ASSERT(Json(job_json(again)).dump() == echo.dump());
  RC_ASSERT(figures_of(read_job(echo, {})) == figures_of(job));
}

RC_GTEST_PROP(JobProperties, AJobInAResultIsTheJobThatWasForecast, ()) {
  const auto beginning = *rc::gen::inRange<std::size_t>(0, job_beginnings().size());
  const auto changes = *rc::gen::container<std::vector<std::pair<std::size_t, std::size_t>>>(
      rc::gen::pair(rc::gen::inRange<std::size_t>(0, job_keys().size()), rc::gen::inRange<std::size_t>(0, 16)));
  expect_round_trip(job_with(beginning, changes));
}

// Each key separately, in the first job that accepts it.
TEST(JobProperties, EveryKeySurvivesARoundTrip) {
  std::set<std::string> covered;
  for (std::size_t index = 0; index < job_keys().size(); ++index) {
    const JobKey& key = job_keys()[index];
    for (std::size_t beginning = 0; beginning < job_beginnings().size() && covered.count(key.field) == 0; ++beginning) {
      for (std::size_t seed = 0; seed < 9 && covered.count(key.field) == 0; ++seed) {
        const Json job = job_with(beginning, {{index, seed}}, &covered);
        if (covered.count(key.field) == 0) continue;
        const Job read = read_job(job, {});
        const Job again = read_job(job_json(read), {});
        EXPECT_EQ(job_json(again), job_json(read)) << key.field;
        EXPECT_EQ(figures_of(again), figures_of(read)) << key.field;
      }
    }
    const bool of_files = key.field == "training.profile" || key.field == "failures.log";
    const bool apart = key.entry->names_object || of_files || key.field == "training.fitted";  // fit_runs_test has it
    EXPECT_TRUE(apart || covered.count(key.field) == 1) << key.field << ": not covered by any job";
  }
}

TEST(JobProperties, BeginningsSurviveARoundTrip) {
  for (const Json& root : job_beginnings()) {
    const Job job = read_job(root, {});
    const Json echo = job_json(*prepared_job(root));
    EXPECT_EQ(echo.dump().find("some/where"), std::string::npos);
    EXPECT_EQ(figures_of(read_job(echo, {})), figures_of(job)) << echo.dump(2);
  }
}

// Text of a key's value on a command line.
std::string flag_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.empty() || !value.front().is_number()) return value.dump();
  std::string text = value.dump();
  return text.substr(1, text.size() - 2);
}

TEST(JobProperties, EveryPathIsAFlagThatSaysWhatTheFileWould) {
  for (std::size_t index = 0; index < job_keys().size(); ++index) {
    const JobKey& key = job_keys()[index];
    for (std::size_t seed = 0; seed < 4; ++seed) {
      Json value = some_job_value(*key.entry, seed);
      if (key.kind == FieldKind::kQuantity) value = flag_text(value);
      Json in_file = job_beginnings().front();
      set_key(key.field, value, in_file);
      Json by_flag = job_beginnings().front();
      Origins origins;
      apply_flags({{&key, "--" + key.field, flag_text(value)}}, by_flag, origins);
      EXPECT_EQ(by_flag, in_file) << key.field;
      EXPECT_EQ(origins.where(key.field), "--" + key.field);
    }
  }
}

// Figures of a part refine the entry that contains them, in any order.
TEST(JobProperties, FlagsReachIntoPartsThatGoByTheirName) {
  const CommandResult changed = run_flopcast(
      {"simulate", "--cluster.device.tdp", "123W", "--training.stack.gradient_bytes", "2", "--stack", "megatron-2022",
       "--model", "gpt3-125m", "--cluster", "2xdgx-a100-80g", "--gbs", "64", "--format", "json"});
  ASSERT_EQ(changed.exit_code, 0) << changed.standard_error;
  const Json job = Json::parse(changed.standard_output).at("job");
  EXPECT_EQ(job.at("cluster").at("device").at("tdp"), "123W");
  EXPECT_EQ(job.at("cluster").at("device").at("name"), "a100-80g");
  EXPECT_EQ(job.at("training").at("stack").at("gradient_bytes"), 2);
  EXPECT_EQ(job.at("training").at("stack").at("name"), "megatron-2022");
}

// --- consistency of a forecast ---

void expect_share_of(double part, double whole) {
  RC_ASSERT(part <= whole * (1.0 + 1e-9) + 1e-12);
}

// The parts of a step sum to the step, those of a rank's memory to its total, and an interval contains its forecast.
RC_GTEST_PROP(JobProperties, ForecastsAddUp, ()) {
  const auto beginning = *rc::gen::inRange<std::size_t>(0, job_beginnings().size());
  const auto changes = *rc::gen::container<std::vector<std::pair<std::size_t, std::size_t>>>(
      rc::gen::pair(rc::gen::inRange<std::size_t>(0, job_keys().size()), rc::gen::inRange<std::size_t>(0, 16)));
  const Json root = job_with(beginning, changes);
  RC_LOG() << root.dump() << '\n';
  const Job job = read_job(root, {});
  const Result result = forecast(job, no_files).result;
  const double step = result.iteration.time_s;
  RC_ASSERT(std::isfinite(step) && step > 0.0);

  const Json breakdown = result_json(forecast(job, no_files)).at("breakdown");
  double sum = 0.0;
  for (const auto& [name, seconds] : breakdown.items()) {
    RC_ASSERT(seconds.get<double>() >= -1e-9 * step);
    sum += seconds.get<double>();
  }
  RC_ASSERT(std::abs(sum - step) <= 1e-6 * step);
  expect_share_of(result.bubble.fraction, 1.0);
  for (const Axis axis : kResultAxes) expect_share_of(0.0, result.communication[axis].total_s);
  expect_share_of(result.iteration.mfu_causal, result.iteration.mfu);
  expect_share_of(result.iteration.model_tflops_per_gpu, result.iteration.hardware_tflops_per_gpu);
  if (result.interval) {
    expect_share_of(result.interval->low_s, step);
    expect_share_of(step, result.interval->high_s);
  }

  double fullest = 0.0;
  for (const RankMemoryResult& rank : result.memory.per_pipeline_rank) {
    const double parts = rank.weights_gib + rank.gradients_gib + rank.optimizer_gib + rank.activations_gib +
                         rank.weight_versions_gib + rank.workspace_gib;
    RC_ASSERT(std::abs(parts - rank.total_gib) <= 1e-9 * rank.total_gib);
    expect_share_of(rank.total_gib, rank.reserved_gib);
    expect_share_of(rank.reserved_gib, rank.shown_gib);
    fullest = std::max(fullest, rank.total_gib);
  }
  RC_ASSERT(std::abs(fullest - result.memory.peak_gib) <= 1e-9 * fullest);
}

// Wider links and shorter latencies never make a step longer by more than a thousandth, which may occur when work moves
// between the passes that hide it.
RC_GTEST_PROP(JobProperties, BetterLinksAreNotSlower, ()) {
  const auto beginning = *rc::gen::inRange<std::size_t>(0, job_beginnings().size());
  const auto changes = *rc::gen::container<std::vector<std::pair<std::size_t, std::size_t>>>(
      rc::gen::pair(rc::gen::inRange<std::size_t>(0, job_keys().size()), rc::gen::inRange<std::size_t>(0, 16)));
  const Json root = job_with(beginning, changes);
  RC_LOG() << root.dump() << '\n';
  const Job job = read_job(root, {});
  const Forecast before = forecast(job, no_files);
  RC_PRE(follows_the_times(before));
  const double factor = *rc::gen::element(1.1, 2.0, 10.0);
  Job better = job;
  switch (*rc::gen::inRange(0, 5)) {
    case 0:
      better.cluster.intra_bandwidth = better.cluster.intra_bandwidth * factor;
      break;
    case 1:
      better.cluster.nic_bandwidth = better.cluster.nic_bandwidth * factor;
      break;
    case 2:
      better.cluster.intra_latency = better.cluster.intra_latency / factor;
      break;
    case 3:
      better.cluster.inter_latency = better.cluster.inter_latency / factor;
      break;
    default:
      better.cluster.hop_latency = better.cluster.hop_latency / factor;
  }
  const double step = before.result.iteration.time_s;
  // Messages that arrive earlier may contend with others on shared links, and fair sharing delays the critical one.
  const double most = job.cluster.shares_links() ? 1.02 : 1.001;
  RC_ASSERT(forecast(better, no_files).result.iteration.time_s <= step * most);
}

// --- the job in the answers of commands ---

Json figures_in(Json result) {
  for (const char* key : {"assumptions", "warnings", "critical_path"}) result.erase(key);
  return result;
}

// The forecast of a run has the bytes and messages of the executed model, which is in fp32.
Json without_traffic(Json figures) {
  for (const char* axis : {"tp", "pp", "dp", "cp", "ep"}) {
    for (const char* key : {"bytes_sent_per_rank", "messages"}) figures.at("communication").at(axis).erase(key);
  }
  return figures;
}

// The job in a result needs no file, and its forecast equals the result.
void expect_tells_its_job(const Json& result) {
  Forecast answer = forecast(read_job(result.at("job"), {}), no_files);
  if (result.contains("run")) {
    const bool with_options = !result.at("run").at("options").empty();
    add_run(answer, with_options ? WithOptions::kYes : WithOptions::kNo);
  }
  const Json again = result_json(answer);
  EXPECT_EQ(figures_in(again).dump(), figures_in(result).dump());
}

class Desk {
 public:
  Desk() { options_.working_directory = folder_.path(); }
  CommandResult ask(const std::vector<std::string>& words) const { return run_flopcast(words, options_); }
  // Commands that start other programs need streams that are files.
  CommandResult start(const std::vector<std::string>& words) const { return start_flopcast(words, options_); }
  Json answer(std::vector<std::string> words) const {
    words.insert(words.end(), {"--format", "json"});
    const CommandResult result = ask(words);
    if (result.exit_code != 0) throw std::runtime_error(words.front() + ": " + result.standard_error);
    return Json::parse(result.standard_output);
  }
  void write(const std::string& file, const std::string& text) const { write_text(folder_.path() / file, text); }
  std::string read(const std::string& file) const { return read_text(folder_.path() / file); }
  void remove(const std::string& file) const { std::filesystem::remove(folder_.path() / file); }

 private:
  TemporaryFolder folder_;
  CommandOptions options_;
};

// The results of simulate, compare and sweep reproduce from their jobs, and report accepts them; so does the listing of
// --show-config, read back.
void expect_answers_tell_their_job(const Desk& desk) {
  const Json simulated = desk.answer({"simulate", "job.json"});
  expect_tells_its_job(simulated);
  desk.write("result.json", simulated.dump());
  EXPECT_EQ(figures_in(desk.answer({"simulate", "result.json"})), figures_in(simulated));
  EXPECT_EQ(desk.answer({"memory", "job.json"}).at("job"), simulated.at("job"));
  const Json config = desk.answer({"simulate", "job.json", "--show-config"});
  // The network between nodes is only listed for clusters that specify it.
  const bool wired = simulated.at("job").at("cluster").contains("network");
  const auto shown = std::count_if(job_keys().begin(), job_keys().end(), [wired](const JobKey& key) {
    return wired || (key.field != "cluster.network" && key.field.rfind("cluster.network.", 0) != 0);
  });
  EXPECT_EQ(config.size(), static_cast<std::size_t>(shown));
  for (const Json& row : config) EXPECT_FALSE(row.at("origin").get<std::string>().empty()) << row;
  desk.write("shown.json", config.dump());
  EXPECT_EQ(figures_in(desk.answer({"simulate", "shown.json"})), figures_in(simulated));
  const Json compared = desk.answer({"compare", "job.json", "result.json"});
  expect_tells_its_job(compared.at("a").at("result"));
  EXPECT_EQ(compared.at("b").at("result"), simulated);
  const Json swept = desk.answer({"sweep", "job.json", "--vary", "training.tokens=1B,2B"});
  for (const Json& row : swept.at("rows")) {
    ASSERT_FALSE(row.at("result").is_null()) << row;
    expect_tells_its_job(row.at("result"));
  }
  desk.write("compared.json", compared.dump());
  const CommandResult reported = desk.ask({"report", "result.json", "compared.json", "-o", "page.html"});
  EXPECT_EQ(reported.exit_code, 0);
  EXPECT_EQ(reported.standard_error, "");
}

TEST(JobProperties, EveryCommandTellsTheJobThatItForecast) {
  constexpr std::size_t kChanges = 8;
  constexpr std::size_t kStride = 37;  // step through all keys, different for every job
  for (std::size_t beginning = 0; beginning < job_beginnings().size(); ++beginning) {
    std::vector<std::pair<std::size_t, std::size_t>> changes;
    for (std::size_t change = 0; change < kChanges; ++change) {
      changes.emplace_back((beginning * kChanges + change) * kStride, beginning + change);
    }
    const Desk desk;
    desk.write("job.json", job_with(beginning, changes).dump());
    expect_answers_tell_their_job(desk);
  }
}

TEST(JobProperties, PlansTellTheirJobs) {
  for (const Json& root : job_beginnings()) {
    // Layouts in a file cannot be searched, and layouts that do not fit are not answers.
    if (root.at("layout").contains("schedule_csv") || root.at("cluster").at("name") == "ours") continue;
    const Desk desk;
    desk.write("job.json", root.dump());
    const CommandResult planned = desk.ask({"plan", "job.json", "--top", "3", "--format", "json"});
    if (planned.exit_code != 0) continue;
    const Json plan = Json::parse(planned.standard_output);
    for (const char* list : {"ranked", "pareto"}) {
      for (const Json& entry : plan.at(list)) expect_tells_its_job(entry.at("result"));
    }
    // The job of the best layout, as stated in the answer.
    const Json best = result_json(forecast(read_job(plan.at("job"), {}), no_files));
    Json told = figures_in(plan.at("best").at("result"));
    told.erase("run");  // months drawn on top of the forecast
    EXPECT_EQ(figures_in(best), told) << plan.at("job").dump(2);
    desk.write("plan.json", plan.dump());
    EXPECT_EQ(figures_in(desk.answer({"simulate", "plan.json"})), figures_in(plan.at("best").at("result")));
  }
}

// Answers do not need the files that a job refers to.
TEST(JobProperties, AnswersNeedNoFileOfTheJob) {
  const Desk desk;
  const std::vector<std::pair<const char*, std::string>> files = {
      {"rows.csv", two_ranks_csv()},
      {"stack.json", R"({"name": "nemo", "gradient_bytes": 2})"},
      {"profile.json", read_text(project_folder() / "model" / "catalog" / "profiles" / "a100-nccl.json")},
      {"config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
        "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 8, "num_key_value_heads": 16,
        "vocab_size": 32000, "max_position_embeddings": 2048})"}};
  for (const auto& [name, text] : files) desk.write(name, text);
  desk.write("job.json", R"({"model": "config.json", "cluster": {"name": "dgx-a100-80g", "nodes": 1},
    "layout": {"tp": 2, "pp": 2, "global_batch_size": 8, "schedule": "file:rows.csv"},
    "training": {"stack": "stack.json", "profile": "profile.json"}})");
  expect_answers_tell_their_job(desk);
  const Json simulated = desk.answer({"simulate", "job.json"});
  desk.write("result.json", simulated.dump());
  for (const auto& [name, text] : files) desk.remove(name);
  EXPECT_EQ(figures_in(desk.answer({"simulate", "result.json"})), figures_in(simulated));
}

TEST(JobProperties, ARunTellsItsJob) {
  const Desk desk;
  desk.write("rows.csv", two_ranks_csv());
  std::vector<std::string> words =
      small_run({"--pp", "2", "--cluster.devices_per_node", "2", "--mbs", "4", "--schedule", "file:rows.csv", "--steps",
                 "2", "--times", "job", "-o", "measured.json"});
  words.insert(words.end(), {"--format", "json"});
  const CommandResult answered = desk.start(words);
  ASSERT_EQ(answered.exit_code, 0) << answered.standard_error;
  const Json run = Json::parse(answered.standard_output);
  const Json forecast_of_run = result_json(forecast(read_job(run.at("forecast").at("job"), {}), no_files));
  EXPECT_EQ(without_traffic(figures_in(forecast_of_run)), without_traffic(figures_in(run.at("forecast"))));
  EXPECT_EQ(run.at("measured").at("job"), run.at("forecast").at("job"));
  const Json kept = Json::parse(desk.read("measured.json"));
  EXPECT_EQ(kept.at("comparison"), run);
  desk.remove("rows.csv");
  const Json again = result_json(forecast(read_job(kept.at("run").at("job"), {}), no_files));
  EXPECT_EQ(without_traffic(figures_in(again)), without_traffic(figures_in(run.at("forecast"))));
  const CommandResult reported = desk.ask({"report", "measured.json", "-o", "page.html"});
  EXPECT_EQ(reported.exit_code, 0) << reported.standard_error;
  EXPECT_EQ(reported.standard_error, "");
}

// FLOPCAST_BLESS=1 rewrites the files.
TEST(Schemas, AreWhatTheTablesSay) {
  const std::pair<const char*, nlohmann::ordered_json> schemas[] = {
      {"job-1", job_schema()}, {"result-1", result_schema()}, {"memory-1", memory_file_schema()}};
  for (const auto& [name, rules] : schemas) {
    const std::filesystem::path file = project_folder() / "docs" / "schema" / (std::string(name) + ".schema.json");
    const std::string schema = rules.dump(2) + "\n";
    if (std::getenv("FLOPCAST_BLESS") != nullptr) write_text(file, schema);
    EXPECT_EQ(read_text(file), schema);
  }
}

// Keys listed in the first column of a document's tables.
std::multiset<std::string> keys_listed_in(const std::string& document) {
  std::multiset<std::string> keys;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) != 0) continue;
    const std::string cell = line.substr(1, line.find('|', 1) - 1);
    for (std::size_t tick = cell.find('`'); tick != std::string::npos; tick = cell.find('`', tick + 1)) {
      const std::size_t end = cell.find('`', tick + 1);
      keys.insert(cell.substr(tick + 1, end - tick - 1));
      tick = end;
    }
  }
  return keys;
}

TEST(Documents, ListEveryKeyOfAStackOnce) {
  std::multiset<std::string> keys;
  for (const FieldInfo& field : stack_fields()) {
    if (!field.names_object && field.kept) keys.emplace(field.key);
  }
  EXPECT_EQ(keys_listed_in(read_text(project_folder() / "docs" / "stacks.md")), keys);
}

}  // namespace
}  // namespace flopcast
