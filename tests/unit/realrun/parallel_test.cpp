// Buckets, shared parameters, transfers and recordings on examples small enough to write out.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "realrun/compute/host_device.hpp"
#include "realrun/executor/executor.hpp"
#include "realrun/parallel/buckets.hpp"

namespace flopcast::realrun {
namespace {

ParameterList unit_of(const std::vector<std::pair<std::string, std::size_t>>& parameters, std::size_t alignment = 1) {
  ParameterList list(alignment);
  for (const auto& [name, count] : parameters) list.add({.name = name, .shard = whole_matrix(1, count)});
  return list;
}

std::vector<std::size_t> counts_of(const std::vector<Bucket>& buckets) {
  std::vector<std::size_t> counts;
  for (const Bucket& bucket : buckets) counts.push_back(bucket.count);
  return counts;
}

TEST(Buckets, FillFromTheLastParameterAndCloseAtTheirSize) {
  const StageLayout layout{{unit_of({{"a", 4}, {"b", 6}}), unit_of({{"c", 5}, {"d", 3}})}};
  const auto buckets = [&](const BucketRules& rules) { return make_buckets(layout, {}, rules); };
  EXPECT_EQ(counts_of(buckets({})), std::vector<std::size_t>{18});
  EXPECT_EQ(counts_of(buckets({.bytes = 32, .first_bytes = 4})), (std::vector<std::size_t>{3, 11, 4}));
  EXPECT_EQ(counts_of(buckets({.within_units = true})), (std::vector<std::size_t>{8, 10}));
  EXPECT_EQ(buckets({.bytes = 32, .first_bytes = 4})[1].first_unit, 0) << "waits for the earliest of its units";
  EXPECT_EQ(buckets({.bytes = 32, .first_bytes = 4})[1].offset, 4U);
}

TEST(Buckets, SharedParametersHaveTheirOwnCutAlikeEverywhere) {
  const std::vector<StageLayout> layouts = {{{unit_of({{"table", 9}, {"positions", 2}}), unit_of({{"x", 5}})}},
                                            {{unit_of({{"y", 7}}), unit_of({{"norm", 1}, {"table", 9}})}}};
  const SharedParameters shared = find_shared_parameters(layouts);
  ASSERT_EQ(shared.sets.size(), 1U);
  EXPECT_EQ(shared.sets[0].stages, (std::vector<int>{0, 1}));
  EXPECT_EQ(shared.set_index("table"), 0);
  EXPECT_EQ(shared.set_index("x"), -1);
  for (const StageLayout& layout : layouts) {
    std::vector<std::size_t> of_set;
    for (const Bucket& bucket : make_buckets(layout, shared, {})) {
      if (bucket.shared_set == 0) of_set.push_back(bucket.count);
    }
    EXPECT_EQ(of_set, std::vector<std::size_t>{9});
  }
}

TEST(Buckets, GapsOfAlignedParametersBelongToThem) {
  const StageLayout layout{{unit_of({{"a", 5}, {"b", 1}}, 4)}};
  EXPECT_EQ(counts_of(make_buckets(layout, {}, {.bytes = 4, .first_bytes = 4})), (std::vector<std::size_t>{4, 8}));
}

// Stages 0 and 3 on rank 0, 1 and 2 on rank 1: nothing is sent at the turn of the V.
TEST(Transfers, FollowTheChainAndSkipNeighboursOnOneRank) {
  Program program;
  program.rank_of_stage = {0, 1, 1, 0};
  program.chains = {{0, 3}};
  const auto cell = [](int stage, ActionKind kind) { return Action{0, static_cast<std::uint16_t>(stage), kind}; };
  program.ranks = {{cell(0, ActionKind::kForward), cell(3, ActionKind::kForward), cell(3, ActionKind::kBackward),
                    cell(0, ActionKind::kBackward)},
                   {cell(1, ActionKind::kForward), cell(2, ActionKind::kForward), cell(2, ActionKind::kInputGradient),
                    cell(1, ActionKind::kInputGradient), cell(2, ActionKind::kWeightGradient),
                    cell(1, ActionKind::kWeightGradient)}};
  const auto incoming = incoming_messages(program, 1);
  ASSERT_EQ(incoming.size(), 1U);
  ASSERT_EQ(incoming.at(0).size(), 2U);
  EXPECT_EQ(to_string(incoming.at(0)[0].key), "the activation of microbatch 0 for stage 1");
  EXPECT_EQ(to_string(incoming.at(0)[1].key), "the gradient of microbatch 0 for stage 2");
  ASSERT_EQ(incoming_messages(program, 0).at(1).size(), 2U);
}

TEST(Recording, MergesRanksIntoATimelineThatStartsAtZero) {
  HostDevice device;
  Recording recording(device);
  const Action forward{2, 0, ActionKind::kForward};
  recording.span(SpanKind::kForward, StreamKind::kCompute, forward, {100}, {150});
  recording.sent({1, 2, true}, forward, 1, {150});
  const RankRecord sender = recording.take();
  recording.received({1, 2, true}, forward, 0, {180});
  recording.span(SpanKind::kForward, StreamKind::kCompute, {2, 1, ActionKind::kForward}, {190}, {200});
  recording.span(SpanKind::kGradientReduction, StreamKind::kGradient, {{130}, {140}});
  const Timeline timeline = merge_records({sender, recording.take()});
  ASSERT_EQ(timeline.rank_count(), 2);
  EXPECT_EQ(timeline.makespan(), 100);
  EXPECT_EQ(timeline.ranks[0].front().start, 0);
  EXPECT_EQ(timeline.ranks[1].front().kind, SpanKind::kGradientReduction) << "ordered by start";
  ASSERT_EQ(timeline.transfers.size(), 1U);
  EXPECT_EQ(timeline.transfers[0].start, 50);
  EXPECT_EQ(timeline.transfers[0].end, 80);
  EXPECT_EQ(timeline.transfers[0].to_stage, 1);
  EXPECT_TRUE(recording.take().spans.empty());
}

}  // namespace
}  // namespace flopcast::realrun
