// Runs of months compared with closed forms and with figures counted by hand.
#include "sim/run/run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flopcast {
namespace {

constexpr Nanoseconds kSecond = 1'000'000'000;
constexpr double kRestart = 300.0;
constexpr double kCheckpoint = 10.0;

Nanoseconds ns(double seconds) {
  return static_cast<Nanoseconds>(std::llround(seconds / kNanosecond));
}

RunCause cause_of(double mtbf_s) {
  RunCause cause;
  cause.name = "failure";
  cause.per_second = 1.0 / mtbf_s;
  return cause;
}

// Steps of one second, with a checkpoint every `interval` steps.
RunCase case_of(std::int64_t steps, std::int64_t interval, double mtbf_s) {
  RunCase run;
  run.steps = steps;
  run.step = kSecond;
  if (mtbf_s > 0.0) run.causes = {cause_of(mtbf_s)};
  run.storage = {interval * kSecond, ns(kCheckpoint), 0, ns(kRestart)};
  return run;
}

struct Mean {
  double value = 0.0;
  double error = 0.0;  // of the mean, one standard deviation
};

template <class Figure>
Mean mean_of(const RunCase& run, int runs, Figure figure) {
  double sum = 0.0;
  double squares = 0.0;
  for (int number = 0; number < runs; ++number) {
    const double value = figure(simulate_run(run, 1, number));
    sum += value;
    squares += value * value;
  }
  const double mean = sum / runs;
  return {mean, std::sqrt(std::max(0.0, squares / runs - mean * mean) / runs)};
}

double seconds(Nanoseconds time) {
  return static_cast<double>(time) * kNanosecond;
}

// Daly's eq. 19: time for a segment of training, checkpoint included, if failures can occur at any time.
double expected(double segment_s, double mtbf_s) {
  return mtbf_s * std::exp(kRestart / mtbf_s) * std::expm1(segment_s / mtbf_s);
}

TEST(MonthsRun, MeetsDalyFrom8To131072Gpus) {
  for (int gpus = 8; gpus <= 131'072; gpus *= 4) {
    const double mtbf = kGpuMtbf.value() / gpus;
    const auto interval = static_cast<std::int64_t>(std::round(best_checkpoint_interval(kCheckpoint, mtbf)));
    const std::int64_t segments = 54 * 86'400 / interval;
    const RunCase run = case_of(segments * interval, interval, mtbf);
    const Mean clock = mean_of(run, 300, [](const RunOutcome& one) { return seconds(one.clock); });
    // The end of the run needs no checkpoint.
    const auto length = static_cast<double>(interval);
    const double closed =
        static_cast<double>(segments - 1) * expected(length + kCheckpoint, mtbf) + expected(length, mtbf);
    EXPECT_NEAR(clock.value, closed, 4.0 * clock.error + 1e-9 * closed) << gpus;
    EXPECT_LT(clock.error, 0.002 * closed) << gpus;
    const double fraction = daly_fraction(length, kCheckpoint, kRestart, mtbf);
    EXPECT_NEAR(static_cast<double>(segments * interval) / clock.value, fraction, 0.003 * fraction) << gpus;
  }
}

TEST(MonthsRun, YoungsIntervalIsBestWhereCheckpointsAreCheap) {
  const double mtbf = 3.09 * 3'600.0;  // Llama 3's; a checkpoint costs less than a thousandth
  const double young = std::sqrt(2.0 * kCheckpoint * mtbf);
  EXPECT_NEAR(best_checkpoint_interval(kCheckpoint, mtbf) / young, 1.0, 0.02);
  EXPECT_NEAR(best_checkpoint_interval(mtbf / 100.0, mtbf) / std::sqrt(2.0 * mtbf / 100.0 * mtbf), 1.0, 0.05);
  const auto lost_with = [mtbf](double interval) {
    const auto steps = static_cast<std::int64_t>(std::round(interval));
    const RunCase run = case_of(54 * 86'400 / steps * steps, steps, mtbf);
    return mean_of(run, 200,
                   [&run](const RunOutcome& one) { return seconds(one.clock) / static_cast<double>(run.steps); })
        .value;
  };
  const double best = lost_with(young);
  EXPECT_LT(best, lost_with(2.0 * young));
  EXPECT_LT(best, lost_with(0.5 * young));
}

TEST(MonthsRun, WithoutFailuresIsTheStepsAlone) {
  RunCase run = case_of(1'000'000, 0, 0.0);
  const RunOutcome outcome = simulate_run(run, 1, 0);
  EXPECT_EQ(outcome.clock, run.steps * run.step);
  EXPECT_EQ(outcome.interruptions, 0);
  run.storage.interval = 1'000 * kSecond;
  // 999 checkpoints, because the end needs none.
  EXPECT_EQ(simulate_run(run, 1, 0).clock, run.steps * run.step + 999 * ns(kCheckpoint));
}

double poisson_tail(double mean, int above) {
  double term = std::exp(-mean);
  double below = term;
  for (int n = 1; n <= above; ++n) {
    term *= mean / n;
    below += term;
  }
  return 1.0 - below;
}

TEST(MonthsRun, WaitsForSparesAsLongAsThePoissonTail) {
  constexpr double kRepair = 24.0 * 3'600.0;
  constexpr double kMtbf = 4.0 * 3'600.0;
  for (const int spares : {2, 5, 8}) {
    RunCase run = case_of(2'000'000, 600, kMtbf);
    run.storage.blocking = run.storage.restore = 0;
    run.causes[0].nodes = 1;
    run.causes[0].repair = ns(kRepair);
    run.spares = spares;
    // Long runs, because the number of nodes in repair at the start differs from the steady state.
    const Mean waited = mean_of(
        run, 400, [](const RunOutcome& one) { return seconds(one.lost_in(RunPhase::kWait)) / seconds(one.clock); });
    const double tail = poisson_tail(kRepair / kMtbf, spares);
    EXPECT_NEAR(waited.value, tail, 4.0 * waited.error + 0.03 * tail) << spares;
  }
}

TEST(MonthsRun, CountsSparesByThePoissonTail) {
  for (const double mean : {0.0, 0.3, 7.8, 200.0}) {
    const int enough = spares_for(mean, 0.95);
    if (mean < 100.0) {
      EXPECT_LE(poisson_tail(mean, enough), 0.05) << mean;
      EXPECT_TRUE(enough == 0 || poisson_tail(mean, enough - 1) > 0.05) << mean;
    } else {
      EXPECT_NEAR(enough, mean + 1.645 * std::sqrt(mean), 2.0);
    }
  }
}

TEST(MonthsRun, AnotherSpareIsWorthTheWaitsThatItSaves) {
  // Cost of s spares and the waits, in idle nodes: s + nodes · P(N > s) is minimal there.
  for (const double mean : {0.002, 0.3, 7.8, 40.0}) {
    for (const int nodes : {8, 128, 2'048}) {
      const auto cost = [&](int spares) { return spares + nodes * poisson_tail(mean, spares); };
      int best = 0;
      for (int spares = 1; spares < 100; ++spares) {
        if (cost(spares) < cost(best) - 1e-9) best = spares;
      }
      EXPECT_EQ(spares_worth(mean, nodes), best) << mean << " " << nodes;
    }
  }
}

TEST(MonthsRun, ARackThatFailsNeedsAsManySpares) {
  constexpr double kRepair = 3'600.0;
  RunCase run = case_of(3'000'000, 600, 10.0 * 86'400.0);
  run.causes[0].nodes = 9;
  run.causes[0].repair = ns(kRepair);
  run.spares = 9;
  const auto waited = [](const RunCase& of) {
    double waits = 0.0;
    double failures = 0.0;
    for (int number = 0; number < 200; ++number) {
      const RunOutcome one = simulate_run(of, 1, number);
      waits += seconds(one.lost_in(RunPhase::kWait));
      failures += static_cast<double>(one.interruptions);
    }
    return waits / failures;
  };
  EXPECT_LT(waited(run), 0.02 * kRepair);
  run.spares = 8;
  EXPECT_NEAR(waited(run), kRepair, 0.02 * kRepair);
}

TEST(MonthsRun, OneOfManyNodesIsSlow) {
  RunCase run = case_of(1'000, 0, 0.0);
  run.nodes = 100;
  run.slow_node_share = 0.005;
  run.slow_node_pace = 1.0 / 1.1;
  const double chance = 1.0 - std::pow(1.0 - run.slow_node_share, run.nodes);
  const Mean slow =
      mean_of(run, 4'000, [&run](const RunOutcome& one) { return one.clock > run.steps * run.step ? 1.0 : 0.0; });
  EXPECT_NEAR(slow.value, chance, 4.0 * slow.error);
  const Mean clock = mean_of(run, 4'000, [](const RunOutcome& one) { return seconds(one.clock); });
  EXPECT_NEAR(clock.value, 1'000.0 * (1.0 + 0.1 * chance), 4.0 * clock.error);
  // A slow node found after a hundredth of the run slows down only that part, and costs a restart.
  run.slow_node_evict = 10 * kSecond;
  run.storage.restore = 0;
  run.storage.blocking = 0;
  const Mean evicted = mean_of(run, 4'000, [](const RunOutcome& one) { return seconds(one.clock); });
  EXPECT_LT(evicted.value, 1'002.0);
}

TEST(MonthsRun, SlowPhasesTakeTheirShareOfTheTime) {
  RunCase run = case_of(1'000'000, 0, 0.0);
  run.slow_per_second = 1.0 / 100'000.0;
  run.slow_mean = 5'000 * kSecond;
  run.slow_pace = 0.5;
  // Phases overlap: the fraction of time without any is e^(-rate · mean).
  const double slow = 1.0 - std::exp(-0.05);
  const Mean clock = mean_of(run, 400, [](const RunOutcome& one) { return seconds(one.clock); });
  EXPECT_NEAR(clock.value, 1'000'000.0 / (1.0 - 0.5 * slow), 4.0 * clock.error);
}

TEST(MonthsRun, CorruptionGoesBackBehindItself) {
  constexpr double kFound = 7'200.0;
  RunCase run = case_of(1'000'000, 600, 200'000.0);
  run.causes[0].silent = true;
  run.causes[0].detection = ns(kFound);
  run.storage.blocking = 0;
  double redone = 0.0;
  double found = 0.0;
  for (int number = 0; number < 300; ++number) {
    const RunOutcome one = simulate_run(run, 1, number);
    redone += seconds(one.lost_in(RunPhase::kRedo));
    found += static_cast<double>(one.interruptions);
    EXPECT_EQ(one.lost_in(RunPhase::kDetect), 0);
  }
  // Training continued until detection, starting half an interval earlier. Two that overlap share the repeated work.
  EXPECT_NEAR(redone / found, kFound + 300.0, 0.03 * kFound);
}

TEST(MonthsRun, ACheckpointCountsOnceItIsWritten) {
  RunCase run = case_of(400'000, 1'000, 40'000.0);
  run.storage.blocking = 0;
  run.storage.restore = 0;
  const auto redone = [](const RunCase& of) {
    double sum = 0.0;
    double failures = 0.0;
    for (int number = 0; number < 300; ++number) {
      const RunOutcome one = simulate_run(of, 1, number);
      sum += seconds(one.lost_in(RunPhase::kRedo));
      failures += static_cast<double>(one.interruptions);
    }
    return sum / failures;
  };
  EXPECT_NEAR(redone(run), 500.0, 15.0);
  run.storage.writing = 600 * kSecond;
  // A failure in the first 600 s after a checkpoint goes back to the previous one: 0.6 · 1,000 s more.
  EXPECT_NEAR(redone(run), 500.0 + 600.0, 30.0);
}

TEST(MonthsRun, ACopyInMemorySavesWhatStorageDoesNot) {
  RunCase run = case_of(400'000, 10'000, 40'000.0);
  run.storage.blocking = 0;
  run.memory = {100 * kSecond, 0, 0, kSecond};
  const auto redone = [](const RunOutcome& one) { return seconds(one.lost_in(RunPhase::kRedo)); };
  const double near = mean_of(run, 200, redone).value;
  run.causes[0].needs_storage = true;
  const double far = mean_of(run, 200, redone).value;
  EXPECT_NEAR(far / near, 100.0, 15.0);
}

TEST(MonthsRun, AnElasticRunLosesTheReplicaAlone) {
  RunCase run = case_of(1'000'000, 0, 20'000.0);
  run.causes[0].replicas = 1;
  run.causes[0].detection = 30 * kSecond;
  run.replicas = 10;
  run.least_replicas = 5;
  run.regroup = 20 * kSecond;
  run.rejoin = 600 * kSecond;
  for (int replicas = 0; replicas <= run.replicas; ++replicas) run.pace.push_back(replicas / 10.0);
  double failures = 0.0;
  double fewer = 0.0;
  double stood = 0.0;
  for (int number = 0; number < 100; ++number) {
    const RunOutcome one = simulate_run(run, 1, number);
    failures += static_cast<double>(one.interruptions);
    fewer += seconds(one.lost_in(RunPhase::kFewer));
    stood += seconds(one.lost_in(RunPhase::kDetect) + one.lost_in(RunPhase::kRestart));
    // At most the step it was in.
    EXPECT_LE(one.lost_in(RunPhase::kRedo), (one.interruptions + 1) * run.step);
  }
  // A tenth of the pace is lost during recovery, except while regrouping; 20 s twice for all, and 30 s for detection.
  EXPECT_NEAR(fewer / failures, 0.1 * (600.0 - 20.0), 3.0);
  EXPECT_NEAR(stood / failures, 70.0, 1.5);
  // The same run without elasticity has no checkpoint to go back to.
  run.least_replicas = 0;
  EXPECT_GT(mean_of(run, 20, [](const RunOutcome& one) { return seconds(one.lost_in(RunPhase::kRedo)); }).value,
            100'000.0);
}

TEST(MonthsRun, PlannedStopsLoseNoTraining) {
  RunCase run = case_of(1'000'000, 0, 0.0);
  run.maintenance_every = 100'000 * kSecond;
  run.maintenance_lasts = 3'600 * kSecond;
  const RunOutcome outcome = simulate_run(run, 1, 0);
  EXPECT_EQ(outcome.lost_in(RunPhase::kRedo), 0);
  EXPECT_EQ(outcome.lost_in(RunPhase::kMaintenance) % run.maintenance_lasts, 0);
  EXPECT_EQ(outcome.lost_in(RunPhase::kMaintenance) / run.maintenance_lasts, 10);
  EXPECT_EQ(outcome.lost_in(RunPhase::kRestart), 10 * run.storage.restore);
}

// Everything combined.
RunCase crowded_case() {
  RunCase run = case_of(500'000, 600, 30'000.0);
  run.causes[0].nodes = 1;
  run.causes[0].repair = 86'400 * kSecond;
  run.causes[0].detection = 60 * kSecond;
  run.causes[0].replicas = 2;
  run.causes[0].events = 50.0;
  RunCause silent = cause_of(150'000.0);
  silent.silent = true;
  silent.detection = 5'000 * kSecond;
  run.causes.push_back(silent);
  RunCause site = cause_of(300'000.0);
  site.site = site.needs_storage = true;
  site.repair = 7'200 * kSecond;
  site.replicas = 8;
  run.causes.push_back(site);
  run.spares = 2;
  run.memory = {100 * kSecond, kSecond, 0, 60 * kSecond};
  run.storage.writing = 300 * kSecond;
  run.nodes = 16;
  run.slow_node_share = 0.05;
  run.slow_node_pace = 0.9;
  run.slow_node_evict = 20'000 * kSecond;
  run.slow_per_second = 1e-5;
  run.slow_mean = 4'000 * kSecond;
  run.slow_pace = 0.7;
  run.slow_evict = 3'000 * kSecond;
  run.maintenance_every = 200'000 * kSecond;
  run.maintenance_lasts = 3'600 * kSecond;
  return run;
}

TEST(MonthsRun, LossesAddUpToTheClock) {
  for (const int least : {0, 4}) {
    for (const bool keeps : {true, false}) {
      RunCase run = crowded_case();
      run.replicas = 8;
      run.least_replicas = least;
      run.keeps_state = keeps;
      run.regroup = 30 * kSecond;
      run.rejoin = 400 * kSecond;
      if (least > 0) run.pace = {0, 0, 0, 0, 0.5, 0, 0.75, 0.88, 1.0};
      for (int number = 0; number < 40; ++number) {
        std::vector<RunSpan> life;
        const RunOutcome one = simulate_run(run, 7, number, &life);
        ASSERT_TRUE(one.finished);
        Nanoseconds lost = 0;
        for (std::size_t phase = 0; phase < kRunPhases; ++phase) lost += one.lost_in(static_cast<RunPhase>(phase));
        EXPECT_EQ(lost, one.clock - run.steps * run.step);
        for (const auto& account : one.lost) {
          for (const Nanoseconds time : account) EXPECT_GE(time, 0);
        }
        // Drawing it again changes nothing, and another number gives another run.
        const RunOutcome again = simulate_run(run, 7, number);
        EXPECT_EQ(again.clock, one.clock);
        EXPECT_EQ(again.lost, one.lost);
        EXPECT_NE(simulate_run(run, 8, number).clock, one.clock);
        for (const RunSpan& span : life) {
          EXPECT_LE(0, span.from);
          EXPECT_LT(span.from, span.to);
          EXPECT_LE(span.to, one.clock);
        }
      }
    }
  }
}

// The same figures on every machine.
TEST(MonthsRun, ASeedFixesTheRun) {
  const RunOutcome outcome = simulate_run(crowded_case(), 1, 0);
  EXPECT_EQ(outcome.clock, 811'756'540'331'270);
  EXPECT_EQ(outcome.interruptions, 23);
}

TEST(MonthsRun, GivesUpOnARunThatNeverEnds) {
  const RunCase run = case_of(10'000, 1'000, 200.0);
  EXPECT_FALSE(simulate_run(run, 1, 0).finished);
}

}  // namespace
}  // namespace flopcast
