// Makespans that follow from papers and algebra without simulation, over grids of sizes. Equal stages unless stated
// otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {
namespace {

StepTimes equal_stages(int stages, Ticks forward, Ticks backward, Ticks latency) {
  StepTimes times;
  times.stages.assign(static_cast<std::size_t>(stages), StageTimes{forward, backward, 0, 0, {}});
  times.boundaries.assign(static_cast<std::size_t>(stages - 1), BoundaryTimes{latency, latency});
  return times;
}

Program schedule(const char* name, int ranks, int microbatches, int chunks = 1) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  request.chunks = chunks;
  const ScheduleInfo* info = find_schedule(name);
  EXPECT_NE(info, nullptr) << name;
  return generate_schedule(*info, request);
}

Ticks makespan(const Program& program, const StepTimes& times) {
  return run(lower(program, times).graph).makespan;
}

constexpr Ticks kForward = 10;
constexpr Ticks kBackward = 21;

TEST(ClosedForms, NaiveRunsOneMicrobatchThroughAllRanksAtATime) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 5, 16}) {
      for (const Ticks c : {0, 3, 50}) {
        EXPECT_EQ(makespan(schedule("naive", p, m), equal_stages(p, kForward, kBackward, c)),
                  m * (p * (kForward + kBackward) + 2 * (p - 1) * c))
            << p << " ranks, " << m << " microbatches, latency " << c;
      }
    }
  }
}

TEST(ClosedForms, GpipePaysThePipelineOncePerDirection) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const int m : {1, 2, 5, 16, 33}) {
      for (const Ticks c : {0, 3, 50}) {
        const Ticks expected = (m + p - 1) * (kForward + kBackward) + 2 * (p - 1) * c;
        EXPECT_EQ(makespan(schedule("gpipe", p, m), equal_stages(p, kForward, kBackward, c)), expected)
            << p << " ranks, " << m << " microbatches, latency " << c;
      }
    }
  }
}

// Unequal stages: sum F + sum B + (m - 1) (max F + max B).
TEST(ClosedForms, GpipeWithUnequalStagesIsBoundByTheSlowest) {
  for (const int m : {1, 4, 9}) {
    StepTimes times;
    Ticks forward_sum = 0;
    Ticks backward_sum = 0;
    for (const Ticks forward : {7, 19, 3, 11}) {
      times.stages.push_back(StageTimes{forward, 40 - forward, 0, 0, {}});
      forward_sum += forward;
      backward_sum += 40 - forward;
    }
    times.boundaries.assign(3, BoundaryTimes{});
    EXPECT_EQ(makespan(schedule("gpipe", 4, m), times), forward_sum + backward_sum + (m - 1) * (19 + 37));
  }
}

// 1F1B: (m + p - 1)(F + B) + 2c ((p - 1) + ceil(max(0, m - 2)(p - 1) / p)): latency is exposed throughout.
TEST(ClosedForms, OneForwardOneBackwardPaysLatencyInEveryMicrobatch) {
  int checked = 0;
  for (int p = 1; p <= 9; ++p) {
    for (const int m : {1, 2, 3, 4, 7, 8, 12, 16, 31, 64}) {
      for (const Ticks c : {0, 1, 5, 31, 1000}) {
        const Ticks exposed = (p - 1) + (std::max(0, m - 2) * (p - 1) + p - 1) / p;
        EXPECT_EQ(makespan(schedule("1f1b", p, m), equal_stages(p, kForward, kBackward, c)),
                  (m + p - 1) * (kForward + kBackward) + 2 * c * exposed)
            << p << " ranks, " << m << " microbatches, latency " << c;
        ++checked;
      }
    }
  }
  std::printf("1f1b with latency: %d sizes agree with the closed form\n", checked);
}

// Interleaved: (mv + p - 1)(F + B) + 2c (vp - 1) for m a multiple of p and c up to min(F, B).
TEST(ClosedForms, InterleavedPaysLatencyOncePerStage) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int v : {2, 3, 4}) {
      for (const int rounds : {1, 2, 4}) {
        for (const Ticks c : {0, 1, 10}) {
          const int m = p * rounds;
          EXPECT_EQ(makespan(schedule("interleaved", p, m, v), equal_stages(p * v, kForward, kBackward, c)),
                    (m * v + p - 1) * (kForward + kBackward) + 2 * c * (v * p - 1))
              << p << " ranks, " << v << " chunks, " << m << " microbatches, latency " << c;
        }
      }
    }
  }
}

// Looped breadth first: as interleaved at c = 0; with latency 2c (vp - 1) for m = p and 2c (p - 1) from m = 2p on.
TEST(ClosedForms, BreadthFirstHidesLatencyOnceThereAreTwoRoundsOfMicrobatches) {
  for (const int p : {2, 3, 4, 8}) {
    for (const int v : {2, 3}) {
      for (const int rounds : {1, 2, 3}) {
        for (const Ticks c : {0, 1, 10}) {
          const int m = p * rounds;
          EXPECT_EQ(makespan(schedule("bfs", p, m, v), equal_stages(p * v, kForward, kBackward, c)),
                    (m * v + p - 1) * (kForward + kBackward) + 2 * c * (rounds == 1 ? v * p - 1 : p - 1))
              << p << " ranks, " << v << " chunks, " << m << " microbatches, latency " << c;
        }
      }
    }
  }
}

TEST(ClosedForms, TextbookIdleShares) {
  const TimelineMetrics naive = measure(simulate(schedule("naive", 2, 1), equal_stages(2, 10, 20, 0)));
  EXPECT_DOUBLE_EQ(naive.idle_fraction(), 1.0 / 2.0);
  const TimelineMetrics gpipe = measure(simulate(schedule("gpipe", 2, 2), equal_stages(2, 10, 20, 0)));
  EXPECT_DOUBLE_EQ(gpipe.idle_fraction(), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(gpipe.bubble_ratio(), 1.0 / 2.0);
}

}  // namespace
}  // namespace flopcast
