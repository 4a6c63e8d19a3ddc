// Random sizes, times, latencies and memory limits for schedules with split backward passes: every order is executable,
// stays within its memory, and takes no longer than the schedules it claims to match.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "sim/search/order_times.hpp"
#include "tests/property/generators.hpp"

namespace flopcast {
namespace {

StepTimes random_times(int stages) {
  const bool even = *rc::gen::arbitrary<bool>();
  const Ticks longest = *rc::gen::element<Ticks>(1, 12, 1'000'000'000'000);
  const auto any = [&] { return between<Ticks>(0, longest + 1); };
  StepTimes times;
  for (int stage = 0; stage < stages; ++stage) {
    StageTimes of_stage{any(), 0, any(), any(), {}};
    of_stage.backward = of_stage.input_gradient + of_stage.weight_gradient;
    times.stages.push_back(even && stage > 0 ? times.stages.front() : of_stage);
    if (stage > 0) times.boundaries.push_back(BoundaryTimes{any() / 4, any() / 4});
  }
  return times;
}

// The time of a search grows with both sizes.
struct Sizes {
  int ranks = 16;
  int microbatches = 64;
};
constexpr Sizes kSmall = {8, 24};

ScheduleRequest random_timed_request(const ScheduleInfo& info, const Sizes& largest = {}) {
  ScheduleRequest request;
  request.pipeline_ranks = between(1, largest.ranks + 1);
  request.microbatches = between(1, largest.microbatches + 1);
  request.chunks = info.default_chunks;
  if (!info.variants.empty()) request.variant = std::string(*rc::gen::elementOf(info.variants));
  const bool limited =
      std::find(info.reads.begin(), info.reads.end(), &ScheduleRequest::memory_limit) != info.reads.end();
  if (limited && between(0, 4) > 0) request.memory_limit = between(1, 40);
  request.times = random_times(request.pipeline_ranks * request.chunks);
  return request;
}

// Peak in chunks; activations are kept until W.
std::optional<int> claimed_peak(const ScheduleInfo& info, const ScheduleRequest& request) {
  const int p = request.pipeline_ranks;
  if (info.name == "zb-h1") return p;
  if (info.name == "zb-h2") return 2 * p - 1;
  if (info.name == "1f1b-v") return std::max(4, (3 * p + 1) / 2);
  if (info.name == "zbv") return 2 * p;
  if (info.name == "v-half") return 2 * ((p + 2) / 2);
  if (info.name == "v-min") return 2 * ((p + 4) / 3);
  if (request.memory_limit && request.variant == "full") return *request.memory_limit * request.chunks;
  return std::nullopt;
}

int halves_at_peak(const Program& program) {
  int peak = 0;
  for (const std::vector<Action>& actions : program.ranks) {
    int held = 0;
    for (const Action& action : actions) {
      held += action.kind == ActionKind::kForward ? 2 : action.kind == ActionKind::kBackward ? -2 : -1;
      peak = std::max(peak, held);
    }
  }
  return peak;
}

const ScheduleInfo& any_schedule() {
  return *find_schedule(*rc::gen::element<std::string>("zb-h1", "zb-h2", "interleaved-zb", "zb-auto", "1f1b-v", "zbv",
                                                       "v-half", "v-min", "v-auto"));
}

RC_GTEST_PROP(ZeroBubbleProperties, EveryOrderRunsWithinItsMemory, ()) {
  const ScheduleInfo& info = any_schedule();
  const ScheduleRequest request = random_timed_request(info);
  RC_PRE(!refuse_request(info, request));
  const Program program = generate_schedule(info, request);
  RC_ASSERT(!find_fault(program));
  RC_ASSERT(program.schedule == info.name);
  RC_ASSERT(program.action_count() == static_cast<std::size_t>(request.pipeline_ranks * request.chunks *
                                                               request.microbatches * (info.name == "1f1b-v" ? 2 : 3)));
  const std::vector<int> peaks = peak_in_flight(program);
  if (const auto claimed = claimed_peak(info, request))
    RC_ASSERT(*std::max_element(peaks.begin(), peaks.end()) <= *claimed);
  const int unit = request.variant == "chunks" ? 1 : request.chunks;  // unit of the memory limit, in chunks
  if (request.memory_limit) RC_ASSERT(halves_at_peak(program) <= 2 * unit * *request.memory_limit);
  RC_TAG(std::string(info.name));
}

RC_GTEST_PROP(ZeroBubbleProperties, TheSearchsClockIsTheEngines, ()) {
  const ScheduleInfo& info = any_schedule();
  const ScheduleRequest request = random_timed_request(info, kSmall);
  RC_PRE(!refuse_request(info, request));
  const Program program = generate_schedule(info, request);
  const OrderTimes times = time_order(program, request.microbatches, *request.times);
  const TimelineMetrics metrics = measure(simulate(program, *request.times));
  RC_ASSERT(times.makespan == metrics.makespan);
  RC_ASSERT(times.span == metrics.longest_span());
}

RC_GTEST_PROP(ZeroBubbleProperties, NoOrderTakesLessThanTheBoundOfTheSearch, ()) {
  const ScheduleInfo& info = any_schedule();
  const ScheduleRequest request = random_timed_request(info, kSmall);
  RC_PRE(!refuse_request(info, request));
  const Program program = generate_schedule(info, request);
  const OrderTimes times = time_order(program, request.microbatches, *request.times);
  ActivationRule rule;
  if (const auto claimed = claimed_peak(info, request)) rule.limit = 2 * *claimed;
  const OrderTimes bound = order_bound(program, request.microbatches, *request.times, rule, info.name != "1f1b-v");
  RC_ASSERT(bound.makespan <= times.makespan);
  RC_ASSERT(bound.span <= times.span);
  if (bound.makespan == times.makespan) RC_TAG(std::string("reached"));
}

RC_GTEST_PROP(ZeroBubbleProperties, SearchesAreNotWorseThanTheFixedRules, ()) {
  const bool v_map = *rc::gen::arbitrary<bool>();
  const ScheduleInfo& info = *find_schedule(v_map ? "zbv" : "zb-auto");
  ScheduleRequest request = random_timed_request(info);
  const auto times_of = [&request](const ScheduleInfo& one, const std::string& variant) {
    ScheduleRequest its = request;
    its.variant = variant;
    if (!one.reads_number(schedule_numbers()[2])) its.memory_limit.reset();
    return time_order(generate_schedule(one, its), its.microbatches, *its.times);
  };
  if (v_map) {
    const OrderTimes greedy = times_of(info, "greedy");
    const OrderTimes fixed = times_of(info, "fixed");
    RC_ASSERT(greedy.makespan <= fixed.makespan);
    RC_ASSERT(greedy.span <= fixed.span);
    return;
  }
  const auto makespan_of = [&times_of](const ScheduleInfo& one, const std::string& variant) {
    return times_of(one, variant).makespan;
  };
  const int limit = request.memory_limit.value_or(request.microbatches);
  if (limit >= std::min(request.pipeline_ranks, request.microbatches)) {
    RC_ASSERT(makespan_of(info, "full") <= makespan_of(*find_schedule("zb-h1"), ""));
  }
  if (limit >= std::min(2 * request.pipeline_ranks - 1, request.microbatches)) {
    RC_ASSERT(makespan_of(info, "full") <= makespan_of(*find_schedule("zb-h2"), ""));
  }
}

RC_GTEST_PROP(ZeroBubbleProperties, TheSameRequestGivesTheSameOrder, ()) {
  const ScheduleInfo& info = any_schedule();
  const ScheduleRequest request = random_timed_request(info, kSmall);
  RC_PRE(!refuse_request(info, request));
  RC_ASSERT(write_csv(generate_schedule(info, request)) == write_csv(generate_schedule(info, request)));
}

RC_GTEST_PROP(ZeroBubbleProperties, ClosedFormsAreExact, ()) {
  const ScheduleInfo& info = *find_schedule(*rc::gen::element<std::string>("zb-h1", "zb-h2", "interleaved-zb", "zbv"));
  ScheduleRequest request;
  request.pipeline_ranks = between(1, 17);
  request.microbatches = between(request.pipeline_ranks, 65);
  // The closed forms are exact in narrow ranges: most cases should be inside them.
  const Ticks longest = *rc::gen::element<Ticks>(2, 6, 50);
  request.chunks = info.uses_chunks && info.name != "zbv" ? between(1, 4) : info.default_chunks;
  RC_PRE(!refuse_request(info, request));
  UniformTimes uniform;
  uniform.forward = between<Ticks>(1, longest + 1);
  uniform.weight_gradient = info.name == "zbv" ? uniform.forward : between<Ticks>(0, longest + 1);
  uniform.backward = uniform.weight_gradient + (info.name == "zbv" ? uniform.forward : between<Ticks>(0, longest + 1));
  const auto expected = info.exact_makespan(request, uniform);
  if (!expected) {
    RC_TAG("no closed form");
    return;
  }
  RC_TAG(std::string(info.name));
  StepTimes times;
  const auto stages = static_cast<std::size_t>(request.pipeline_ranks * request.chunks);
  times.stages.assign(
      stages, StageTimes{uniform.forward, uniform.backward, uniform.input_gradient(), uniform.weight_gradient, {}});
  times.boundaries.resize(stages - 1);
  RC_ASSERT(time_order(generate_schedule(info, request), request.microbatches, times).makespan == *expected);
}

}  // namespace
}  // namespace flopcast
