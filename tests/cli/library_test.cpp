// The C++ library from the view of its callers; also tested with sanitizers, with which the Python module cannot be
// loaded.
#include "api/flopcast.hpp"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/run_flopcast.hpp"

namespace flopcast {
namespace {

const JobInput& small_job() {
  static const JobInput job = {
      R"({"model": "gpt3-1.3b", "cluster": "dgx-h100", "layout": {"global_batch_size": 16}})", {}, {{"tp", "2"}}};
  return job;
}

TEST(Library, AnswersAsTheProgramDoes) {
  CommandOptions options;
  options.standard_input = small_job().text;
  const CommandResult program = run_flopcast({"simulate", "-", "--tp", "2", "--format", "json"}, options);
  EXPECT_EQ(simulate(small_job()).json() + "\n", program.standard_output);
  EXPECT_EQ(answer_command({"simulate", "-", "--tp", "2", "--format", "json"}, small_job().text).text,
            program.standard_output);
}

// A host time of a step adds to it as it is; one of a microbatch only as far as the device cannot hide it.
TEST(Library, HostTimesAddToTheStep) {
  const auto time = [](std::vector<std::pair<std::string, std::string>> keys) {
    JobInput job = small_job();
    job.keys.insert(job.keys.end(), keys.begin(), keys.end());
    return simulate(job).time_s();
  };
  const double plain = time({});
  EXPECT_NEAR(time({{"training.stack.host_time_per_step", "10ms"}}) - plain, 0.010, 1e-9);
  const double slow = time({{"cluster.host_speed", "0.5"}});
  const double slow_step = time({{"cluster.host_speed", "0.5"}, {"training.stack.host_time_per_step", "10ms"}});
  EXPECT_NEAR(slow_step - slow, 0.020, 1e-9);
  // Hidden behind the device.
  EXPECT_NEAR(time({{"training.stack.host_time_per_microbatch", "1us"}}), plain, 1e-4 * plain);
  // 16 samples on 4 replicas: the host needs 1 s for each of 4 microbatches.
  const double bound = time({{"training.stack.host_time_per_microbatch", "1s"}});
  EXPECT_GT(bound, 4.0);
  EXPECT_LT(bound, 4.0 + plain);
}

TEST(Library, KeysGoByPathFlagOrLastWord) {
  JobInput job = small_job();
  const double expected = simulate(job).time_s();
  for (const char* name : {"layout.tp", "tp", "tensor_model_parallel_size"}) {
    job.keys = {{name, "2"}};
    EXPECT_EQ(simulate(job).time_s(), expected) << name;
  }
  EXPECT_TRUE(is_job_key("micro_batch_size"));
  EXPECT_FALSE(is_job_key("objective"));
  EXPECT_EQ(flags_of({{"sp", "true"}, {"max_gpus", "8"}, {"min_gpus", "true"}}),
            (std::vector<std::string>{"--layout.sequence_parallel=true", "--max-gpus", "8", "--min-gpus"}));
  job.keys = {{"tpp", "2"}};
  EXPECT_THROW(simulate(job), ConfigError);
}

TEST(Library, ComplaintsKeepTheirParts) {
  JobInput job = small_job();
  job.keys = {{"tp", "7"}};
  try {
    simulate(job);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "layout.tp");
    EXPECT_EQ(error.diagnostic().where, "tp");
    EXPECT_NE(error.diagnostic().help, "");
  }
  std::string printed;
  EXPECT_THROW(answer_command({"schedule", "check", "-", "--format", "json"}, "0B0,0F0\n", &printed), NegativeAnswer);
  EXPECT_NE(printed.find("\"valid\": false"), std::string::npos);
}

TEST(Library, LawsReplaceTimes) {
  OwnLaws laws;
  laws.network_time = [](const std::string&, double, int, int, double ours) { return 2.0 * ours; };
  EXPECT_GT(simulate(small_job(), laws).time_s(), simulate(small_job()).time_s());
  laws.network_time = [](const std::string&, double, int, int, double) { return -1.0; };
  EXPECT_THROW(simulate(small_job(), laws), ConfigError);
  laws = OwnLaws();
  laws.schedule = [](int ranks, int microbatches, int) {
    std::vector<std::vector<std::string>> rows(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      for (const char* kind : {"F", "B"}) {
        for (int number = 0; number < microbatches; ++number)
          rows[static_cast<std::size_t>(rank)].push_back(std::to_string(rank) + kind + std::to_string(number));
      }
    }
    return rows;
  };
  JobInput job = small_job();
  job.keys = {{"pp", "4"}};
  const double own = simulate(job, laws).time_s();
  job.keys.emplace_back("schedule", "gpipe");
  EXPECT_EQ(own, simulate(job).time_s());
}

TEST(Library, ThreadsAskAtOnceAndShareAPriceList) {
  const std::string expected = simulate(small_job()).json();
  std::vector<std::thread> threads;
  std::vector<std::string> answers(4);
  for (std::string& answer : answers) threads.emplace_back([&answer] { answer = simulate(small_job()).json(); });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& answer : answers) EXPECT_EQ(answer, expected);

  JobInput job = small_job();
  job.keys.clear();
  const LayoutColumns layouts = enumerate_layouts_of(job);
  ASSERT_GT(layouts.rows, 256u);
  const LayoutPrices alone = price_layouts(job, layouts, PriceKind::kSimulated, 1);
  const LayoutPrices shared = price_layouts(job, layouts, PriceKind::kSimulated, 3);
  const LayoutPrices bounds = price_layouts(job, layouts, PriceKind::kBound, 2);
  for (std::size_t row = 0; row < layouts.rows; ++row) {
    EXPECT_EQ(alone.time_s[row], shared.time_s[row]);
    EXPECT_EQ(alone.reason[row], 0);
    EXPECT_LE(bounds.time_s[row], alone.time_s[row] * (1.0 + 1e-9));
  }
}

}  // namespace
}  // namespace flopcast
