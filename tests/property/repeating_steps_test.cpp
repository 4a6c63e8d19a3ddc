// Steps of many microbatches that are simulated only until they repeat equal fully simulated steps to the picosecond.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "sim/forecast/evaluate.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

using Json = nlohmann::json;

Json job_of(const std::string& schedule, int pp, int vpp, int microbatches) {
  Json root = Json::parse(R"({"model": {"layers": 1, "hidden": 512, "heads": 8, "ffn": 2048, "vocab": 1024,
    "sequence_length": 128}, "cluster": {"name": "dgx-a100-80g", "nodes": 1}, "layout": {}})");
  root["cluster"]["nodes"] = std::max(1, pp / 8);
  root["model"]["layers"] = pp * vpp * 2;
  root["layout"] = {{"pp", pp},
                    {"dp", std::max(1, 8 / pp)},
                    {"schedule", schedule},
                    {"vpp", vpp},
                    {"global_batch_size", microbatches * std::max(1, 8 / pp)}};
  return root;
}

// Integer times of any size, the same for both steps.
void give_times(std::mt19937_64& random, bool even, StepTimes& times) {
  const auto any = [&](Ticks least, Ticks most) { return std::uniform_int_distribution<Ticks>(least, most)(random); };
  StageTimes same;
  for (StageTimes& stage : times.stages) {
    stage.forward = any(50, 150);
    stage.input_gradient = any(50, 150);
    stage.weight_gradient = any(0, 150);
    stage.backward = stage.input_gradient + stage.weight_gradient;
    stage.pair_saved = any(0, 20);
    if (&stage == &times.stages.front()) same = stage;
    if (even) stage = same;
  }
  const bool slow = random() % 2 == 0;
  for (BoundaryTimes& boundary : times.boundaries) boundary = {any(0, slow ? 90 : 5), any(0, slow ? 90 : 5)};
  times.blocking_sends = random() % 4 == 0;
  for (FlushTimes& flush : times.flush) {
    flush.gradient_reduction = any(0, 300);
    flush.optimizer = any(0, 50);
    flush.gradient_norm = random() % 2 == 0 ? 7 : 0;
  }
}

struct Counts {
  int steps = 0;
  int cut_short = 0;
  double played = 0.0;  // fraction of the microbatches in the shorter program
};

TEST(RepeatingSteps, TakeWhatAllMicrobatchesTake) {
  std::mt19937_64 random(7);
  std::map<std::string, Counts> by_schedule;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    for (int round = 0; round < 60; ++round) {
      const int pp = std::vector<int>{1, 2, 3, 4, 8}[random() % 5];
      const int vpp = info.uses_chunks ? std::vector<int>{1, 2, 3, 4}[random() % 4] : info.default_chunks;
      const int microbatches = static_cast<int>(std::vector<int>{16, 48, 64, 96, 128}[random() % 5] + random() % 9);
      const Json root = job_of(std::string(info.name), pp, vpp, microbatches);
      std::optional<PreparedStep> whole;
      std::optional<PreparedStep> few;
      try {
        const Job job = read_job(root, {});
        whole = prepare(job, no_files);
        few = prepare_periodic(job, no_files);
      } catch (const ConfigError&) {
        continue;  // a layout that the schedule refuses
      }
      SCOPED_TRACE(fmt::format("{} pp {} vpp {} m {} round {}", info.name, pp, vpp, microbatches, round));
      give_times(random, round % 3 == 0, whole->times);
      few->times = whole->times;
      const Evaluation all = evaluate(*whole, Detail::kTime);
      const Evaluation cut = evaluate(*few, Detail::kTime);
      ASSERT_EQ(cut.time_s, all.time_s);
      ASSERT_EQ(cut.memory.shown_gib, all.memory.shown_gib);
      for (std::size_t rank = 0; rank < all.memory.per_pipeline_rank.size(); ++rank) {
        ASSERT_EQ(cut.memory.per_pipeline_rank[rank].peak_in_flight, all.memory.per_pipeline_rank[rank].peak_in_flight);
      }
      Counts& counts = by_schedule[std::string(info.name)];
      ++counts.steps;
      counts.cut_short += few->repetition ? 1 : 0;
      counts.played += few->repetition ? 1.0 - static_cast<double>(few->repetition->left_out) / microbatches : 1.0;
    }
  }
  for (const auto& [name, counts] : by_schedule) {
    std::cout << fmt::format(
        "{:>15}: {} of {} steps have a shortened program, with {:.0f} % of the microbatches on average\n", name,
        counts.cut_short, counts.steps, 100.0 * counts.played / counts.steps);
  }
  for (const char* name : {"1f1b", "interleaved", "zb-h1", "zb-h2", "naive"}) {
    EXPECT_GT(by_schedule[name].cut_short, by_schedule[name].steps / 3) << name;
  }
}

Evaluation evaluated(const Json& root, bool as_it_repeats) {
  const Job job = read_job(root, {});
  return evaluate(as_it_repeats ? prepare_periodic(job, no_files) : prepare(job, no_files), Detail::kTime);
}

// On uneven stages, a step repeats after several microbatches, 14 and 13 here; if no period is found, it is simulated
// entirely.
TEST(RepeatingSteps, PeriodsOfManyMicrobatches) {
  const Json llama = Json::parse(R"({"model": "llama3.1-405b", "cluster": {"name": "dgx-h100", "nodes": 128},
    "layout": {"tp": 8, "pp": 16, "dp": 8, "sequence_parallel": true, "schedule": "1f1b",
               "global_batch_size": 0}})");
  const Json deepseek = Json::parse(R"({"model": "deepseek-v3", "cluster": {"name": "dgx-h100", "nodes": 256},
    "layout": {"pp": 16, "ep": 16, "dp": 128, "schedule": "1f1b", "global_batch_size": 0}})");
  for (auto [root, period] : {std::pair<Json, std::size_t>{llama, 14}, {deepseek, 13}}) {
    const int dp = root["layout"]["dp"];
    std::vector<double> growth;
    double before = 0.0;
    for (int microbatches = 120; microbatches < 160; ++microbatches) {
      root["layout"]["global_batch_size"] = microbatches * dp;
      const double cut = evaluated(root, true).time_s;
      ASSERT_EQ(cut, evaluated(root, false).time_s) << root["model"] << " " << microbatches;
      if (before > 0.0) growth.push_back(cut - before);
      before = cut;
    }
    // One microbatch in `period` adds less time than the others.
    const double least = *std::min_element(growth.begin(), growth.end());
    std::vector<std::size_t> shorter;
    for (std::size_t index = 0; index < growth.size(); ++index) {
      if (growth[index] < 1.002 * least) shorter.push_back(index);
    }
    ASSERT_GE(shorter.size(), 2U);
    EXPECT_EQ(shorter[1] - shorter[0], period) << root["model"];
  }
}

TEST(RepeatingSteps, UnevenStagesWithoutAPeriodArePlayedWhole) {
  std::mt19937_64 random(3);
  for (const char* schedule : {"1f1b-v", "1f1b", "zb-h1", "eager-1f1b"}) {
    for (int round = 0; round < 20; ++round) {
      const int microbatches = 64 + static_cast<int>(random() % 12);
      const int vpp = std::string(schedule) == "1f1b-v" ? 2 : 1;
      const Job job = read_job(job_of(schedule, 8, vpp, microbatches), {});
      PreparedStep whole = prepare(job, no_files);
      PreparedStep few = prepare_periodic(job, no_files);
      give_times(random, false, whole.times);
      few.times = whole.times;
      ASSERT_EQ(evaluate(few, Detail::kTime).time_s, evaluate(whole, Detail::kTime).time_s) << schedule << round;
    }
  }
}

}  // namespace
}  // namespace flopcast
