// The 298 cases of goldens/timing.json: given order, times and latency, every figure must equal the reference.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

using nlohmann::json;

Program program_of(const json& reference) {
  std::string csv;
  for (const json& row : reference.at("order")) {
    for (const char letter : row.get<std::string>()) csv += letter == ' ' ? ',' : letter;
    csv += '\n';
  }
  std::vector<Chain> chains;
  for (const json& stages : reference.at("chains")) {
    chains.push_back(Chain{stages.front().get<int>(), stages.back().get<int>()});
  }
  Program program = parse_csv(csv, "order.csv", chains);
  EXPECT_EQ(program.rank_of_stage, reference.at("stage_to_rank").get<std::vector<int>>());
  return program;
}

Ticks time_of(const json& value, std::size_t stage) {
  return value.is_array() ? value.at(stage).get<Ticks>() : value.get<Ticks>();
}

// One latency for all boundaries, or rows of from, to, forward latency, backward latency.
void set_latencies(const json& given, std::size_t stages, StepTimes& times) {
  times.boundaries.assign(stages - 1, BoundaryTimes{});
  if (given.is_number()) {
    times.boundaries.assign(stages - 1, BoundaryTimes{given.get<Ticks>(), given.get<Ticks>()});
    return;
  }
  for (const json& row : given.at("per_link")) {
    const auto [from, to] = std::pair(row.at(0).get<std::size_t>(), row.at(1).get<std::size_t>());
    ASSERT_EQ(from + 1, to);
    times.boundaries.at(from) = BoundaryTimes{row.at(2).get<Ticks>(), row.at(3).get<Ticks>()};
  }
}

StepTimes times_of(const json& reference, std::size_t stages) {
  const json& given = reference.at("times");
  StepTimes times;
  for (std::size_t stage = 0; stage < stages; ++stage) {
    StageTimes of_stage;
    of_stage.forward = time_of(given.at("F"), stage);
    if (given.contains("I")) {
      of_stage.input_gradient = time_of(given.at("I"), stage);
      of_stage.weight_gradient = time_of(given.at("W"), stage);
      of_stage.backward = of_stage.input_gradient + of_stage.weight_gradient;
    } else {
      of_stage.backward = time_of(given.at("B"), stage);
    }
    if (given.contains("O")) of_stage.fused = time_of(given.at("O"), stage);
    times.stages.push_back(of_stage);
  }
  set_latencies(reference.at("p2p"), stages, times);
  return times;
}

std::string reduced_fraction(Ticks numerator, Ticks denominator) {
  const Ticks divisor = std::gcd(numerator, denominator);
  if (numerator == 0) return "0";
  if (denominator == divisor) return std::to_string(numerator / divisor);
  return std::to_string(numerator / divisor) + "/" + std::to_string(denominator / divisor);
}

void expect_agreement(const json& reference) {
  const Program program = program_of(reference);
  const StepTimes times = times_of(reference, program.rank_of_stage.size());
  const Timeline timeline = simulate(program, times);
  const TimelineMetrics metrics = measure(timeline);
  const json& expected = reference.at("expect");
  EXPECT_EQ(metrics.makespan, expected.at("makespan").get<Ticks>());
  EXPECT_EQ(metrics.longest_span(), expected.at("max_rank_span").get<Ticks>());
  if (!reference.at("closed_form").is_null()) {
    EXPECT_EQ(metrics.makespan, reference.at("closed_form").get<Ticks>());
  }
  const std::vector<int> in_flight = peak_in_flight(program);
  Ticks idle = 0;
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& of_rank = metrics.ranks[rank];
    EXPECT_EQ(of_rank.busy, expected.at("busy").at(rank).get<Ticks>()) << "rank " << rank;
    EXPECT_EQ(of_rank.first_start, expected.at("rank_first_start").at(rank).get<Ticks>()) << "rank " << rank;
    EXPECT_EQ(of_rank.last_end, expected.at("rank_last_end").at(rank).get<Ticks>()) << "rank " << rank;
    EXPECT_EQ(of_rank.peak_in_flight, expected.at("peak_inflight").at(rank).get<int>()) << "rank " << rank;
    EXPECT_EQ(of_rank.peak_in_flight, in_flight[rank]) << "rank " << rank;
    EXPECT_EQ(reduced_fraction(metrics.makespan - of_rank.busy, metrics.makespan),
              expected.at("idle_fraction_exact").at(rank).get<std::string>())
        << "rank " << rank;
    EXPECT_NEAR(metrics.idle_fraction(rank), expected.at("idle_fraction").at(rank).get<double>(), 1e-11);
    EXPECT_EQ(of_rank.busy + of_rank.exposed() + of_rank.bubble(), metrics.makespan) << "rank " << rank;
    idle += metrics.makespan - of_rank.busy;
  }
  EXPECT_EQ(reduced_fraction(idle, metrics.makespan * static_cast<Ticks>(metrics.ranks.size())),
            expected.at("idle_total").get<std::string>());
  const CriticalPath path = critical_path(timeline);
  EXPECT_EQ(path.total(), metrics.makespan);
  EXPECT_EQ(path.wait, 0);
}

TEST(TimingReference, EveryCaseAgreesExactly) {
  const auto folder = reference_folder();
  if (!folder) GTEST_SKIP() << "no reference folder: set FLOPCAST_REFERENCE";
  const json reference = json::parse(read_text(*folder / "goldens" / "timing.json"));
  std::size_t agreed = 0;
  for (const json& timing : reference.at("cases")) {
    SCOPED_TRACE(timing.at("id").get<std::string>() + " " + timing.at("schedule").get<std::string>());
    const auto failures = testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
    expect_agreement(timing);
    if (testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count() == failures) ++agreed;
  }
  std::printf("timing.json: %zu of %zu cases agree\n", agreed, reference.at("cases").size());
  EXPECT_EQ(reference.at("cases").size(), 298U);
}

}  // namespace
}  // namespace flopcast
