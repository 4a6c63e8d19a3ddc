// Daly's model compared with its limits and with a simulated run.
#include "planner/plan/plan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace flopcast {
namespace {

// Work in segments with failures drawn from an exponential distribution: returns the share of time spent training.
double simulated_fraction(const Interruptions& interruptions, double interval_s, int gpus) {
  const double mtbf = interruptions.gpu_mtbf_s / gpus;
  std::mt19937_64 random(5);
  const auto next_failure = [&] {
    const double uniform = (static_cast<double>(random() >> 11) + 1.0) * 0x1p-53;
    return -mtbf * std::log(uniform);
  };
  double clock = 0.0;
  constexpr int kSegments = 100'000;
  for (int segment = 0; segment < kSegments; ++segment) {
    double need = interval_s + interruptions.checkpoint_s;
    for (double failure = next_failure(); failure < need; failure = next_failure()) {
      clock += failure;
      need = interruptions.restart_s + interval_s + interruptions.checkpoint_s;
    }
    clock += need;
  }
  return kSegments * interval_s / clock;
}

TEST(Goodput, LlamaThreeOn16384GpusIsAboveNinetyPercent) {
  // Llama 3 reports more than 90 % effective training time with 7.8 unexpected interruptions a day (2407.21783, 3.3.4).
  const Goodput goodput = goodput_of(Interruptions(), 16'384);
  EXPECT_NEAR(goodput.failures_per_day, 419.0 / 54.0, 1e-9);
  EXPECT_GT(goodput.fraction, 0.90);
  EXPECT_LT(goodput.fraction, 0.95);
}

TEST(Goodput, IsWhatASimulatedRunLoses) {
  for (const int gpus : {1'000, 16'000, 100'000}) {
    const Interruptions interruptions;
    const Goodput goodput = goodput_of(interruptions, gpus);
    EXPECT_NEAR(goodput.fraction, simulated_fraction(interruptions, goodput.interval_s, gpus), 0.005) << gpus;
  }
}

TEST(Goodput, TheIntervalIsTheBestOne) {
  Interruptions interruptions;
  interruptions.checkpoint_s = 300.0;
  const Goodput best = goodput_of(interruptions, 50'000);
  for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
    EXPECT_LT(simulated_fraction(interruptions, best.interval_s * factor, 50'000), best.fraction + 0.004) << factor;
  }
}

TEST(Goodput, NothingIsLostWhereNothingFails) {
  Interruptions never;
  never.gpu_mtbf_s = 1e15;
  EXPECT_NEAR(goodput_of(never, 8).fraction, 1.0, 1e-5);
  Interruptions free;
  free.checkpoint_s = 0.0;
  free.restart_s = 0.0;
  EXPECT_DOUBLE_EQ(goodput_of(free, 1'000).fraction, 1.0);
}

}  // namespace
}  // namespace flopcast
