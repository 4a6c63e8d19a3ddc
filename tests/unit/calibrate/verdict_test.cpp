// Runs that behave exactly as simulated: their calibrations and timelines must reproduce the forecast.
#include "calibrate/verdict/verdict.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

constexpr Ticks kMillisecond = 1'000'000'000;

Forecast job_of(const std::string& schedule) {
  return forecast(job_from(fmt::format(R"({{"model": {{"layers": 8, "hidden": 16, "heads": 4, "ffn": 32, "vocab": 24,
                                            "sequence_length": 8, "tied_embeddings": false}},
                              "cluster": {{"name": "one-gpu", "nodes": 2}},
                              "layout": {{"pp": 2, "global_batch_size": 8, "schedule": "{}"}},
                              "training": {{"precision": "fp32"}}}})",
                                       schedule)),
                  no_files);
}

// Uneven stages, and transfers that take noticeable time.
StepTimes true_times(const Program& program) {
  StepTimes times;
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    StageTimes stage_times;
    stage_times.forward = (4 + stage) * kMillisecond;
    stage_times.backward = (9 - stage) * kMillisecond;
    stage_times.input_gradient = 5 * kMillisecond;
    stage_times.weight_gradient = (4 - stage) * kMillisecond;
    times.stages.push_back(stage_times);
  }
  times.boundaries.resize(times.stages.size() - 1, {2 * kMillisecond, 3 * kMillisecond});
  if (!program.asynchronous) times.flush.resize(program.ranks.size(), {0, 0, 0, 6 * kMillisecond, 0});
  return times;
}

// Each rank alone: its actions in sequence, a tenth of a millisecond apart, and its optimizer.
Timeline calibration_of(const Program& program, const StepTimes& times, Ticks gap) {
  Timeline timeline;
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    timeline.ranks.emplace_back();
    Ticks now = 0;
    const auto add = [&](Span span, Ticks duration) {
      span.start = now;
      span.end = now += duration;
      timeline.ranks.back().push_back(span);
    };
    for (const Action& action : program.ranks[rank]) {
      const StageTimes& stage = times.stages[action.stage];
      switch (action.kind) {
        case ActionKind::kForward:
          add({.action = action, .kind = SpanKind::kForward}, stage.forward - gap);
          break;
        case ActionKind::kBackward:
          add({.action = action, .kind = SpanKind::kBackward}, stage.backward - gap);
          break;
        case ActionKind::kInputGradient:
          add({.action = action, .kind = SpanKind::kInputGradient}, stage.input_gradient - gap);
          break;
        case ActionKind::kWeightGradient:
          add({.action = action, .kind = SpanKind::kWeightGradient}, stage.weight_gradient - gap);
          break;
      }
      now += gap;
    }
    now -= gap;
    if (!times.flush.empty()) add({.action = {}, .kind = SpanKind::kOptimizer}, times.flush[rank].optimizer);
  }
  return timeline;
}

// The measurement that flopcast-run would write for `steps` steps that take exactly `times`.
MeasuredRun run_of(const Forecast& job, const StepTimes& times, int steps) {
  MeasuredRun run;
  run.backend = "threads";
  run.warmup = 1;
  Program program = job.step.program;
  if (program.asynchronous) {
    ScheduleRequest request = job.step.request;
    request.microbatches = job.step.job.layout.microbatches() * steps;
    program = generate_schedule(*job.step.schedule, request);
    steps = 1;
  }
  run.steps.assign(static_cast<std::size_t>(steps), simulate(program, times));
  run.losses.assign(static_cast<std::size_t>(steps), 2.0);
  run.microbatch_losses.assign(static_cast<std::size_t>(steps),
                               std::vector<double>(static_cast<std::size_t>(program.microbatch_count()), 2.0));
  run.cpu_s.assign(static_cast<std::size_t>(steps), 1e6);
  run.peak_activation_bytes = {1e6, 2e6};
  run.calibration = {calibration_of(job.step.program, times, kMillisecond / 10)};
  run.later_calibration = run.calibration;
  for (int stage = 0; stage + 1 < program.stage_count(); ++stage) {
    run.messages.push_back({stage + 1, true, {times.boundaries.front().forward + 7}, {7}});
    run.messages.push_back({stage, false, {times.boundaries.front().backward + 7}, {7}});
  }
  return run;
}

// The figure may be shown without the notes.
TEST(RunComparison, SaysWhereRanksShareAGpu) {
  const Forecast job = job_of("1f1b");
  MeasuredRun run = run_of(job, true_times(job.step.program), 3);
  const auto title_of = [&] { return compare_run(job, job.result, run, TimesFrom::kCalibration).measured.drawn.title; };
  EXPECT_EQ(title_of().find("share one GPU"), std::string::npos);
  run.backend = "virtual-gpus";
  run.conditions = "2 virtual devices on one GPU";
  EXPECT_NE(title_of().find(", ranks share one GPU"), std::string::npos) << title_of();
}

class Schedules : public testing::TestWithParam<const char*> {};

TEST_P(Schedules, ARunThatGoesAsCalibratedIsForecastExactly) {
  const Forecast job = job_of(GetParam());
  const StepTimes times = true_times(job.step.program);
  const RunComparison comparison = compare_run(job, job.result, run_of(job, times, 6), TimesFrom::kCalibration);
  const double measured = comparison.measured.result.iteration.time_s;
  EXPECT_GT(measured, 0.05);
  EXPECT_DOUBLE_EQ(comparison.forecast.result.iteration.time_s, measured);
  EXPECT_DOUBLE_EQ(comparison.forecast.result.bubble.fraction, comparison.measured.result.bubble.fraction);
  EXPECT_DOUBLE_EQ(comparison.forecast.result.breakdown.compute_s, comparison.measured.result.breakdown.compute_s);
  EXPECT_DOUBLE_EQ(comparison.forecast.result.breakdown.pp_comm_s, comparison.measured.result.breakdown.pp_comm_s);
  for (const double step : comparison.step_seconds) EXPECT_DOUBLE_EQ(step, measured);
  EXPECT_EQ(comparison.step_seconds.size(), job.step.program.asynchronous ? 4U : 5U);
  EXPECT_EQ(comparison.losses, std::vector<double>(6, 2.0));
  EXPECT_FALSE(comparison.disturbance.any);
  // The replay has no transfers.
  EXPECT_LT(comparison.replay.result.iteration.time_s, measured);
}

INSTANTIATE_TEST_SUITE_P(Synchronous, Schedules, testing::Values("gpipe", "1f1b", "interleaved:2"));
INSTANTIATE_TEST_SUITE_P(Asynchronous, Schedules, testing::Values("pipedream-2bw"));

// Ranks that compute run the halves of a pair one after the other; ranks that sleep run them together.
TEST(RunComparison, PairsAreForecastAsTheyRun) {
  const Forecast job = job_of("dualpipev");
  const StepTimes times = true_times(job.step.program);
  MeasuredRun run = run_of(job, times, 4);
  run.calibration = run.later_calibration = {calibration_of(job.step.program, times, 0)};
  const auto errors = [&] {
    const RunComparison comparison = compare_run(job, job.result, run, TimesFrom::kCalibration);
    return comparison.forecast.result.iteration.time_s - comparison.measured.result.iteration.time_s;
  };
  run.sleep = times.stages;
  EXPECT_NEAR(errors(), 0.0, 1e-12);
  Program one_by_one = job.step.program;
  for (std::vector<Action>& actions : one_by_one.ranks) {
    for (Action& action : actions) action.overlaps_next = false;
  }
  run.steps.assign(run.steps.size(), simulate(one_by_one, times));
  EXPECT_GT(errors(), 1e-3) << "a pair waits for both of its inputs";
  run.sleep.clear();
  EXPECT_NEAR(errors(), 0.0, 1e-12);
}

TEST(RunComparison, ASteadyStepLeavesFillingAndDrainingOut) {
  const Forecast job = job_of("pipedream-2bw");
  const StepTimes times = true_times(job.step.program);
  const RunComparison comparison = compare_run(job, job.result, run_of(job, times, 6), TimesFrom::kCalibration);
  // Two microbatches are in flight, and one takes 4 + 2 + 5 + 8 + 3 + 9 ms there and back.
  EXPECT_DOUBLE_EQ(comparison.measured.result.iteration.time_s, 8 * 31e-3 / 2);
  EXPECT_GT(comparison.measured.drawn.makespan(), comparison.measured.step.makespan());
}

TEST(RunComparison, UpdatesOfAnAsynchronousRunCountWithItsBackwards) {
  const Forecast job = job_of("pipedream-2bw");
  const Program& program = job.step.program;
  Timeline timeline;
  timeline.ranks.resize(2);
  // Two backward passes and one update of 6 ms on rank 0.
  timeline.ranks[0] = {{.start = 0, .end = 10, .action = {0, 0, ActionKind::kBackward}, .kind = SpanKind::kBackward},
                       {.start = 10, .end = 20, .action = {1, 0, ActionKind::kBackward}, .kind = SpanKind::kBackward},
                       {.start = 20, .end = 26, .action = {}, .kind = SpanKind::kOptimizer}};
  const StepTimes times = median_times({timeline}, program, true);
  EXPECT_EQ(times.stages[0].backward, 10 + 6 / 2);
  EXPECT_TRUE(times.flush.empty());
}

TEST(RunComparison, SlowStepsStayAndAreMarked) {
  const Forecast job = job_of("1f1b");
  const StepTimes times = true_times(job.step.program);
  MeasuredRun run = run_of(job, times, 6);
  StepTimes slow = times;
  for (StageTimes& stage : slow.stages) stage.backward *= 2;
  run.steps[3] = simulate(job.step.program, slow);
  const double busy = 8 * (4 + 9 + 5 + 8) * 1e-3;
  run.cpu_s.assign(6, busy);
  const RunComparison comparison = compare_run(job, job.result, run, TimesFrom::kCalibration);
  EXPECT_EQ(comparison.step_seconds.size(), 5U);
  EXPECT_EQ(comparison.disturbance.steps, 1);
  EXPECT_TRUE(comparison.disturbance.any);
  EXPECT_NEAR(comparison.disturbance.stretch[2], 43.0 / 26.0, 1e-9);
  EXPECT_NEAR(comparison.disturbance.stretch[1], 1.0, 1e-9);
  // The median is unaffected by the slow steps.
  EXPECT_DOUBLE_EQ(comparison.forecast.result.iteration.time_s, comparison.measured.result.iteration.time_s);
}

TEST(RunComparison, ABusyMachineIsADisturbance) {
  const Forecast job = job_of("1f1b");
  MeasuredRun run = run_of(job, true_times(job.step.program), 3);
  run.load = {10.0, 3.0, 2};
  const Disturbance found = compare_run(job, job.result, run, TimesFrom::kCalibration).disturbance;
  EXPECT_EQ(found.steps, 0);
  EXPECT_DOUBLE_EQ(found.others_share, 0.15);
  EXPECT_TRUE(found.any);
}

// The machine became slower between the calibrations: the forecast uses both and is marked.
TEST(RunComparison, CalibrationsThatDisagreeAreMarked) {
  const Forecast job = job_of("1f1b");
  const StepTimes times = true_times(job.step.program);
  MeasuredRun run = run_of(job, times, 3);
  const auto slower_by = [&](Ticks percent) {
    StepTimes slower = times;
    for (StageTimes& stage : slower.stages) {
      stage.forward += stage.forward * percent / 100;
      stage.backward += stage.backward * percent / 100;
    }
    return calibration_of(job.step.program, slower, kMillisecond / 10);
  };
  const auto compared = [&] { return compare_run(job, job.result, run, TimesFrom::kCalibration); };
  run.later_calibration = {slower_by(3)};
  EXPECT_TRUE(compared().calibrations->agrees());
  EXPECT_FALSE(compared().disturbance.any);
  run.later_calibration = {slower_by(20)};
  const RunComparison comparison = compared();
  ASSERT_TRUE(comparison.calibrations.has_value());
  EXPECT_DOUBLE_EQ(comparison.calibrations->before_s, comparison.measured.result.iteration.time_s);
  // Flush and transfers are not slower.
  EXPECT_GT(comparison.calibrations->difference(), 0.15);
  EXPECT_LT(comparison.calibrations->difference(), 0.20);
  EXPECT_FALSE(comparison.calibrations->agrees());
  EXPECT_TRUE(comparison.disturbance.any);
  EXPECT_EQ(comparison.disturbance.steps, 0);
  EXPECT_FALSE(compare_run(job, job.result, run, TimesFrom::kJob).calibrations.has_value());
}

TEST(RunComparison, SleepsAreForecastAsTold) {
  const Forecast job = job_of("1f1b");
  const StepTimes times = true_times(job.step.program);
  MeasuredRun run = run_of(job, times, 3);
  run.sleep = times.stages;
  StepTimes oversleeping = times;
  for (StageTimes& stage : oversleeping.stages) stage.forward += kMillisecond;
  run.calibration = {calibration_of(job.step.program, oversleeping, 0)};
  EXPECT_EQ(calibrated_times(run, run.calibration, job.step.program).stages[1].forward, times.stages[1].forward);
}

TEST(RunComparison, TheJobsOwnTimesArePossibleToo) {
  const Forecast job = job_of("1f1b");
  MeasuredRun run = run_of(job, true_times(job.step.program), 3);
  run.calibration.clear();
  const RunComparison comparison = compare_run(job, job.result, run, TimesFrom::kJob);
  EXPECT_DOUBLE_EQ(comparison.forecast.result.iteration.time_s, job.result.iteration.time_s);
}

}  // namespace
}  // namespace flopcast
