#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/parse_csv.hpp"

// Orders produced by other programs, compared with ours action by action. The few in schedules/ are part of the
// project; the rest come from the reference data, which is not in the repository.

namespace flopcast {
namespace {

using nlohmann::json;

struct KeptCase {
  std::string file;
  std::string schedule;
  ScheduleRequest request;

  friend void PrintTo(const KeptCase& kept, std::ostream* out) { *out << kept.file; }
};

class KeptOrder : public testing::TestWithParam<KeptCase> {};

TEST_P(KeptOrder, EqualsTheGeneratedOne) {
  const std::string text = read_text(project_folder() / "tests/golden/schedules" / GetParam().file);
  const Program program = generate_schedule(*find_schedule(GetParam().schedule), GetParam().request);
  EXPECT_EQ(write_csv(program), text);
  EXPECT_FALSE(find_fault(parse_csv(text, GetParam().file, program.chains)).has_value());
}

ScheduleRequest shape(int ranks, int microbatches, int chunks = 1) {
  return {.pipeline_ranks = ranks, .microbatches = microbatches, .chunks = chunks};
}

ScheduleRequest variant(ScheduleRequest request, const std::string& name) {
  request.variant = name;
  return request;
}

ScheduleRequest grouped(ScheduleRequest request, int group_size) {
  request.group_size = group_size;
  return request;
}

INSTANTIATE_TEST_SUITE_P(
    Files, KeptOrder,
    testing::Values(KeptCase{"naive-p3-m3.csv", "naive", shape(3, 3)},
                    KeptCase{"gpipe-fifo-p4-m3-pytorch.csv", "gpipe", variant(shape(4, 3), "fifo")},
                    KeptCase{"gpipe-lifo-p3-m6.csv", "gpipe", variant(shape(3, 6), "lifo")},
                    KeptCase{"1f1b-p4-m5-pytorch.csv", "1f1b", shape(4, 5)},
                    KeptCase{"1f1b-p4-m1-megatron.csv", "1f1b", shape(4, 1)},
                    KeptCase{"eager-1f1b-p4-m8.csv", "eager-1f1b", shape(4, 8)},
                    KeptCase{"interleaved-p4-m8-v2.csv", "interleaved", shape(4, 8, 2)},
                    KeptCase{"interleaved-p4-m10-v2-pytorch.csv", "interleaved", shape(4, 10, 2)},
                    KeptCase{"interleaved-p4-m3-v2-pytorch.csv", "interleaved", shape(4, 3, 2)},
                    KeptCase{"interleaved-p2-m8-v3-group3-megatron.csv", "interleaved", grouped(shape(2, 8, 3), 3)},
                    KeptCase{"bfs-lifo-p2-m3-v2-pytorch.csv", "bfs", shape(2, 3, 2)},
                    KeptCase{"bfs-fifo-p3-m6-v2.csv", "bfs", variant(shape(3, 6, 2), "fifo")},
                    KeptCase{"gis-p4-m4-v2-group2-sail.csv", "gis", grouped(shape(4, 4, 2), 2)},
                    KeptCase{"hanayo-p2-m4-v4.csv", "hanayo", variant(shape(2, 4, 4), "rounds")},
                    KeptCase{"chimera-p4-m8.csv", "chimera", shape(4, 8)},
                    KeptCase{"dualpipe-p4-m12-deepseek.csv", "dualpipe", shape(4, 12)},
                    KeptCase{"dualpipev-p4-m10-deepseek.csv", "dualpipev", shape(4, 10, 2)},
                    KeptCase{"zb-h1-p4-m8.csv", "zb-h1", shape(4, 8)},
                    KeptCase{"zb-h2-p3-m6.csv", "zb-h2", shape(3, 6)},
                    KeptCase{"interleaved-zb-p4-m5-v2-pytorch.csv", "interleaved-zb", shape(4, 5, 2)},
                    KeptCase{"zbv-p4-m8-pytorch.csv", "zbv", shape(4, 8, 2)},
                    KeptCase{"zbv-p4-m2-pytorch.csv", "zbv", shape(4, 2, 2)}));

// One string per rank, with actions separated by blanks.
std::string to_csv(const json& order) {
  std::string csv;
  for (const json& rank : order) csv += rank.get<std::string>() + "\n";
  std::replace(csv.begin(), csv.end(), ' ', ',');
  return csv;
}

class ReferenceOrders : public testing::Test {
 protected:
  // Cases of goldens/NAME; if there are none, returns nothing and skips the test.
  std::vector<json> cases_of(const std::string& name) {
    const auto folder = reference_folder();
    if (!folder) {
      std::cout << "NOT COMPARED: no reference data; set FLOPCAST_REFERENCE to its folder\n";
      return {};
    }
    return json::parse(read_text(*folder / "goldens" / name)).at("cases").get<std::vector<json>>();
  }

  // Compares our order with the case's, whose gradient reductions parse_csv ignores.
  void compare(const ScheduleInfo& info, const ScheduleRequest& request, const json& reference) {
    const Program expected = parse_csv(to_csv(reference.at("order")), "reference", {});
    const auto refusal = refuse_request(info, request);
    ASSERT_FALSE(refusal.has_value()) << refusal->problem;
    const Program program = generate_schedule(info, request);
    EXPECT_EQ(write_csv(program), write_csv(expected)) << info.name;
    if (reference.contains("stage_to_rank")) {
      EXPECT_EQ(program.rank_of_stage, reference.at("stage_to_rank").get<std::vector<int>>());
    }
    ++compared_[std::string(info.name)];
  }

  void expect_peaks(const Program& program, const json& peaks) {
    EXPECT_EQ(peak_in_flight(program), peaks.get<std::vector<int>>());
  }

  void report(const std::string& name, const std::map<std::string, int>& expected) {
    std::cout << name << ": orders compared:";
    for (const auto& [schedule, count] : compared_) std::cout << ' ' << schedule << ' ' << count;
    std::cout << ", refusals compared: " << refused_ << '\n';
    EXPECT_EQ(compared_, expected);
  }

  static ScheduleRequest request_of(const json& reference) {
    return shape(reference.at("p").get<int>(), reference.at("m").get<int>(), reference.value("v", 1));
  }

  static StageTimes split_times(const json& times) {
    StageTimes stage;
    stage.forward = times.at("tF").get<Ticks>();
    stage.input_gradient = times.at("tI").get<Ticks>();
    stage.weight_gradient = times.at("tW").get<Ticks>();
    stage.backward = stage.input_gradient + stage.weight_gradient;
    return stage;
  }

  static TimelineMetrics measure_uniform(const Program& program, const StageTimes& stage) {
    StepTimes times;
    times.stages.assign(program.rank_of_stage.size(), stage);
    times.boundaries.resize(program.rank_of_stage.size() - 1);
    return measure(simulate(program, times));
  }

  std::map<std::string, int> compared_;
  int timed_ = 0;
  int refused_ = 0;
};

TEST_F(ReferenceOrders, OfTheTimingCases) {
  const std::map<std::string, std::string> names = {{"naive", "naive"},           {"gpipe_fifo", "gpipe:fifo"},
                                                    {"gpipe_lifo", "gpipe:lifo"}, {"1f1b", "1f1b"},
                                                    {"eager_1f1b", "eager-1f1b"}, {"interleaved_1f1b", "interleaved:2"},
                                                    {"bfs_lifo", "bfs:lifo"},     {"bfs_fifo", "bfs:fifo"},
                                                    {"chimera", "chimera"},       {"wave_greedy", "hanayo:rounds"},
                                                    {"dualpipe", "dualpipe"},     {"dualpipev", "dualpipev"}};
  const std::vector<json> cases = cases_of("timing.json");
  if (cases.empty()) GTEST_SKIP();
  int validated = 0;
  for (const json& reference : cases) {
    SCOPED_TRACE(reference.at("id").get<std::string>());
    const std::string csv = to_csv(reference.at("order"));
    std::vector<Chain> chains;
    for (const json& stages : reference.at("chains"))
      chains.push_back({stages.front().get<int>(), stages.back().get<int>()});
    const Program given = parse_csv(csv, "reference", chains);
    const auto fault = find_fault(given);
    EXPECT_FALSE(fault.has_value()) << render_fault(*fault);
    EXPECT_EQ(write_csv(given), csv);
    EXPECT_EQ(given.rank_of_stage, reference.at("stage_to_rank").get<std::vector<int>>());
    expect_peaks(given, reference.at("expect").at("peak_inflight"));
    ++validated;
    const auto name = names.find(reference.at("schedule").get<std::string>());
    if (name == names.end()) continue;
    const ScheduleName schedule = parse_schedule_name(name->second);
    ScheduleRequest request = variant(request_of(reference), schedule.variant);
    // The only case whose group is neither p nor PyTorch's: five microbatches on two ranks in groups of three.
    const bool odd = schedule.info->name == "interleaved" && request.pipeline_ranks == 2 && request.microbatches == 5;
    if (odd) request.group_size = 3;
    if (schedule.info->name == "hanayo") request.chunks = 2 * reference.at("params").at("W").get<int>();
    if (schedule.info->name == "dualpipe") request.chunks = 1;  // per copy
    compare(*schedule.info, request, reference);
  }
  std::cout << "timing.json: orders read, validated and written back: " << validated << '\n';
  EXPECT_EQ(validated, 298);
  report("timing.json", {{"1f1b", 51},
                         {"bfs", 21},
                         {"chimera", 12},
                         {"dualpipe", 7},
                         {"dualpipev", 7},
                         {"eager-1f1b", 18},
                         {"gpipe", 48},
                         {"hanayo", 11},
                         {"interleaved", 52},
                         {"naive", 15}});
}

TEST_F(ReferenceOrders, OfPyTorch) {
  const std::map<std::string, std::string> names = {{"GPipe", "gpipe"},
                                                    {"1F1B", "1f1b"},
                                                    {"Interleaved1F1B", "interleaved"},
                                                    {"LoopedBFS", "bfs"},
                                                    {"DualPipeV", "dualpipev"}};
  const std::vector<json> cases = cases_of("torch.json");
  if (cases.empty()) GTEST_SKIP();
  int loaded = 0;
  for (const json& reference : cases) {
    SCOPED_TRACE(reference.at("schedule").get<std::string>() + " p=" + reference.at("p").dump() +
                 " m=" + reference.at("m").dump() + " v=" + reference.at("v").dump());
    const bool ok = reference.at("status").get<std::string>() == "ok";
    if (ok && reference.contains("order_with_comms")) {
      // A lowered dump has the same compute actions in the same order.
      const Program lowered = parse_csv(to_csv(reference.at("order_with_comms")), "lowered", {});
      EXPECT_EQ(lowered.ranks, parse_csv(to_csv(reference.at("order")), "order", {}).ranks);
      const auto fault = find_fault(lowered);
      EXPECT_FALSE(fault.has_value()) << render_fault(*fault);
      ++loaded;
    }
    const auto name = names.find(reference.at("schedule").get<std::string>());
    if (name == names.end()) continue;
    const ScheduleInfo& info = *find_schedule(name->second);
    if (ok) {
      compare(info, request_of(reference), reference);
    } else if (info.name == "interleaved" || info.name == "dualpipev") {
      // We refuse what PyTorch refuses, except that it also requires m >= p for 1f1b.
      EXPECT_TRUE(refuse_request(info, request_of(reference)).has_value());
      ++refused_;
    }
  }
  std::cout << "torch.json: lowered orders loaded and validated: " << loaded << '\n';
  EXPECT_GE(loaded, 140);
  EXPECT_EQ(refused_, 19);
  report("torch.json", {{"1f1b", 15}, {"bfs", 39}, {"dualpipev", 4}, {"gpipe", 19}, {"interleaved", 42}});
}

TEST_F(ReferenceOrders, OfDualPipe) {
  const std::vector<json> cases = cases_of("dualpipe.json");
  if (cases.empty()) GTEST_SKIP();
  for (const json& reference : cases) {
    const bool folded = reference.at("schedule").get<std::string>() == "DualPipeV";
    ScheduleRequest request = request_of(reference);
    if (folded) request.chunks = 2;
    const ScheduleInfo& info = *find_schedule(folded ? "dualpipev" : "dualpipe");
    compare(info, request, reference);
    const Program program = generate_schedule(info, request);
    expect_peaks(program, reference.at("reference").front().at("peak_inflight"));
    for (std::size_t chain = 0; chain < program.chains.size(); ++chain) {
      EXPECT_EQ(program.chains[chain].first_stage, reference.at("chains").at(chain).front().get<int>());
      EXPECT_EQ(program.microbatches_of(program.chains[chain]), reference.at("microbatches_per_chain").get<int>());
    }
    for (const json& timed : reference.at("reference")) {
      StageTimes stage = split_times(timed);
      stage.fused = timed.at("tFB").get<Ticks>();
      const TimelineMetrics metrics = measure_uniform(program, stage);
      EXPECT_EQ(metrics.makespan, timed.at("makespan").get<Ticks>());
      for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
        const Ticks idle = metrics.makespan - metrics.ranks[rank].busy;
        EXPECT_EQ(idle, timed.at("idle_per_rank").at(rank).get<Ticks>());
        // The published formula is exact for equal F, I and W, and slightly too high otherwise.
        const Ticks published = timed.at("published_bubble_formula").get<Ticks>();
        const bool equal = stage.forward == stage.input_gradient && stage.forward == stage.weight_gradient;
        EXPECT_LE(idle, published);
        if (equal && rank == 0) {
          EXPECT_EQ(timed.at("max_rank_idle").get<Ticks>(), published);
        }
      }
      ++timed_;
    }
  }
  EXPECT_EQ(timed_, 5 * 23);
  report("dualpipe.json", {{"dualpipe", 12}, {"dualpipev", 11}});
}

TEST_F(ReferenceOrders, OfGroupedInterleaving) {
  const std::vector<json> cases = cases_of("zero_bubble.json");
  if (cases.empty()) GTEST_SKIP();
  for (const json& reference : cases) {
    if (reference.value("kind", "").find("GIS") == std::string::npos) continue;
    ScheduleRequest request = request_of(reference);
    request.group_size = reference.at("group_size").get<int>();
    compare(*find_schedule("gis"), request, reference);
    const Program program = generate_schedule(*find_schedule("gis"), request);
    expect_peaks(program, reference.at("peak_inflight_chunks"));
    const TimelineMetrics metrics = measure_uniform(program, split_times(reference));
    EXPECT_EQ(metrics.makespan, reference.at("makespan").get<Ticks>());
    EXPECT_EQ(metrics.longest_span(), reference.at("max_rank_span").get<Ticks>());
  }
  report("zero_bubble.json", {{"gis", 24}});
}

TEST_F(ReferenceOrders, OfMegatron) {
  const std::vector<json> cases = cases_of("megatron.json");
  if (cases.empty()) GTEST_SKIP();
  for (const json& reference : cases) {
    ScheduleRequest request = request_of(reference);
    if (reference.at("schedule").get<std::string>() == "1F1B") {
      compare(*find_schedule("1f1b"), request, reference);
      expect_peaks(generate_schedule(*find_schedule("1f1b"), request), reference.at("peak_inflight"));
      continue;
    }
    // Skips cases with a warm-up that is longer by one to overlap the experts' all-to-all.
    if (reference.at("overlap_moe").get<bool>()) continue;
    const ScheduleInfo& interleaved = *find_schedule("interleaved");
    request.group_size = reference.at("microbatch_group_size").get<int>();
    SCOPED_TRACE("p=" + std::to_string(request.pipeline_ranks) + " m=" + std::to_string(request.microbatches) +
                 " N=" + std::to_string(*request.group_size));
    if (reference.at("status").get<std::string>() == "ok") {
      compare(interleaved, request, reference);
      expect_peaks(generate_schedule(interleaved, request), reference.at("peak_inflight_chunks"));
    } else {
      // We refuse what Megatron-LM refuses, unless it is the group that PyTorch chooses on its own.
      ++refused_;
      const bool refused = refuse_request(interleaved, request).has_value();
      const int rounds = std::max(1, request.microbatches / request.pipeline_ranks);
      EXPECT_EQ(refused, *request.group_size * rounds != request.microbatches);
    }
  }
  EXPECT_GT(refused_, 50);
  report("megatron.json", {{"1f1b", 22}, {"interleaved", 46}});
}

TEST_F(ReferenceOrders, OfDeepSpeed) {
  const std::vector<json> cases = cases_of("deepspeed.json");
  if (cases.empty()) GTEST_SKIP();
  for (const json& reference : cases) {
    compare(*find_schedule("1f1b"), request_of(reference), reference);
    expect_peaks(generate_schedule(*find_schedule("1f1b"), request_of(reference)), reference.at("peak_inflight"));
  }
  report("deepspeed.json", {{"1f1b", 27}});
}

}  // namespace
}  // namespace flopcast
