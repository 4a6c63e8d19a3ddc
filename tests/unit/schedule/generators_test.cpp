#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/unit/schedule/replay.hpp"

namespace flopcast {
namespace {

Program generate(std::string_view name, const ScheduleRequest& request) {
  return generate_schedule(*find_schedule(name), request);
}

ScheduleRequest request_of(int pipeline_ranks, int microbatches, int chunks = 1) {
  return ScheduleRequest{.pipeline_ranks = pipeline_ranks, .microbatches = microbatches, .chunks = chunks};
}

struct HandWritten {
  std::string_view schedule;
  ScheduleRequest request;
  std::string csv;

  friend void PrintTo(const HandWritten& table, std::ostream* out) {
    *out << table.schedule << " on " << table.request.pipeline_ranks << " ranks";
  }
};

class GeneratedOrder : public testing::TestWithParam<HandWritten> {};

TEST_P(GeneratedOrder, EqualsTheTableDerivedByHandFromItsRule) {
  EXPECT_EQ(write_csv(generate(GetParam().schedule, GetParam().request)), GetParam().csv);
}

ScheduleRequest with_variant(ScheduleRequest request, std::string variant) {
  request.variant = std::move(variant);
  return request;
}

ScheduleRequest with_group(ScheduleRequest request, int group_size) {
  request.group_size = group_size;
  return request;
}

ScheduleRequest with_memory_limit(ScheduleRequest request, int limit) {
  request.memory_limit = limit;
  return request;
}

ScheduleRequest with_slices(ScheduleRequest request, int slices) {
  request.slices = slices;
  return request;
}

INSTANTIATE_TEST_SUITE_P(
    Tables, GeneratedOrder,
    testing::Values(
        HandWritten{"naive", request_of(2, 2), "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"},
        HandWritten{"naive", request_of(1, 3), "0F0,0B0,0F1,0B1,0F2,0B2\n"},
        HandWritten{"gpipe", request_of(2, 3), "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n"},
        HandWritten{"gpipe", with_variant(request_of(2, 3), "lifo"),
                    "0F0,0F1,0F2,0B2,0B1,0B0\n1F0,1F1,1F2,1B2,1B1,1B0\n"},
        HandWritten{"1f1b", request_of(3, 5),
                    "0F0,0F1,0F2,0B0,0F3,0B1,0F4,0B2,0B3,0B4\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1F4,1B3,1B4\n"
                    "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3,2F4,2B4\n"},
        HandWritten{"1f1b", request_of(3, 1), "0F0,0B0\n1F0,1B0\n2F0,2B0\n"},
        HandWritten{"eager-1f1b", request_of(2, 5),
                    "0F0,0F1,0F2,0B0,0F3,0B1,0F4,0B2,0B3,0B4\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4\n"},
        HandWritten{"interleaved", request_of(2, 2, 2),
                    "0F0,0F1,2F0,2F1,2B0,2B1,0B0,0B1\n1F0,1F1,3F0,3B0,3F1,3B1,1B0,1B1\n"},
        // Three microbatches on two ranks: PyTorch's single round of three.
        HandWritten{"interleaved", request_of(2, 3, 2),
                    "0F0,0F1,0F2,2F0,2F1,2F2,2B0,2B1,2B2,0B0,0B1,0B2\n"
                    "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1B0,1B1,1B2\n"},
        HandWritten{"interleaved", request_of(1, 2, 2), "0F0,1F0,1B0,0F1,0B0,1F1,1B1,0B1\n"},
        HandWritten{"interleaved", request_of(2, 2, 1), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"},
        // Five microbatches in groups of three: the last group holds the remaining two, as many as ranks.
        HandWritten{"interleaved", with_group(request_of(2, 5, 2), 3),
                    "0F0,0F1,0F2,2F0,2F1,2F2,2B0,0F3,2B1,0F4,2B2,2F3,0B0,2F4,0B1,0B2,2B3,2B4,0B3,0B4\n"
                    "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1F3,1B0,1F4,1B1,3F3,1B2,3F4,3B3,3B4,1B3,1B4\n"},
        HandWritten{"bfs", request_of(2, 2, 2), "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n"},
        HandWritten{"bfs", with_variant(request_of(1, 3, 2), "fifo"),
                    "0F0,0F1,0F2,1F0,1F1,1F2,1B0,1B1,1B2,0B0,0B1,0B2\n"},
        HandWritten{
            "dapple", with_memory_limit(request_of(3, 4), 2),
            "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n"},
        HandWritten{"dapple", with_variant(request_of(2, 4), "pb"),
                    "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"},
        HandWritten{"terapipe", with_slices(request_of(2, 2), 2),
                    "0F0,0F1,0F2,0F3,0B3,0B2,0B1,0B0\n1F0,1F1,1F2,1F3,1B3,1B2,1B1,1B0\n"},
        HandWritten{
            "gis", with_group(request_of(2, 2, 2), 1),
            "0F0,2F0,0F1,2I0,2W0,2F1,0I0,0W0,2I1,2W1,0I1,0W1\n1F0,3F0,3I0,3W0,1F1,1I0,1W0,3F1,3I1,3W1,1I1,1W1\n"},
        HandWritten{"hanayo", request_of(2, 2, 2),
                    "0F0,0F1,3F0,3B0,3F1,3B1,0B0,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n"},
        HandWritten{"chimera", request_of(2, 4), "0F0,3F0,3B0,0B0,0F1,3F1,3B1,0B1\n2F0,1F0,1B0,2B0,2F1,1F1,1B1,2B1\n"},
        HandWritten{"chimera", with_variant(request_of(2, 4), "doubling"),
                    "0F0,0F1,3F0,3F1,3B0,0B0,3B1,0B1\n2F0,2F1,1F0,1F1,1B0,2B0,1B1,2B1\n"},
        HandWritten{
            "dualpipe", request_of(2, 4),
            "0F0,3F0,0F1,3B0,(3F1;0B0)OVERLAP_F_B,3B1,0I1,0W1\n2F0,1F0,2F1,1B0,(1F1;2B0)OVERLAP_F_B,1B1,2I1,2W1\n"},
        HandWritten{"dualpipev", request_of(1, 2, 2), "0F0,1F0,0F1,1B0,(1F1;0B0)OVERLAP_F_B,1B1,0I1,0W1\n"},
        HandWritten{"pipedream", request_of(2, 3), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"},
        HandWritten{"pipedream-2bw", request_of(2, 3), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"},
        HandWritten{"pipedream",
                    {.pipeline_ranks = 2, .microbatches = 7, .stage_replicas = {3, 1}},
                    "0F0,0F3,0B0,0F6,0B3,0B6\n0F1,0F4,0B1,0B4\n0F2,0F5,0B2,0B5\n"
                    "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3,1F4,1B4,1F5,1B5,1F6,1B6\n"},
        HandWritten{"pipemare", request_of(2, 4),
                    "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"}));

// Every request in a grid of shapes that a schedule accepts.
template <class Visitor>
void for_each_request(const ScheduleInfo& info, const Visitor& visit) {
  std::vector<std::string> variants = {""};
  for (const std::string_view variant : info.variants) variants.emplace_back(variant);
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int microbatches = 1; microbatches <= 13; ++microbatches) {
      for (int chunks = 1; chunks <= (info.uses_chunks ? 3 : 1); ++chunks) {
        for (const std::string& variant : variants) {
          for (int group = 0; group <= (info.reads_number(schedule_numbers().front()) ? microbatches : 0); ++group) {
            ScheduleRequest request = with_variant(request_of(ranks, microbatches, chunks), variant);
            if (group > 0) request.group_size = group;
            if (!refuse_request(info, request)) visit(request);
          }
        }
      }
    }
  }
}

std::string describe(const ScheduleInfo& info, const ScheduleRequest& request) {
  return std::string(info.name) + " p=" + std::to_string(request.pipeline_ranks) +
         " m=" + std::to_string(request.microbatches) + " v=" + std::to_string(request.chunks) +
         " N=" + std::to_string(request.group_size.value_or(0)) + " " + request.variant;
}

TEST(EveryGenerator, MakesValidProgramsOfTheRequestedShape) {
  for (const ScheduleInfo& info : schedule_catalogue()) {
    int programs = 0;
    for_each_request(info, [&](const ScheduleRequest& request) {
      ++programs;
      const Program program = info.generate(request);
      const auto fault = find_fault(program);
      EXPECT_FALSE(fault.has_value()) << describe(info, request) << ": " << render_fault(*fault);
      EXPECT_EQ(program.schedule, info.name);
      EXPECT_EQ(program.asynchronous, info.asynchronous);
      EXPECT_EQ(program.rank_count(), request.pipeline_ranks);
      EXPECT_EQ(program.stages_per_chain(), request.pipeline_ranks * request.chunks);
      EXPECT_EQ(program.microbatch_count(), request.microbatches);
    });
    EXPECT_GE(programs, 5) << info.name;
  }
}

TEST(EveryGenerator, MakespanEqualsTheClosedFormWhereThereIsOne) {
  const std::vector<UniformTimes> times = {{1, 1, 0}, {1, 2, 0}, {10, 20, 1},  {10, 20, 10}, {10, 20, 11},
                                           {3, 7, 3}, {7, 3, 2}, {10, 20, 15}, {1, 2, 9},    {0, 5, 1}};
  // The others have none, or one for certain requests only.
  const std::set<std::string_view> with_form = {"naive", "gpipe",     "1f1b",          "eager-1f1b", "interleaved",
                                                "bfs",   "pipedream", "pipedream-2bw", "dapple",     "terapipe"};
  for (const ScheduleInfo& info : schedule_catalogue()) {
    int compared = 0;
    for_each_request(info, [&](const ScheduleRequest& request) {
      const Program program = info.generate(request);
      if (program.chains.size() > 1)
        return;  // replay_makespan supports one chain only; bidirectional_properties_test covers these
      for (const UniformTimes& time : times) {
        const std::optional<Ticks> closed_form = info.exact_makespan(request, time);
        if (time.latency == 0 && with_form.count(info.name) > 0) {
          EXPECT_TRUE(closed_form.has_value()) << describe(info, request);
        }
        if (!closed_form) continue;
        ++compared;
        EXPECT_EQ(replay_makespan(program, time), closed_form) << describe(info, request) << " c=" << time.latency;
      }
    });
    if (with_form.count(info.name) > 0) {
      EXPECT_GE(compared, 400) << info.name;
    }
  }
}

// Empty if the catalogue only gives a bound.
std::optional<int> expected_peak(std::string_view schedule, const ScheduleRequest& request, int rank) {
  const int p = request.pipeline_ranks;
  const int m = request.microbatches;
  const int v = request.chunks;
  if (schedule == "naive") return 1;
  if (schedule == "gpipe" || schedule == "bfs") return m * v;
  if (schedule == "eager-1f1b" || schedule == "pipemare") return std::min(m, 2 * (p - 1 - rank) + 1);
  if (schedule == "interleaved" && v > 1) {
    const int group = request.group_size.value_or(m % p == 0 ? p : m / std::max(1, m / p));
    return std::min(m * v, 2 * (p - 1 - rank) + (v - 1) * group + 1);
  }
  if (schedule == "gis") {
    int group = request.group_size.value_or((p + 1) / 2);
    while (!request.group_size && m % group != 0) ++group;
    return std::min(m * v, (v - 1) * group + p - rank);
  }
  if (schedule == "terapipe") return m * 4;
  if (schedule == "dapple" && request.variant == "pb") return std::min(m, 2 * (p - rank) - 1);
  if (schedule == "dualpipe") return p + 1;
  if (schedule == "dualpipev") return 2 * p + 1;
  if (schedule == "chimera" && m >= p && request.variant != "doubling") {
    return p / 2 + 1 + std::min(rank, p - 1 - rank);
  }
  if (schedule == "chimera" || schedule == "hanayo") return std::nullopt;
  if (schedule == "zb-h1") return std::min(m, p);
  if (schedule == "zb-h2" && m >= 2 * p - 1) return 2 * p - 1;
  if (schedule == "zbv" && m >= 2 * p - 1 && request.variant != "greedy") return 2 * p;
  // Bounds only; zero_bubble_test compares peaks, zero_bubble_properties_test the bounds.
  for (const std::string_view bounded :
       {"zb-h2", "interleaved-zb", "zb-auto", "1f1b-v", "zbv", "v-half", "v-min", "v-auto"}) {
    if (schedule == bounded) return std::nullopt;
  }
  return std::min(m, p - rank);
}

TEST(EveryGenerator, PeakInFlightEqualsItsFormula) {
  for (const ScheduleInfo& info : schedule_catalogue()) {
    for_each_request(info, [&](const ScheduleRequest& request) {
      const std::vector<int> peaks = peak_in_flight(info.generate(request));
      for (int rank = 0; rank < request.pipeline_ranks; ++rank) {
        const std::optional<int> expected = expected_peak(info.name, request, rank);
        if (!expected) continue;
        EXPECT_EQ(peaks.at(static_cast<std::size_t>(rank)), expected) << describe(info, request) << " rank " << rank;
      }
    });
  }
}

// Idle fractions quoted by the papers: 1 - m v (F + B) / makespan.
TEST(ClosedForm, GivesThePublishedIdleShares) {
  const auto makespan = [](std::string_view name, const ScheduleRequest& request) {
    return find_schedule(name)->exact_makespan(request, {1, 2, 0}).value();
  };
  EXPECT_EQ(makespan("naive", request_of(2, 4)), 2 * 4 * 3) << "half of the time idle on two ranks";
  EXPECT_EQ(makespan("gpipe", request_of(2, 2)), 9) << "6 of 9 busy: one third idle";
  EXPECT_EQ(makespan("1f1b", request_of(4, 4)), 21) << "12 of 21 busy: three sevenths idle";
  EXPECT_EQ(makespan("interleaved", request_of(4, 4, 2)), 33) << "24 of 33 busy";
}

TEST(ClosedForm, OneFOneBPaysLatencyEveryMicrobatch) {
  const ScheduleInfo& schedule = *find_schedule("1f1b");
  const Ticks without = schedule.exact_makespan(request_of(2, 100), {10, 20, 0}).value();
  const Ticks with = schedule.exact_makespan(request_of(2, 100), {10, 20, 1}).value();
  EXPECT_EQ(with - without, 2 * (1 + 49)) << "the fill alone would cost 2";
}

TEST(ClosedForm, IsAbsentWhereNoneIsExact) {
  EXPECT_FALSE(find_schedule("eager-1f1b")->exact_makespan(request_of(4, 8), {10, 20, 16}));
  EXPECT_FALSE(find_schedule("interleaved")->exact_makespan(request_of(4, 8, 2), {10, 20, 11}));
  EXPECT_FALSE(find_schedule("interleaved")->exact_makespan(request_of(4, 10, 2), {10, 20, 1}));
  EXPECT_FALSE(find_schedule("bfs")->exact_makespan(request_of(4, 6, 2), {10, 20, 1}));
}

TEST(ClosedForm, OfZeroBubbleSchedulesNamesWhatIsLeftOfTheBubble) {
  const UniformTimes equal{10, 20, 0, 10};
  const auto makespan = [&](std::string_view name, const ScheduleRequest& request) {
    return find_schedule(name)->exact_makespan(request, equal);
  };
  EXPECT_EQ(makespan("1f1b", request_of(4, 8)), 8 * 30 + 3 * 30);
  EXPECT_EQ(makespan("zb-h1", request_of(4, 8)), 8 * 30 + 3 * 10) << "a third of it";
  EXPECT_EQ(makespan("zb-h2", request_of(4, 8)), 8 * 30 + 3 * 10) << "the wait for the first activation";
  EXPECT_EQ(makespan("interleaved-zb", request_of(4, 8, 2)), 16 * 30 + 3 * 10);
  EXPECT_EQ(makespan("zbv", request_of(4, 8, 2)), 16 * 30 + 3 * 10);
  EXPECT_EQ(makespan("zb-h1", request_of(4, 3)), std::nullopt);
  EXPECT_EQ(makespan("zb-h2", request_of(4, 6)), std::nullopt);
  EXPECT_EQ(makespan("zbv", request_of(4, 6, 2)), std::nullopt);
}

TEST(SearchedSchedules, DependOnTimesAndMemory) {
  const ScheduleInfo& schedule = *find_schedule("zb-auto");
  ScheduleRequest request = request_of(4, 8);
  const std::string without = write_csv(generate_schedule(schedule, request));
  request.memory_limit = 1;
  const Program one_by_one = generate_schedule(schedule, request);
  EXPECT_EQ(peak_in_flight(one_by_one), (std::vector<int>{1, 1, 1, 1}));
  request.memory_limit.reset();
  const Program timed = generate_schedule(schedule, request, [](const Program& stages) {
    StepTimes times;
    for (int stage = 0; stage < stages.stage_count(); ++stage)
      times.stages.push_back({10, 100, 10 + 30 * stage, 90, {}});
    times.boundaries.assign(static_cast<std::size_t>(stages.stage_count() - 1), BoundaryTimes{50, 5});
    return times;
  });
  EXPECT_NE(write_csv(timed), without);
  EXPECT_FALSE(find_fault(timed).has_value());
}

}  // namespace
}  // namespace flopcast
