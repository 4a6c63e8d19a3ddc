// Random asynchronous pipelines, some with replicated stages: the steady period predicted by the constraint graph, the
// round-robin order and the resulting weight versions.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/property/generators.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

ScheduleRequest random_request(const ScheduleInfo& info) {
  ScheduleRequest request;
  request.pipeline_ranks = between(1, 7);
  request.microbatches = 64;
  if (info.uses_stage_replicas && *rc::gen::arbitrary<bool>()) {
    for (int stage = 0; stage < request.pipeline_ranks; ++stage) request.stage_replicas.push_back(between(1, 4));
  }
  return request;
}

const ScheduleInfo& random_asynchronous_schedule() {
  std::vector<const ScheduleInfo*> schedules;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    if (info.asynchronous) schedules.push_back(&info);
  }
  return *schedules[between<std::size_t>(0, schedules.size())];
}

StepTimes random_times(int stages, Ticks longest) {
  StepTimes times;
  for (int stage = 0; stage < stages; ++stage) {
    times.stages.push_back({between<Ticks>(1, longest), between<Ticks>(1, longest), 0, 0, {}});
    if (stage > 0) times.boundaries.push_back({between<Ticks>(0, longest), between<Ticks>(0, longest)});
  }
  times.blocking_sends = *rc::gen::arbitrary<bool>();
  return times;
}

Ticks makespan_of(const Program& program, const StepTimes& times) {
  return simulate(program, times).makespan();
}

// After the transient, the starts repeat exactly, shifted by the cycle's time every `microbatches`, or by a multiple of
// it if several critical cycles of different lengths interlock.
RC_GTEST_PROP(AsynchronousPipeline, SettlesToItsMaximumCycleRatio, ()) {
  const ScheduleInfo& info = random_asynchronous_schedule();
  const ScheduleRequest request = random_request(info);
  const StepTimes times = random_times(request.pipeline_ranks, *rc::gen::element<Ticks>(4, 30));
  const auto generate = [&](int microbatches) {
    ScheduleRequest asked = request;
    asked.microbatches = microbatches;
    return info.generate(asked);
  };
  const auto cycle = critical_cycle(generate, times);
  RC_ASSERT(cycle.has_value());
  RC_ASSERT(cycle->microbatches > 0);
  Ticks around = 0;
  for (const CriticalCycle::Step& step : cycle->steps) {
    around += step.action.kind == ActionKind::kForward ? times.stages[step.action.stage].forward
                                                       : times.stages[step.action.stage].backward;
  }
  RC_ASSERT(around <= cycle->time);
  const SteadyState steady = steady_state(generate, times);
  // Uneven stages reach the steady state late: until then, the error is less than the transient.
  if (steady.periodic) {
    RC_ASSERT(steady.window_ticks * cycle->microbatches == cycle->time * steady.window_microbatches);
  }
  RC_ASSERT(std::abs(steady.period_ticks() - cycle->period_ticks()) <= 0.05 * cycle->period_ticks());
  RC_CLASSIFY(steady.periodic, "settled");
  RC_CLASSIFY(cycle->only_rank().has_value(), "one rank is never idle");
  RC_CLASSIFY(!request.stage_replicas.empty(), "replicas");
  // Steady or not, in a long run only the start and the end deviate from the period.
  constexpr int kLong = 6000;
  const double makespan = static_cast<double>(makespan_of(generate(kLong), times));
  Ticks once_through = 0;
  for (const StageTimes& stage : times.stages) once_through += stage.forward + stage.backward;
  for (const BoundaryTimes& boundary : times.boundaries) once_through += boundary.forward + boundary.backward;
  const double start_and_end = 4.0 * microbatches_per_turn(generate(1)) * static_cast<double>(once_through);
  RC_ASSERT(std::abs(makespan - kLong * cycle->period_ticks()) <= start_and_end);
}

RC_GTEST_PROP(ReplicatedStages, AreValidAndReadBackFromCsv, ()) {
  const ScheduleInfo& info = *find_schedule("pipedream");
  ScheduleRequest request;
  request.pipeline_ranks = between(1, 6);
  for (int stage = 0; stage < request.pipeline_ranks; ++stage) request.stage_replicas.push_back(between(1, 5));
  request.microbatches = between(5, 40);
  RC_ASSERT(!refuse_request(info, request));
  const Program program = info.generate(request);
  const int ranks = std::accumulate(request.stage_replicas.begin(), request.stage_replicas.end(), 0);
  RC_ASSERT(program.rank_count() == ranks);
  RC_ASSERT(!find_fault(program));
  // NOAM: number of microbatches that each replica of the first stage admits before it needs a gradient.
  const int first = request.stage_replicas.front();
  const int admitted = (ranks + first - 1) / first;
  const int own = (request.microbatches + first - 1) / first;
  RC_ASSERT(peak_in_flight(program).front() == std::min(admitted, own));
  for (int rank = 0; rank < ranks; ++rank) {
    for (const Action& action : program.ranks[static_cast<std::size_t>(rank)]) {
      const auto stage = static_cast<std::size_t>(action.stage);
      RC_ASSERT(rank ==
                program.rank_of_stage[stage] + static_cast<int>(action.microbatch) % request.stage_replicas[stage]);
    }
  }
  const Program again = parse_csv(write_csv(program), "again.csv", {});
  RC_ASSERT(again.ranks == program.ranks);
  RC_ASSERT(again.rank_of_stage == program.rank_of_stage);
  for (int stage = 0; stage < program.stage_count(); ++stage) {
    RC_ASSERT(again.replicas(stage) == program.replicas(stage));
  }
  const StepTimes times = random_times(request.pipeline_ranks, 20);
  RC_ASSERT(makespan_of(again, times) == makespan_of(program, times));
}

// For any graph whose cycles advance, no simple cycle has a larger ratio than the one found.
RC_GTEST_PROP(MaximumRatioCycle, BeatsEveryOther, ()) {
  const auto nodes = between<std::size_t>(1, 7);
  std::vector<TimedArc> arcs;
  std::vector<int> place;  // arcs advance by the difference of places, plus 1 if they do not go up
  for (std::size_t node = 0; node < nodes; ++node) place.push_back(between(0, 4));
  for (auto count = between<std::size_t>(0, 20); count > 0; --count) {
    const auto from = between<std::size_t>(0, nodes);
    const auto to = between<std::size_t>(0, nodes);
    arcs.push_back({from, to, between<Ticks>(0, 50), place[to] - place[from] + (to > from ? 0 : between(1, 3))});
  }
  double best = -1.0;
  const std::function<void(std::size_t, std::size_t, Ticks, int, std::set<std::size_t>)> walk =
      [&](std::size_t start, std::size_t node, Ticks time, int advance, std::set<std::size_t> seen) {
        for (const TimedArc& arc : arcs) {
          if (arc.from != node) continue;
          if (arc.to == start) {
            best = std::max(best, static_cast<double>(time + arc.time) / (advance + arc.advance));
          } else if (arc.to > start && seen.count(arc.to) == 0) {
            std::set<std::size_t> further = seen;
            further.insert(arc.to);
            walk(start, arc.to, time + arc.time, advance + arc.advance, further);
          }
        }
      };
  for (std::size_t start = 0; start < nodes; ++start) walk(start, start, 0, 0, {start});
  const std::vector<TimedArc> cycle = maximum_ratio_cycle(arcs, nodes);
  RC_ASSERT(cycle.empty() == (best < 0.0));
  if (cycle.empty()) return;
  Ticks time = 0;
  int advance = 0;
  for (std::size_t index = 0; index < cycle.size(); ++index) {
    RC_ASSERT(cycle[index].to == cycle[(index + 1) % cycle.size()].from);
    time += cycle[index].time;
    advance += cycle[index].advance;
  }
  RC_ASSERT(advance > 0);
  RC_ASSERT(static_cast<double>(time) / advance == best);
}

TEST(MaximumRatioCycle, MayTakeNoTime) {
  EXPECT_EQ(maximum_ratio_cycle({{0, 1, 0, 0}, {1, 0, 0, 1}}, 2).size(), 2U);
  EXPECT_TRUE(maximum_ratio_cycle({{0, 1, 5, 0}}, 2).empty());
  EXPECT_TRUE(maximum_ratio_cycle({}, 0).empty());
}

// Three microbatches share the path of the critical cycle, and windows of 20 microbatches take 1338 twice in a row
// although the average is 1346 2/3.
TEST(SteadyPeriod, IsNotFooledByEqualWindows) {
  StepTimes times;
  for (const auto& [forward, backward] :
       std::vector<std::pair<Ticks, Ticks>>{{8, 21}, {1, 20}, {29, 1}, {1, 1}, {20, 29}}) {
    times.stages.push_back({forward, backward, 0, 0, {}});
  }
  times.boundaries = {{23, 25}, {11, 17}, {25, 23}, {23, 10}};
  const auto generate = [](int microbatches) {
    ScheduleRequest request;
    request.pipeline_ranks = 5;
    request.microbatches = microbatches;
    return find_schedule("pipedream")->generate(request);
  };
  const auto cycle = critical_cycle(generate, times);
  ASSERT_TRUE(cycle.has_value());
  const SteadyState steady = steady_state(generate, times);
  EXPECT_TRUE(steady.periodic);
  EXPECT_EQ(steady.window_ticks * cycle->microbatches, cycle->time * steady.window_microbatches);
}

// Without latency, a replicated stage is as fast as its share of the work: 1 / max over stages of (F + B) / R.
TEST(ReplicatedStages, ReachThePublishedThroughputWhenBalanced) {
  for (const std::vector<int>& replicas : {std::vector<int>{3, 1}, {2, 1, 1}, {4, 2, 1}, {1, 2}, {2, 2, 2}}) {
    StepTimes times;
    for (const int count : replicas) times.stages.push_back({10 * count, 20 * count, 0, 0, {}});
    times.boundaries.resize(replicas.size() - 1);
    const auto generate = [&](int microbatches) {
      ScheduleRequest request;
      request.pipeline_ranks = static_cast<int>(replicas.size());
      request.stage_replicas = replicas;
      request.microbatches = microbatches;
      return find_schedule("pipedream")->generate(request);
    };
    const auto cycle = critical_cycle(generate, times);
    ASSERT_TRUE(cycle.has_value());
    EXPECT_EQ(cycle->period_ticks(), 30.0) << replicas.size() << " stages";
    // One round of one rank, independent of the turns of the others.
    EXPECT_EQ(cycle->only_rank(), 0);
    EXPECT_EQ(cycle->steps.size(), 2U);
    EXPECT_EQ(cycle->microbatches, replicas.front());
    EXPECT_TRUE(steady_state(generate, times).periodic);
    EXPECT_EQ(steady_state(generate, times).period_ticks(), 30.0);
  }
}

// F + B + 2c (p - 1) / p: the round trip of a microbatch, with p microbatches in flight.
TEST(SteadyPeriod, OfUniformPipedreamIsItsClosedForm) {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    for (const Ticks latency : {Ticks{0}, Ticks{1}, Ticks{7}, Ticks{500}}) {
      StepTimes times;
      times.stages.assign(static_cast<std::size_t>(ranks), {10, 21, 0, 0, {}});
      times.boundaries.assign(static_cast<std::size_t>(ranks) - 1, {latency, latency});
      const auto generate = [&](int microbatches) {
        ScheduleRequest request;
        request.pipeline_ranks = ranks;
        request.microbatches = microbatches;
        return find_schedule("pipedream")->generate(request);
      };
      const auto cycle = critical_cycle(generate, times);
      ASSERT_TRUE(cycle.has_value());
      EXPECT_EQ(cycle->time * ranks, (31 * ranks + 2 * latency * (ranks - 1)) * cycle->microbatches)
          << ranks << " ranks, latency " << latency;
      EXPECT_EQ(cycle->only_rank().has_value(), latency == 0 || ranks == 1);
      if (latency > 0 && ranks == 2) {
        EXPECT_EQ(describe(*cycle), "0F0 1F0 1B0 0B0, then 0F2");
      }
    }
  }
}

}  // namespace
}  // namespace flopcast
