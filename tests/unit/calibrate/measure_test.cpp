// Tests the structure of the measuring code; its times depend on the machine.

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "realrun/measure/measure_cpu.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast {
namespace {

TEST(Measure, TheProductIsOne) {
  const float a[] = {1, 2, 3, 4, 5, 6};  // 2x3
  const float b[] = {1, 0, 0, 1, 1, 1};  // 3x2
  float c[] = {9, 9, 9, 9};
  realrun::multiply<float>({a, 2, 3, 3}, {b, 3, 2, 2}, {c, 2, 2, 2});
  EXPECT_EQ(c[0], 4.0F);
  EXPECT_EQ(c[1], 5.0F);
  EXPECT_EQ(c[2], 10.0F);
  EXPECT_EQ(c[3], 11.0F);
}

TEST(Measure, RepetitionsAreKept) {
  const SampleKey key{SampleKind::kGemm, SampleShape{8, 8, 8}, std::nullopt, 1, 1, "fp32", 1};
  const Sample sample = measure_compute(key, {7, 7, 0.0}, machine_clock(), host_work(key));
  EXPECT_EQ(sample.seconds.size(), 7u);
  for (const double second : sample.seconds) EXPECT_GT(second, 0.0);
  EXPECT_GT(*sample.processor_seconds, 0.0);
}

TEST(Measure, ThreadsExchangeMessages) {
  for (const int ranks : {2, 3, 4}) {
    std::atomic<int> called{0};
    run_thread_ranks(ranks, 4096, [&](MeasuredRank& rank) {
      ++called;
      EXPECT_EQ(rank.ranks(), ranks);
      for (const SampleKind kind : {sample_of(CollectiveKind::kAllReduce), sample_of(CollectiveKind::kAllGather),
                                    sample_of(CollectiveKind::kReduceScatter)}) {
        rank.collective(kind, 4096);
      }
      EXPECT_EQ(rank.largest(rank.rank()), ranks - 1);
      if (rank.rank() == 0) rank.send(1, 100);
      if (rank.rank() == 1) rank.receive(0, 100);
      rank.barrier();
    });
    EXPECT_EQ(called, ranks);
  }
  const Sample sample = measure_message({SampleKind::kPointToPoint, std::nullopt, 1024.0, 2, 1, "", 1},
                                        run_thread_ranks, machine_clock(), true);
  EXPECT_EQ(sample.seconds.size(), 50u);
}

TEST(Measure, EverySampleIsTakenTwice) {
  CpuSet set;
  set.ranks = {2, 4};
  for (const bool quick : {true, false}) {
    set.quick = quick;
    std::set<std::string> names;
    std::set<std::string> without_pass;
    for (const SampleKey& key : cpu_samples(set)) {
      EXPECT_TRUE(names.insert(key.text()).second) << key.text();
      without_pass.insert(key.text_without_pass());
    }
    EXPECT_EQ(names.size(), 2 * without_pass.size());
  }
}

TEST(Measure, TheHostIsDescribed) {
  const Measurement about = describe_host();
  EXPECT_FALSE(about.device.empty());
  EXPECT_EQ(about.date.size(), 10u);
  EXPECT_GT(*about.memory_bytes, 0.0);
  EXPECT_FALSE(about.libraries.empty());
}

}  // namespace
}  // namespace flopcast
