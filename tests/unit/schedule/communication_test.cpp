#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

std::string fault_text(const CellProgram& program) {
  const auto fault = find_fault(program);
  return fault ? render_fault(*fault) : "";
}

class CellText : public testing::TestWithParam<const char*> {};

TEST_P(CellText, IsWrittenAsItWasRead) {
  const auto cell = parse_cell(GetParam());
  ASSERT_TRUE(cell.has_value());
  EXPECT_EQ(to_string(*cell), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Cells, CellText,
                         testing::Values("", "2F0", "0B17", "12I3", "1W0", "(3F1;0B0)OVERLAP_F_B", "2SEND_F0",
                                         "3RECV_F1", "4SEND_B20", "65534RECV_B99999999", "0UNSHARD", "11RESHARD",
                                         "5REDUCE_GRAD"));

class NoCell : public testing::TestWithParam<const char*> {};

TEST_P(NoCell, IsRefused) {
  EXPECT_FALSE(parse_cell(GetParam()).has_value());
}

INSTANTIATE_TEST_SUITE_P(Texts, NoCell,
                         testing::Values("SEND_F0", "0SEND_F", "0UNSHARD1", "UNSHARD", "0send_f0", "0SEND_F-1",
                                         "65535UNSHARD", "0SEND_F100000000", "0RECV", "(0F0;1SEND_F0)OVERLAP_F_B",
                                         "(0F0)OVERLAP_F_B", "0SEND_F0 ", "0OVERLAP_F_B0"));

TEST(Lowering, WithoutShardingOfTwoRanks) {
  const Program program = generate_schedule(*find_schedule("1f1b"), {.pipeline_ranks = 2, .microbatches = 2});
  EXPECT_EQ(write_csv(add_communication(program, {.unshard_reshard = false})),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD\n"
            "1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n");
}

TEST(Lowering, SendsNothingWithinARankOrBetweenChains) {
  const Program one_rank = parse_csv("0F0,1F0,1B0,0B0\n", "one.csv", {});
  EXPECT_EQ(write_csv(add_communication(one_rank, {.unshard_reshard = false})),
            "0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD\n");
  const Program two_chains = parse_csv("0F0,0B0\n1F0,1B0\n", "two.csv", parse_chains("0-0,1-1"));
  EXPECT_EQ(add_communication(two_chains, {}).communication_count(), 6U);
}

// Every schedule of the catalogue in a few sizes.
std::vector<Program> catalogue_programs() {
  std::vector<Program> programs;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    for (const int ranks : {1, 2, 4, 5}) {
      for (const int rounds : {1, 3}) {
        ScheduleRequest request{.pipeline_ranks = ranks, .microbatches = 2 * rounds * ranks};
        request.chunks = info.default_chunks;
        for (const int chunks : {info.default_chunks, 3}) {
          if (chunks > 1 && !info.uses_chunks) continue;
          request.chunks = chunks;
          if (!refuse_request(info, request)) programs.push_back(generate_schedule(info, request));
        }
      }
    }
  }
  return programs;
}

TEST(Lowering, OfTheCatalogueIsValidAndKeepsTheOrder) {
  const std::vector<Program> programs = catalogue_programs();
  EXPECT_GE(programs.size(), schedule_catalogue().size() * 4);
  for (const Program& program : programs) {
    SCOPED_TRACE(program.schedule);
    for (const bool sharding : {true, false}) {
      CellProgram cells = add_communication(program, {.unshard_reshard = sharding});
      EXPECT_EQ(fault_text(cells), "");
      EXPECT_FALSE(find_transfer_mismatch(cells).has_value());
      EXPECT_EQ(compute_of(cells).ranks, program.ranks);
      const CellProgram again = parse_cell_csv(write_csv(cells), program.schedule, program.chains);
      EXPECT_EQ(again.ranks, cells.ranks);
      const std::size_t communications = cells.communication_count();
      defer_receives(cells);
      EXPECT_EQ(fault_text(cells), "");
      EXPECT_EQ(cells.communication_count(), communications);
    }
  }
}

TEST(Lowering, KeepsAtMostThreeStagesUnsharded) {
  const Program program =
      generate_schedule(*find_schedule("bfs"), {.pipeline_ranks = 2, .microbatches = 4, .chunks = 5});
  for (const std::vector<Cell>& cells : add_communication(program, {}).ranks) {
    int active = 0;
    for (const Cell& cell : cells) {
      active += cell.kind == CellKind::kUnshard ? 1 : (cell.kind == CellKind::kReshard ? -1 : 0);
      EXPECT_LE(active, kActiveStages);
    }
    EXPECT_EQ(active, 0);
  }
}

struct Case {
  std::string csv;
  std::string fault;

  friend void PrintTo(const Case& checked, std::ostream* out) { *out << checked.csv; }
};

class CommunicationCheck : public testing::TestWithParam<Case> {};

TEST_P(CommunicationCheck, NamesRankStepCellAndReason) {
  EXPECT_EQ(fault_text(parse_cell_csv(GetParam().csv, "case.csv", {})), GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(
    Valid, CommunicationCheck,
    testing::Values(Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", ""},
                    Case{"0RECV_B0,0F0,0SEND_F0,,0B0\n,1RECV_F0,1F0,1B0,1SEND_B0\n", ""},  // received early
                    Case{"0UNSHARD,0F0,0B0,0RESHARD,0REDUCE_GRAD\n1UNSHARD,1F0,1RESHARD,1UNSHARD,1B0,1REDUCE_GRAD\n",
                         ""},  // transfers left to the executor, a last reshard too
                    Case{"0F0,0B0\n", ""}));

INSTANTIATE_TEST_SUITE_P(
    Faulty, CommunicationCheck,
    testing::Values(
        // Compute faults, with steps counted over all cells.
        Case{"0F0,0SEND_F0,,0B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", "rank 0, step 4 (0B0): 0B0 runs a second time"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0\n", "rank 1: 1B0 never runs"},
        // Positions.
        Case{"0F0,1SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (1SEND_F0): stage 1 belongs to rank 1"},
        Case{"0F0,7SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (7SEND_F0): the program has 2 stages"},
        Case{"0F0,0SEND_F1,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (0SEND_F1): stage 0 has microbatches 0 to 0"},
        Case{"0F0,0SEND_F99999999,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (0SEND_F99999999): stage 0 has microbatches 0 to 0"},
        Case{"0F0,0SEND_B0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (0SEND_B0): stage 0 is the first of its chain: there is no stage to send to"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1RECV_B0,1B0,1SEND_B0\n",
             "rank 1, step 2 (1RECV_B0): stage 1 is the last of its chain: there is no stage to receive from"},
        Case{"0F0,0SEND_F0,1RECV_F0,1F0,1B0,0B0\n",
             "rank 0, step 1 (0SEND_F0): stages 0 and 1 are both on rank 0, so no transfer is needed between them"},
        Case{"0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 2 (0SEND_F0): 0SEND_F0 is listed twice"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 4 (0RECV_B0): 0RECV_B0 is listed twice"},
        // Missing counterparts.
        Case{"0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 1, step 0 (1RECV_F0): 0SEND_F0 of rank 0 is missing"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
             "rank 0, step 1 (0SEND_F0): 1RECV_F0 of rank 1 is missing"},
        Case{"0F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
             "rank 1, step 0 (1F0): 1RECV_F0 of rank 1 is missing, and so is 0SEND_F0 of rank 0"},
        // Orders.
        Case{"0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 0 (0SEND_F0): 0SEND_F0 comes before the forward that produces its data"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0,1B0\n",
             "rank 1, step 2 (1SEND_B0): 1SEND_B0 comes before the backward that produces its data"},
        Case{"0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n",
             "rank 1, step 0 (1F0): 1F0 comes before 1RECV_F0"},
        Case{"0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 2 (0B0): 0B0 comes before 0RECV_B0"},
        // Sharding and gradients.
        Case{"0F0,0UNSHARD,0B0\n", "rank 0, step 0 (0F0): 0F0 runs while stage 0 is not unsharded"},
        Case{"0UNSHARD,0F0,0RESHARD,0B0\n", "rank 0, step 3 (0B0): 0B0 runs while stage 0 is not unsharded"},
        Case{"0UNSHARD,0UNSHARD,0F0,0B0\n", "rank 0, step 1 (0UNSHARD): stage 0 is already unsharded"},
        Case{"0RESHARD,0UNSHARD,0F0,0B0\n", "rank 0, step 0 (0RESHARD): stage 0 is already sharded"},
        Case{"0UNSHARD,0F0,0B0,3RESHARD\n", "rank 0, step 3 (3RESHARD): the program has 1 stages"},
        Case{"0F0,0F1,0B0,0REDUCE_GRAD,0B1\n",
             "rank 0, step 3 (0REDUCE_GRAD): 1 microbatch has yet to contribute to the gradients of stage 0"},
        Case{"0F0,0I0,0REDUCE_GRAD,0W0\n",
             "rank 0, step 2 (0REDUCE_GRAD): 1 microbatch has yet to contribute to the gradients of stage 0"},
        Case{"0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n",
             "rank 0, step 3 (0REDUCE_GRAD): the gradients of stage 0 are reduced twice"},
        Case{"0F0,0B0,0REDUCE_GRAD\n1F0,1B0\n", "rank 1: 1REDUCE_GRAD is missing"},
        // The send comes after an action that waits for its answer.
        Case{"0F0,0RECV_B0,0B0,0SEND_F0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
             "rank 0, step 2 (0B0): deadlock: rank 0 at step 2 (0B0) waits for 1SEND_B0 of rank 1, rank 1 at step 1 "
             "(1F0) waits for 0SEND_F0 of rank 0"},
        // A compute order that waits in a cycle, with idle cells: steps count them.
        Case{",0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
             "rank 0, step 2 (0B0): deadlock: rank 0 at step 2 (0B0) waits for 1B0 of rank 1, rank 1 at step 1 (1F1) "
             "waits for 0F1 of rank 0"},
        Case{"1F0,0F0,1B0,0B0\n", "rank 0, step 0 (1F0): deadlock: rank 0 at step 0 (1F0) waits for 0F0 of rank 0"}));

TEST(CommunicationCheck, ShowsTheCellsAroundTheFault) {
  const CellProgram program =
      parse_cell_csv("0F0,,(0F1;0B0)OVERLAP_F_B,0B1\n1RECV_F0,1F0,1B0,1F1,1B1\n", "grid.csv", {});
  EXPECT_EQ(render_fault_grid(program, find_fault(program).value()),
            "         rank 0      rank 1\n"
            "step 0     0F0      1RECV_F0\n"
            "step 1                 1F0\n"
            "step 2 [(0F1;0B0)]     1B0  <-- here\n"
            "step 3     0B1         1F1\n"
            "step 4                 1B1\n");
}

TEST(TransferOrder, DiffersWhereARankSendsWhileItsPeerSends) {
  // Both ranks send before they receive: a transport that runs transfers in order waits forever.
  const CellProgram program = parse_cell_csv(
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n",
      "both.csv", {});
  EXPECT_EQ(fault_text(program), "");
  const auto mismatch = find_transfer_mismatch(program);
  ASSERT_TRUE(mismatch.has_value());
  EXPECT_EQ(render_fault(*mismatch),
            "rank 0, step 3 (0SEND_F1): ranks 0 and 1 list their transfers in different orders: next is 0SEND_F1 here "
            "but 1SEND_B0 on rank 1 at step 3");
}

TEST(ChainHint, IsGivenOnlyWhereTwoChainsFit) {
  // DualPipe on two ranks: stages 0 and 1 down, 2 and 3 up.
  const std::string bidirectional = "0F0,3F0,3B0,0B0\n2F0,1F0,1B0,2B0\n";
  EXPECT_EQ(hint_two_chains(parse_csv(bidirectional, "two.csv", {})), "0-1,2-3");
  EXPECT_EQ(hint_two_chains(parse_csv(bidirectional, "two.csv", parse_chains("0-1,2-3"))), std::nullopt);
  // Stages 0 and 1 of a loop: half of it would be a valid chain, in the same direction.
  EXPECT_EQ(hint_two_chains(parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "loop.csv", {})), std::nullopt);
  EXPECT_EQ(hint_two_chains(parse_csv("0F0,3F0,3F0,0B0\n2F0,1F0,1B0,2B0\n", "bad.csv", {})), std::nullopt);
}

}  // namespace
}  // namespace flopcast
