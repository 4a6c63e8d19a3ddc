// Schedules compared: what each figure counts, why a closed form is missing, and what fits into memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>

#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {
namespace {

ScheduleRequest request_of(int ranks, int microbatches, int chunks = 1) {
  ScheduleRequest request;
  request.pipeline_ranks = ranks;
  request.microbatches = microbatches;
  request.chunks = chunks;
  return request;
}

// A rank takes 12 forward and 24 backward per microbatch, over all its chunks of a chain.
TimesOfProgram equal_work(Ticks latency) {
  return [latency](const Program& program) {
    const int chunks =
        std::max(1, program.stage_count() / static_cast<int>(program.chains.size()) / program.rank_count());
    StepTimes times;
    times.stages.assign(static_cast<std::size_t>(program.stage_count()),
                        {12 / chunks, 24 / chunks, 12 / chunks, 12 / chunks, {}});
    times.boundaries.assign(static_cast<std::size_t>(program.stage_count()) - 1, {latency, latency});
    return times;
  };
}

ScheduleFigures figures(std::string_view name, const ScheduleRequest& request, Ticks latency = 0) {
  return figures_of(*find_schedule(name), request, equal_work(latency));
}

TEST(Compare, CountsActivationsInMicrobatches) {
  EXPECT_EQ(figures("gpipe", request_of(4, 8)).peak_activations, (std::vector<double>{8, 8, 8, 8}));
  EXPECT_EQ(figures("1f1b", request_of(4, 8)).peak_activations, (std::vector<double>{4, 3, 2, 1}));
  // v p + p - 1 chunks on rank 0: 11 / 2 microbatches (arXiv 2104.04473: 1 + (p - 1) / (p v) of 1f1b's p).
  EXPECT_EQ(figures("interleaved", request_of(4, 8, 2)).largest_peak(), 5.5);
  EXPECT_EQ(figures("bfs", request_of(4, 8, 2)).largest_peak(), 8.0);
}

TEST(Compare, CountsMessagesAndBubbles) {
  const ScheduleFigures plain = figures("1f1b", request_of(4, 8));
  EXPECT_EQ(plain.messages, 2U * 8 * 3);
  EXPECT_EQ(figures("interleaved", request_of(4, 8, 2)).messages, 2U * 8 * 7);
  EXPECT_EQ(plain.makespan, 11 * 36);
  EXPECT_DOUBLE_EQ(plain.bubble_fraction, 3.0 / 11.0);
  EXPECT_DOUBLE_EQ(plain.bubble_ratio, 3.0 / 8.0);
}

TEST(Compare, AsynchronousSchedulesShowTheirUpdates) {
  const ScheduleFigures stashed = figures("pipedream", request_of(4, 8), 3);
  EXPECT_EQ(stashed.weight_copies, (std::vector<int>{4, 3, 2, 1}));
  EXPECT_EQ(stashed.staleness, (std::vector<int>{3, 2, 1, 0}));
  EXPECT_DOUBLE_EQ(stashed.steady_period.value(), 36 + 2 * 3 * 3.0 / 4);
  EXPECT_DOUBLE_EQ(stashed.steady_idle.value(), 1 - 36 / (36 + 2 * 3 * 3.0 / 4));
  EXPECT_EQ(figures("pipedream-2bw", request_of(4, 8)).weight_copies, (std::vector<int>{2, 2, 2, 2}));
  EXPECT_EQ(figures("pipemare", request_of(4, 8)).weight_copies, (std::vector<int>{1, 1, 1, 1}));
  EXPECT_FALSE(figures("1f1b", request_of(4, 8)).steady_period);
}

TEST(Compare, SaysWhyThereIsNoClosedForm) {
  const ScheduleFigures agrees = figures("gpipe", request_of(4, 6), 5);
  EXPECT_EQ(agrees.closed_form, agrees.makespan);
  EXPECT_EQ(agrees.closed_form_note, "");
  EXPECT_FALSE(figures("eager-1f1b", request_of(4, 8), 19).closed_form);
  EXPECT_NE(figures("eager-1f1b", request_of(4, 8), 19).closed_form_note.find("latency is exposed"), std::string::npos);
  EXPECT_EQ(figures("eager-1f1b", request_of(4, 8), 18).closed_form_note, "");
  EXPECT_EQ(figures("interleaved", request_of(4, 10, 2), 1).closed_form_note.find("latency is exposed"), 0U);
  const auto uneven = [](const Program& program) {
    StepTimes times = equal_work(0)(program);
    ++times.stages.front().forward;
    return times;
  };
  EXPECT_EQ(figures_of(*find_schedule("gpipe"), request_of(4, 8), uneven).closed_form_note,
            "the times are not uniform");
  ScheduleInfo wrong = *find_schedule("gpipe");
  wrong.closed_form_makespan = [](const ScheduleRequest&, const UniformTimes&) { return std::optional<Ticks>(360); };
  EXPECT_EQ(figures_of(wrong, request_of(4, 8), equal_work(0)).closed_form_note,
            "the simulated value differs by +10 %");
  wrong.closed_form_makespan = [](const ScheduleRequest& request, const UniformTimes&) {
    return request.microbatches % 4 == 0 ? std::optional<Ticks>(1) : std::nullopt;
  };
  EXPECT_EQ(figures_of(wrong, request_of(4, 9), equal_work(0)).closed_form_note, "holds if m is a multiple of p");
  wrong.closed_form_makespan = nullptr;
  EXPECT_EQ(figures_of(wrong, request_of(4, 9), equal_work(0)).closed_form_note, "none is known");
}

// 1F1B's advantage over GPipe is not a smaller bubble for the same microbatches, but more of them in the same memory.
TEST(Compare, FitsMicrobatchesIntoMemory) {
  const auto fit = [](std::string_view name, const ScheduleRequest& request, int activations) {
    return fit_into_memory(*find_schedule(name), request, activations, equal_work(0));
  };
  const MemoryFit gpipe = fit("gpipe", request_of(4, 32), 6);
  EXPECT_EQ(gpipe.microbatches, 6);
  EXPECT_FALSE(gpipe.unlimited);
  EXPECT_DOUBLE_EQ(gpipe.bubble_fraction, 3.0 / 9.0);
  const MemoryFit flushed = fit("1f1b", request_of(4, 32), 6);
  EXPECT_EQ(flushed.microbatches, 32);
  EXPECT_TRUE(flushed.unlimited);
  EXPECT_DOUBLE_EQ(flushed.bubble_fraction, 3.0 / 35.0);
  EXPECT_EQ(fit("1f1b", request_of(4, 32), 3).microbatches, 3);
  EXPECT_FALSE(fit("gpipe", request_of(4, 6), 6).unlimited);
  // 5 microbatches make one round; 6 do as well, and hold 6 at once; more make rounds of about p and hold 5.5.
  EXPECT_EQ(fit("interleaved", request_of(4, 32, 2), 5).microbatches, 5);
  EXPECT_TRUE(fit("interleaved", request_of(4, 32, 2), 6).unlimited);
  // It never flushes: all of the run's microbatches or none.
  EXPECT_EQ(fit("pipedream", request_of(4, 32), 4).microbatches, 32);
  EXPECT_EQ(fit("pipedream", request_of(4, 32), 3).microbatches, 0);
}

// For every schedule of the catalogue: every figure exists, and no rank holds more than the request's microbatches.
TEST(Compare, EveryScheduleCanBeCompared) {
  int compared = 0;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    ScheduleRequest request = request_of(4, 16, info.default_chunks);
    if (refuse_request(info, request)) continue;
    const ScheduleFigures row = figures_of(info, request, equal_work(1));
    ++compared;
    EXPECT_GT(row.makespan, 16 * 36 - 1) << info.name;
    EXPECT_LE(row.span, row.makespan) << info.name;
    EXPECT_GE(row.bubble_fraction, 0.0) << info.name;
    EXPECT_LE(row.largest_peak(), 16.0) << info.name;
    EXPECT_EQ(row.weight_copies.size(), 4U) << info.name;
    EXPECT_EQ(info.asynchronous, row.steady_period.has_value()) << info.name;
    EXPECT_EQ(row.closed_form_note.empty(), row.closed_form == row.makespan) << info.name << row.closed_form_note;
    const MemoryFit fit = fit_into_memory(info, request, 16, equal_work(1));
    EXPECT_EQ(fit.microbatches, 16) << info.name;
  }
  EXPECT_GE(compared, 9);
}

}  // namespace
}  // namespace flopcast
