// Checks that the fuzz targets reach their readers, and runs each briefly; fuzz.cpp runs them for long.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/job/read_job.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/fuzz/job_invariants.hpp"
#include "tests/fuzz/mutation.hpp"
#include "tests/fuzz/targets.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/run_flopcast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

TEST(FuzzTargets, SeedsAreAnswered) {
  const TemporaryFolder folder;
  for (const FuzzTarget& target : fuzz_targets()) {
    int answered = 0;
    for (const std::string& seed : target.seeds) {
      EXPECT_EQ(fault_of(target, seed, folder.path()), std::nullopt) << target.name << "\n" << seed;
      EXPECT_EQ(fault_of_reader(target, seed), std::nullopt) << target.name << "\n" << seed;
      std::vector<std::string> words = target.commands.front();
      std::replace(words.begin(), words.end(), std::string("@"), (folder.path() / target.file).string());
      answered += static_cast<int>(run_flopcast(words).exit_code == 0);
    }
    EXPECT_GT(answered, 0) << target.name << ": no seed is accepted by the reader";
  }
}

TEST(FuzzTargets, MutatedSeedsAreAnsweredOrRefused) {
  constexpr int kEach = 30;
  const TemporaryFolder folder;
  std::mt19937_64 random(20260101);
  for (const FuzzTarget& target : fuzz_targets()) {
    for (int time = 0; time < kEach; ++time) {
      const std::string input = mutated(target.seeds, target.is_json, random);
      EXPECT_EQ(fault_of(target, input, folder.path()), std::nullopt) << target.name << "\n" << input;
    }
  }
}

TEST(FuzzTargets, MutatedSeedsAreReadOrRefused) {
  constexpr int kEach = 500;
  std::mt19937_64 random(20260102);
  for (const FuzzTarget& target : fuzz_targets()) {
    int refused = 0;
    for (int time = 0; time < kEach; ++time) {
      const std::string input = mutated(target.seeds, target.is_json, random);
      EXPECT_EQ(fault_of_reader(target, input), std::nullopt) << target.name << "\n" << input;
      try {
        target.read(input);
      } catch (const ConfigError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 0) << target.name;
  }
}

TEST(FuzzTargets, AFaultIsOne) {
  const TemporaryFolder folder;
  const FuzzTarget misused = {"misused", "job.json", true, {{"simulate", "@", "--no-such-flag\x1b[31m"}}, {"{}"}};
  EXPECT_EQ(fault_of(misused, "{}", folder.path()), std::nullopt);
  // An answer that is not JSON.
  const FuzzTarget silent = {"silent", "x", false, {{"schedule", "list", "-o", "/dev/null", "--format", "json"}}, {""}};
  EXPECT_NE(fault_of(silent, "", folder.path()), std::nullopt);
  const auto throws = [](const std::string& input) { throw std::out_of_range(input); };
  EXPECT_NE(fault_of_reader({"broken", "x", false, {}, {}, throws}, ""), std::nullopt);
}

// Regression: a ring of keys and values was hidden under twice the forward attention, which may exceed its backward
// pass.
TEST(JobInvariants, FasterMemoryShowsNoMoreOfARingThanItSaves) {
  const nlohmann::json root = nlohmann::json::parse(
      R"({"cluster": {"name": "ethernet-100g", "nodes": 1}, "layout": {"cp": 8, "data_parallel": "fsdp",
          "global_batch_size": 64, "micro_batch_size": 4}, "model": {"name": "gpt2-1.5b"},
          "training": {"precision": "bf16", "sequence_length": 4096, "stack": "megatron-deepspeed"}})");
  Job job = read_job(root, {});
  double before = forecast(job, no_files).result.iteration.time_s;
  for (int time = 0; time < 4; ++time) {
    job.cluster.device.memory_bandwidth = job.cluster.device.memory_bandwidth * 2.0;
    const double then = forecast(job, no_files).result.iteration.time_s;
    EXPECT_LE(then, before * 1.001);
    before = then;
  }
}

// Regression: stages that differ by little converge over more microbatches than are simulated, and the waiting of ranks
// came out as negative or as more than the step.
TEST(JobInvariants, AnAsynchronousStepOfNearlyEvenStagesAddsUp) {
  for (const int vocabulary : {128, 512, 1000, 4000}) {
    const nlohmann::json job = {
        {"model", {{"name", "gpt3-125m"}, {"layers", 16}, {"vocab", vocabulary}}},
        {"cluster", {{"name", "dgx-a100-80g"}}},
        {"layout",
         {{"tp", 2}, {"pp", 2}, {"global_batch_size", 64}, {"micro_batch_size", 2}, {"schedule", "pipemare"}}}};
    std::mt19937_64 random(1);
    EXPECT_EQ(broken_invariants(job, random), std::vector<std::string>()) << vocabulary;
  }
}

TEST(JobInvariants, HoldForRandomJobs) {
  constexpr int kJobs = 300;
  std::mt19937_64 random(7);
  std::size_t tried = 0;
  for (int time = 0; time < kJobs; ++time) {
    const nlohmann::json job = random_job(random, tried);
    EXPECT_EQ(broken_invariants(job, random), std::vector<std::string>()) << job.dump();
  }
  EXPECT_GE(tried, static_cast<std::size_t>(kJobs));
}

}  // namespace
}  // namespace flopcast
