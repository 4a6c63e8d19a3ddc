#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "sim/search/order_times.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/parse_csv.hpp"

// The schedules with split backward passes, compared with those of PyTorch, of independent generators, and of the
// authors' program. Orders that follow a rule are equal action by action; searched orders are compared by their times.

namespace flopcast {
namespace {

using nlohmann::json;

std::vector<json> cases_of(const std::string& name) {
  const auto folder = reference_folder();
  if (!folder) {
    std::cout << "NOT COMPARED: no reference data; set FLOPCAST_REFERENCE to its folder\n";
    return {};
  }
  return json::parse(read_text(*folder / "goldens" / name)).at("cases").get<std::vector<json>>();
}

std::string csv_of_order(const json& order) {
  std::string csv;
  for (const json& rank : order) csv += rank.get<std::string>() + "\n";
  std::replace(csv.begin(), csv.end(), ' ', ',');
  return csv;
}

ScheduleRequest request_of(const json& reference) {
  return {.pipeline_ranks = reference.at("p").get<int>(),
          .microbatches = reference.at("m").get<int>(),
          .chunks = reference.value("v", 1)};
}

StepTimes times_of(const json& reference) {
  const auto time = [&reference](const char* key) { return reference.at(key).get<Ticks>(); };
  const std::size_t stages = reference.at("p").get<std::size_t>() * reference.at("v").get<std::size_t>();
  StepTimes times;
  times.stages.assign(stages, StageTimes{time("tF"), time("tI") + time("tW"), time("tI"), time("tW"), std::nullopt});
  times.boundaries.assign(stages - 1, BoundaryTimes{time("comm"), time("comm")});
  return times;
}

// Halves of activations as counted by the authors' program: F adds two, I and W release one each.
int peak_halves(const Program& program) {
  int peak = 0;
  for (const std::vector<Action>& actions : program.ranks) {
    int held = 0;
    for (const Action& action : actions) {
      if (action.kind == ActionKind::kForward) held += 2;
      if (action.kind == ActionKind::kBackward) held -= 2;
      if (action.kind == ActionKind::kInputGradient || action.kind == ActionKind::kWeightGradient) --held;
      peak = std::max(peak, held);
    }
  }
  return peak;
}

int largest(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

double percent_above(Ticks ours, Ticks reference) {
  return 100.0 * static_cast<double>(ours - reference) / static_cast<double>(reference);
}

struct Tally {
  int cases = 0;
  int makespan_at_most = 0;
  int makespan_below = 0;
  int span_at_most = 0;
  int span_below = 0;
  int both_above = 0;
};

class ZeroBubble : public testing::Test {
 protected:
  void compare(const std::string& title, const std::string& name, ScheduleRequest request, const json& reference) {
    SCOPED_TRACE(reference.at("name").get<std::string>() + " " + name);
    request.variant = parse_schedule_name(name).variant;
    request.times = times_of(reference);
    const Program program = generate_schedule(*parse_schedule_name(name).info, request);
    const auto fault = find_fault(program);
    ASSERT_FALSE(fault.has_value()) << render_fault(*fault);
    EXPECT_EQ(program.rank_of_stage, reference.at("stage_to_rank").get<std::vector<int>>());
    const OrderTimes ours = time_order(program, request.microbatches, *request.times);
    const Ticks makespan = reference.at("makespan").get<Ticks>();
    const Ticks span = reference.at("max_rank_span").get<Ticks>();
    Tally& tally = tallies_[title];
    ++tally.cases;
    tally.makespan_at_most += ours.makespan <= makespan ? 1 : 0;
    tally.makespan_below += ours.makespan < makespan ? 1 : 0;
    tally.span_at_most += ours.span <= span ? 1 : 0;
    tally.span_below += ours.span < span ? 1 : 0;
    tally.both_above += ours.makespan > makespan && ours.span > span ? 1 : 0;
    if (ours.makespan > makespan || ours.span > span) {
      std::cout << title << " above the reference: " << reference.at("name").get<std::string>() << ": makespan "
                << percent_above(ours.makespan, makespan) << " %, span " << percent_above(ours.span, span) << " %\n";
    }
    worst_[title] = std::max(worst_[title], static_cast<double>(ours.makespan) / static_cast<double>(makespan));
    worst_span_[title] = std::max(worst_span_[title], static_cast<double>(ours.span) / static_cast<double>(span));
    program_ = program;
  }

  void report() const {
    for (const auto& [title, tally] : tallies_) {
      std::cout << title << ": " << tally.cases << " cases, makespan at most the reference's in "
                << tally.makespan_at_most << " (below in " << tally.makespan_below << "), span at most in "
                << tally.span_at_most << " (below in " << tally.span_below << "), both above in " << tally.both_above
                << ", worst makespan ratio " << worst_.at(title) << ", worst span ratio " << worst_span_.at(title)
                << '\n';
    }
  }

  std::map<std::string, Tally> tallies_;
  std::map<std::string, double> worst_;
  std::map<std::string, double> worst_span_;
  Program program_;
};

TEST_F(ZeroBubble, SearchedOrdersAgainstTheAuthorsOwn) {
  const std::vector<json> cases = cases_of("zero_bubble.json");
  if (cases.empty()) GTEST_SKIP();
  for (const json& reference : cases) {
    if (!reference.contains("kind")) continue;
    const std::string kind = reference.at("kind").get<std::string>();
    ScheduleRequest request = request_of(reference);
    const int peak = largest(reference.at("peak_inflight_chunks").get<std::vector<int>>());
    if (kind.rfind("zb ", 0) == 0) {
      const json& limit = reference.at("mem_limit_microbatches");
      if (!limit.is_null()) request.memory_limit = limit.get<int>();
      compare("zb-auto:half", "zb-auto:half", request, reference);
      const int most = request.memory_limit.value_or(request.microbatches);
      EXPECT_LE(peak_halves(program_), 2 * most);
      compare("zb-auto (activations held until W)", "zb-auto:full", request, reference);
      EXPECT_LE(largest(peak_in_flight(program_)), most);
    } else if (kind.rfind("ZBV", 0) == 0) {
      compare("zbv:greedy", "zbv:greedy", request, reference);
      EXPECT_LE(largest(peak_in_flight(program_)), 2 * request.pipeline_ranks);
    } else if (kind == "V-Half" || kind == "V-Min" || kind == "1F1B-V") {
      const std::string name = kind == "V-Half" ? "v-half" : kind == "V-Min" ? "v-min" : "1f1b-v";
      compare(name, name, request, reference);
      EXPECT_LE(largest(peak_in_flight(program_)), peak) << reference.at("name");
    } else if (kind.rfind("V auto", 0) == 0) {
      request.memory_limit = reference.at("mem_limit_chunks").get<int>();
      compare("v-auto:chunks", "v-auto:chunks", request, reference);
      EXPECT_LE(peak_halves(program_), 2 * *request.memory_limit);
    }
  }
  report();
  const auto expect = [this](const std::string& title, int count, int makespans, int spans, double worst) {
    const Tally& tally = tallies_.at(title);
    EXPECT_EQ(tally.cases, count) << title;
    EXPECT_GE(tally.makespan_at_most, makespans) << title;
    EXPECT_GE(tally.span_at_most, spans) << title;
    EXPECT_LE(worst_.at(title), worst) << title;
  };
  expect("zb-auto:half", 125, 125, 125, 1.0);
  // Activations held until W leave less memory than the authors' program has under the same limit.
  expect("zb-auto (activations held until W)", 125, 123, 117, 1.018);
  // Orders that end later than the fixed one are rejected; in four cases that excludes spans as short as the
  // reference's, whose makespan is longer by the same amount.
  expect("zbv:greedy", 62, 62, 58, 1.0);
  EXPECT_EQ(tallies_.at("zbv:greedy").both_above, 0);
  expect("v-half", 53, 53, 53, 1.0);
  expect("v-min", 53, 53, 53, 1.0);
  expect("1f1b-v", 11, 11, 11, 1.0);
  expect("v-auto:chunks", 19, 19, 19, 1.0);
}

TEST_F(ZeroBubble, OrdersEqualThoseOfPyTorch) {
  const std::vector<json> cases = cases_of("torch.json");
  if (cases.empty()) GTEST_SKIP();
  std::map<std::string, int> equal;
  int refused = 0;
  for (const json& reference : cases) {
    const std::string schedule = reference.at("schedule").get<std::string>();
    if (schedule != "ZBVZeroBubble" && schedule != "InterleavedZeroBubble") continue;
    const ScheduleInfo& info = *find_schedule(schedule == "ZBVZeroBubble" ? "zbv" : "interleaved-zb");
    const ScheduleRequest request = request_of(reference);
    SCOPED_TRACE(schedule + " p=" + reference.at("p").dump() + " m=" + reference.at("m").dump());
    if (reference.at("status").get<std::string>() != "ok") {
      EXPECT_TRUE(refuse_request(info, request).has_value());
      ++refused;
      continue;
    }
    const Program program = generate_schedule(info, request);
    EXPECT_EQ(write_csv(program), write_csv(parse_csv(csv_of_order(reference.at("order")), "reference", {})));
    EXPECT_EQ(program.rank_of_stage, reference.at("stage_to_rank").get<std::vector<int>>());
    ++equal[schedule];
  }
  std::cout << "torch.json: equal orders: zbv " << equal["ZBVZeroBubble"] << ", interleaved-zb "
            << equal["InterleavedZeroBubble"] << ", refusals " << refused << '\n';
  EXPECT_EQ(equal["ZBVZeroBubble"], 20);
  EXPECT_EQ(equal["InterleavedZeroBubble"], 38);
  EXPECT_EQ(refused, 3);
}

// PyTorch 2.14 pads its interleaved zero-bubble table with idle slots, but only for waits on full backward passes,
// which that schedule does not have: its padded table has no idle slot and claims that 6 m unit steps suffice. The
// order itself is correct; here, the clock determines idle time, so that waits for input gradients count.
TEST(InterleavedZeroBubble, WaitsForInputGradientsAreIdleTime) {
  const ScheduleRequest request{.pipeline_ranks = 4, .microbatches = 8, .chunks = 2};
  const Program program = generate_schedule(*find_schedule("interleaved-zb"), request);
  StepTimes unit;
  unit.stages.assign(8, StageTimes{1, 2, 1, 1, std::nullopt});
  unit.boundaries.resize(7);
  for (const std::vector<Action>& actions : program.ranks) EXPECT_EQ(actions.size(), 48U);
  EXPECT_EQ(time_order(program, 8, unit).makespan, 48 + 3);
}

TEST_F(ZeroBubble, OrdersAndTimesEqualThoseOfIndependentGenerators) {
  const std::vector<json> cases = cases_of("timing.json");
  if (cases.empty()) GTEST_SKIP();
  const std::map<std::string, std::string> names = {
      {"zb_h1", "zb-h1"}, {"zb_h2", "zb-h2"}, {"zbv_torch", "zbv"}, {"interleaved_zb_torch", "interleaved-zb"}};
  std::map<std::string, int> equal;
  int closed_forms = 0;
  for (const json& reference : cases) {
    const auto name = names.find(reference.at("schedule").get<std::string>());
    if (name == names.end()) continue;
    SCOPED_TRACE(reference.at("id").get<std::string>());
    const ScheduleInfo& info = *find_schedule(name->second);
    const ScheduleRequest request = request_of(reference);
    const Program program = generate_schedule(info, request);
    EXPECT_EQ(write_csv(program), csv_of_order(reference.at("order")));
    EXPECT_EQ(peak_in_flight(program), reference.at("expect").at("peak_inflight").get<std::vector<int>>());
    ++equal[name->second];
    const json& times = reference.at("times");
    if (!times.at("F").is_number() || !reference.at("p2p").is_number()) continue;
    const Ticks weight = times.at("W").get<Ticks>();
    const UniformTimes uniform{times.at("F").get<Ticks>(), times.at("I").get<Ticks>() + weight,
                               reference.at("p2p").get<Ticks>(), weight};
    const auto closed_form = info.exact_makespan(request, uniform);
    if (!closed_form) continue;
    EXPECT_EQ(*closed_form, reference.at("expect").at("makespan").get<Ticks>());
    ++closed_forms;
  }
  std::cout << "timing.json: equal orders:";
  for (const auto& [name, count] : equal) std::cout << ' ' << name << ' ' << count;
  std::cout << ", closed forms equal to the reference: " << closed_forms << '\n';
  EXPECT_EQ(equal, (std::map<std::string, int>{{"interleaved-zb", 11}, {"zb-h1", 19}, {"zb-h2", 14}, {"zbv", 12}}));
  EXPECT_GE(closed_forms, 20);
}

}  // namespace
}  // namespace flopcast
