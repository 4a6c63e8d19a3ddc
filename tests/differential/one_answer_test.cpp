// One question, one answer: the random jobs of the corpus (fabrics, asynchronous schedules, offload, paging, LoRA,
// experts, uneven stages), through every path that computes a step's time and memory. Bit for bit, also for jobs that
// do not fit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/flopcast.hpp"
#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "planner/search/search.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"
#include "tests/unit/model/jobs.hpp"
#include "web/questions.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

struct CorpusJob {
  std::string name;
  Json root;
};

const std::vector<CorpusJob>& corpus_jobs() {
  static const std::vector<CorpusJob> all = [] {
    std::vector<CorpusJob> jobs;
    for (const Json& entry : Json::parse(read_text(project_folder() / "tests" / "golden" / "corpus_jobs.json"))) {
      const std::string kind = entry.at("kind");
      jobs.push_back({fmt::format("{:03}-{}", jobs.size(), kind), entry.at("job")});
    }
    return jobs;
  }();
  return all;
}

void expect_same_memory(const MemoryResult& one, const MemoryResult& other) {
  EXPECT_EQ(one.fits, other.fits);
  EXPECT_EQ(one.peak_gib, other.peak_gib);
  EXPECT_EQ(one.reserved_gib, other.reserved_gib);
  EXPECT_EQ(one.shown_gib, other.shown_gib);
  ASSERT_EQ(one.per_pipeline_rank.size(), other.per_pipeline_rank.size());
  for (std::size_t rank = 0; rank < one.per_pipeline_rank.size(); ++rank) {
    EXPECT_EQ(one.per_pipeline_rank[rank].total_gib, other.per_pipeline_rank[rank].total_gib);
    EXPECT_EQ(one.per_pipeline_rank[rank].peak_in_flight, other.per_pipeline_rank[rank].peak_in_flight);
  }
}

TEST(OneAnswer, TimeAloneIsTheTimelines) {
  int misfits = 0;
  for (const CorpusJob& one : corpus_jobs()) {
    SCOPED_TRACE(one.name);
    const Job job = read_job(one.root, {});
    const Forecast whole = forecast(job, no_files);
    const Evaluation alone = evaluate(whole.step, Detail::kTime);
    EXPECT_EQ(alone.time_s, whole.result.iteration.time_s);
    expect_same_memory(alone.memory, whole.result.memory);
    EXPECT_EQ(step_time(job, no_files), whole.result.iteration.time_s);
    // A what-if without a change.
    EXPECT_EQ(step_time(whole.step.job, no_files), whole.result.iteration.time_s);
    const Evaluation planned = evaluate_layout(job);
    EXPECT_EQ(planned.memory.fits, whole.result.memory.fits);
    EXPECT_EQ(planned.memory.shown_gib, whole.result.memory.shown_gib);
    EXPECT_EQ(planned.time_s, planned.memory.fits ? whole.result.iteration.time_s : 0.0);
    misfits += whole.result.memory.fits ? 0 : 1;
    // Memory drawn over time peaks at the summed memory.
    for (std::size_t rank = 0; rank < whole.memory.size(); ++rank) {
      EXPECT_NEAR(whole.memory[rank].peak_bytes,
                  whole.result.memory.per_pipeline_rank[rank].total_gib * 1024.0 * 1024.0 * 1024.0, 1.0);
    }
  }
  EXPECT_GT(misfits, 10);
}

// Steps of many microbatches: a step shortened because it repeats has all figures of the full one, bit for bit.
TEST(OneAnswer, FiguresAloneAreTheForecasts) {
  constexpr int kMore = 12;
  int cut_short = 0;
  for (const CorpusJob& one : corpus_jobs()) {
    SCOPED_TRACE(one.name);
    if (one.root.at("cluster").contains("network")) continue;  // simulated in full, which takes long
    Json root = one.root;
    root["layout"]["global_batch_size"] = kMore * root["layout"]["global_batch_size"].get<int>();
    const Job job = read_job(root, {});
    const Forecast whole = forecast(job, no_files);
    const Forecast figures = forecast_figures(job, no_files);
    EXPECT_EQ(result_json(figures).dump(), result_json(whole).dump());
    EXPECT_EQ(step_time(job, no_files), whole.result.iteration.time_s);
    cut_short += figures.step.repetition ? 1 : 0;
  }
  EXPECT_GT(cut_short, 100);
}

TEST(OneAnswer, PricesAreSimulations) {
  int priced = 0;
  for (const CorpusJob& one : corpus_jobs()) {
    SCOPED_TRACE(one.name);
    const Forecast whole = forecast(read_job(one.root, {}), no_files);
    // If the job lists or balances its stages, rows with other layouts have no price.
    const LayoutPrices prices = price_layouts({.text = one.root.dump()}, {.rows = 1, .values = {}, .schedules = {}});
    if (std::isnan(prices.time_s.front())) {
      ADD_FAILURE() << prices.reasons[prices.reason.front()];
      continue;
    }
    EXPECT_EQ(prices.time_s.front(), whole.result.iteration.time_s);
    EXPECT_EQ(prices.memory_gib.front(), whole.result.memory.shown_gib);
    EXPECT_EQ(prices.fits.front() != 0, whole.result.memory.fits);
    ++priced;
  }
  EXPECT_EQ(priced, static_cast<int>(corpus_jobs().size()));
}

// Regression: prices used the shards of the job's axes for every row.
TEST(OneAnswer, ShardsOfHsdpFollowEachRow) {
  Json root = {{"model", "gpt3-1.3b"},
               {"cluster", {{"name", "dgx-h100"}, {"nodes", 4}}},
               {"layout", {{"data_parallel", "hsdp"}, {"global_batch_size", 128}}}};
  const std::vector<std::int32_t> tensor_ranks = {1, 2, 4, 8};
  const LayoutPrices prices =
      price_layouts({.text = root.dump()}, {.rows = 4, .values = {{"tp", tensor_ranks}}, .schedules = {}});
  for (std::size_t row = 0; row < tensor_ranks.size(); ++row) {
    root["layout"]["tp"] = tensor_ranks[row];
    EXPECT_EQ(prices.time_s[row], forecast(read_job(root, {}), no_files).result.iteration.time_s) << tensor_ranks[row];
  }
}

TEST(OneAnswer, CommandsAndThePagesEngineAgree) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "job.json").string();
  const auto ask = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    return json_of(run_flopcast(words));
  };
  for (std::size_t index = 0; index < corpus_jobs().size(); index += 5) {
    const CorpusJob& one = corpus_jobs()[index];
    SCOPED_TRACE(one.name);
    write_text(file, one.root.dump());
    const Json simulated = ask({"simulate", file});
    EXPECT_EQ(ask({"memory", file}).at("memory"), simulated.at("memory"));
    const std::string question = Json({{"ask", "simulate"}, {"job", one.root}}).dump();
    EXPECT_EQ(Json::parse(flopcast::answer(std::string_view(question))), simulated);
    const std::string mbs = one.root.at("layout").at("micro_batch_size").dump();
    const Json swept = ask({"sweep", file, "--vary", "mbs=" + mbs}).at("rows").at(0).at("result");
    for (const char* part : {"iteration", "memory", "breakdown", "communication"}) {
      EXPECT_EQ(swept.at(part), simulated.at(part)) << part;
    }
    const Json compared = ask({"compare", file, file});
    for (const Json& term : compared.at("terms")) EXPECT_EQ(term.at("delta_s"), 0.0) << term;
  }
}

// Regression: the page planned runs that the command refuses.
TEST(OneAnswer, CommandAndPageRefuseARunThatNeverFinishes) {
  const Json root = {{"model", "llama3-8b"},
                     {"cluster", {{"name", "dgx-h100"}, {"nodes", 1}}},
                     {"layout", {{"global_batch_size", 32}}},
                     {"training", {{"tokens", "300B"}}},
                     {"failures", {{"mtbf", "1s"}}}};
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "job.json").string();
  write_text(file, root.dump());
  const CommandResult command = run_flopcast({"plan", file});
  EXPECT_EQ(command.exit_code, 3);
  const Json page = Json::parse(flopcast::answer(std::string_view(Json({{"ask", "plan"}, {"job", root}}).dump())));
  const std::string problem = page.at("error").at("problem");
  EXPECT_NE(problem.find("never finishes: a failure every"), std::string::npos) << problem;
  EXPECT_NE(command.standard_error.find(problem), std::string::npos) << command.standard_error;
}

// Regression: plan refused layouts that fit according to simulate, because it applied the allocator's slack to the
// workspace.
TEST(OneAnswer, PlanTakesWhatSimulateSaysFits) {
  std::vector<int> lengths = {7488};
  for (int length = 7616; length <= 8000; length += 64) lengths.push_back(length);
  for (const int length : lengths) {
    SCOPED_TRACE(length);
    std::vector<std::string> words = {"plan",
                                      "--model",
                                      "llama3-8b",
                                      "--cluster",
                                      "2xdgx-h100",
                                      "--stack",
                                      "nanotron",
                                      "--tp",
                                      "8",
                                      "--pp",
                                      "1",
                                      "--dp",
                                      "2",
                                      "--zero",
                                      "1",
                                      "--mbs",
                                      "8",
                                      "--gbs",
                                      "64",
                                      "--schedule",
                                      "naive",
                                      "--recompute",
                                      "none",
                                      "--sp",
                                      "--seq-length",
                                      std::to_string(length),
                                      "--format",
                                      "json"};
    std::vector<std::string> simulate = words;
    simulate.front() = "simulate";
    words.insert(words.end(), {"--headroom", "0"});
    const Json simulated = json_of(run_flopcast(simulate));
    ASSERT_TRUE(simulated.at("memory").at("fits"));
    const Json planned = json_of(run_flopcast(words));
    EXPECT_EQ(planned.at("best").at("result").at("memory"), simulated.at("memory"));
    EXPECT_EQ(planned.at("best").at("result").at("iteration"), simulated.at("iteration"));
  }
}

Json oversubscribed(int factor) {
  Json root = parse_json(read_text(project_folder() / "examples" / "oversubscribed-fabric" / "job.json"), "job.json");
  root["cluster"]["network"]["tiers"][0]["oversubscription"] = factor;
  root["layout"]["pp"] = 1;
  root["layout"].erase("vpp");
  root["layout"]["zero"] = 3;
  return root;
}

// Regression: prices ignored the network: 7.82 s.
TEST(OneAnswer, PricesShareTheFabric) {
  constexpr int kFactor = 64;
  const Json root = oversubscribed(kFactor);
  const LayoutPrices prices = price_layouts({.text = root.dump()}, {.rows = 1, .values = {}, .schedules = {}});
  EXPECT_NEAR(prices.time_s.front(), 45.59, 0.005);
  EXPECT_EQ(prices.time_s.front(), forecast(read_job(root, {}), no_files).result.iteration.time_s);
}

// Regression: a step on a fabric was compared with one without: "-37637952 us longer".
TEST(OneAnswer, NoHypothesisMakesAStepNegativelyLonger) {
  constexpr int kFactor = 64;
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "job.json").string();
  write_text(file, oversubscribed(kFactor).dump());
  for (const char* measured : {"60s", "30s", "47s"}) {
    const Json answer = json_of(run_flopcast({"compare", file, "--measured", measured, "--format", "json"}));
    for (const Json& one : answer.at("hypotheses")) {
      const std::string evidence = one.at("evidence");
      EXPECT_EQ(evidence.find(" -"), std::string::npos) << evidence;
      EXPECT_EQ(evidence.find("-3"), std::string::npos) << evidence;
    }
  }
}

}  // namespace
}  // namespace flopcast
