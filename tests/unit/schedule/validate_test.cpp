#include "sim/program/validate.hpp"
#include "sim/cells/cell.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

#include "sim/program/program.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

// A rank is not an index of a list by stage, nor the other way round.
template <class List, class Place>
concept Takes = requires(List list, Place place) {
  list[place];
};
static_assert(Takes<ByRank<int>, RankIndex> && Takes<ByRank<int>, int> && Takes<ByStage<int>, StageIndex>);
static_assert(!Takes<ByStage<int>, RankIndex> && !Takes<ByRank<int>, StageIndex>);

std::string fault_text(const Program& program) {
  const auto fault = find_fault(program);
  return fault ? render_fault(*fault) : "";
}

struct Validated {
  std::string csv;
  std::string fault;  ///< empty: valid
  std::string chains = "";

  friend void PrintTo(const Validated& validated, std::ostream* out) { *out << validated.csv; }
};

class Validation : public testing::TestWithParam<Validated> {};

TEST_P(Validation, NamesRankStepActionAndReason) {
  const std::vector<Chain> chains = GetParam().chains.empty() ? std::vector<Chain>{} : parse_chains(GetParam().chains);
  EXPECT_EQ(fault_text(parse_csv(GetParam().csv, "case.csv", chains)), GetParam().fault) << GetParam().csv;
}

INSTANTIATE_TEST_SUITE_P(
    Valid, Validation,
    testing::Values(Validated{"0F0,0B0\n", ""}, Validated{"0F0,0I0,0W0\n", ""},
                    Validated{"0F0,0F1,0I0,0B1,0W0\n1F0,1B0,1F1,1I1,1W1\n", ""},  // B and I/W mixed by microbatch
                    Validated{"0F1,0F0,0B0,0B1\n1F1,1F0,1B0,1B1\n", ""},          // microbatches in any order
                    Validated{"0F0,1F0,1B0,0B0\n", ""},                           // two stages on one rank
                    Validated{"0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0\n", ""},          // V map
                    Validated{"0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,0B1\n", "", "0-0,1-1"}));

INSTANTIATE_TEST_SUITE_P(
    Faulty, Validation,
    testing::Values(
        Validated{"0F0,0B0,0F1,0B1\n0F2,0B2\n",
                  "rank 1, step 0 (0F2): stage 0 belongs to rank 0; n adjacent ranks may share a stage only if "
                  "microbatch k runs on replica k mod n, forward and backward"},
        Validated{"0F0,0B0\n0F1,0B1,1F0,1B0,1F1,1B1\n",
                  "rank 1: the rank holds a replica of stage 0 and therefore cannot execute stage 1 as well"},
        Validated{"0F0,0B0\n0F3,0B3\n1F0,1B0\n",
                  "rank 1: 0F1 never runs: the chain has microbatches 0 to 3 (0F3 on rank 1)"},
        Validated{"0F0,0B0\n2F0,2B0\n", "no rank executes stage 1"},
        Validated{"0F0,0B0\n\n1F0,1B0\n", "rank 1: the rank has no actions"},
        Validated{"0F0,0B0,0F0\n", "rank 0, step 2 (0F0): 0F0 runs a second time"},
        Validated{"0F0,0B0,0B0\n", "rank 0, step 2 (0B0): 0B0 runs a second time"},
        Validated{"0F0,0I0,0W0,0W0\n", "rank 0, step 3 (0W0): 0W0 runs a second time"},
        Validated{"0B0,0F0\n", "rank 0, step 0 (0B0): 0B0 runs before 0F0"},
        Validated{"0F0,0W0,0I0\n", "rank 0, step 1 (0W0): 0W0 runs before 0I0"},
        Validated{
            "0F0,0B0,0W0\n",
            "rank 0, step 2 (0W0): 0W0 runs in addition to 0B0: B combines I and W; zero-bubble papers write B for I"},
        Validated{
            "0F0,0I0,0B0\n",
            "rank 0, step 2 (0B0): 0B0 runs in addition to 0I0: B combines I and W; zero-bubble papers write B for I"},
        Validated{"0F0,0I0\n", "rank 0: 0W0 never runs"}, Validated{"0F0,0F1,0B1\n", "rank 0: 0B0 never runs"},
        Validated{"0F0,0B0,0F2,0B2\n", "rank 0: 0F1 never runs: the chain has microbatches 0 to 2 (0F2 on rank 0)"},
        Validated{"0F0,0F1,0B0,0B1\n1F0,1B0\n",
                  "rank 1: 1F1 never runs: the chain has microbatches 0 to 1 (0F1 on rank 0)"},
        Validated{"0F0,0B0,0B1\n", "rank 0: 0F1 never runs: the chain has microbatches 0 to 1 (0B1 on rank 0)"},
        Validated{"0F99999999,0B99999999\n",
                  "rank 0, step 0 (0F99999999): microbatches must be numbered from 0 without gaps, but there are only "
                  "2 actions"},
        Validated{"0F0,(0F1;0F2)OVERLAP_F_B,0B0,0B1,0B2\n",
                  "rank 0, step 1 (0F1): 0F1 and 0F2 cannot overlap: a pair is one F and one B or I"},
        Validated{"0F0,0I0,(0F1;0W0)OVERLAP_F_B,0B1\n",
                  "rank 0, step 2 (0F1): 0F1 and 0W0 cannot overlap: a pair is one F and one B or I"},
        Validated{"(0F0;0B0)OVERLAP_F_B\n", "rank 0, step 0 (0B0): 0B0 runs before 0F0"},
        // A backward of a later step: a pair counts as one cell of the step.
        Validated{"0F0,(0F1;0B0)OVERLAP_F_B,0B0,0B1\n", "rank 0, step 2 (0B0): 0B0 runs a second time"},
        Validated{"0F0,0B0\n1F0,1B0\n", "the chains cover 1 of 2 stages", "0-0"},
        Validated{"0F0,0B0\n1F0,1B0\n",
                  "chain 1-1 is invalid: chains must be contiguous, and the next one starts at stage 0 of 2", "1-1"},
        Validated{"0F0,0B0\n1F0,1B0\n",
                  "chain 0-2 is invalid: chains must be contiguous, and the next one starts at stage 0 of 2", "0-2"},
        Validated{"0F0,0B0\n1F0,1B0\n",
                  "chain 0-1 is invalid: chains must be contiguous, and the next one starts at stage 1 of 2",
                  "0-0,0-1"}));

INSTANTIATE_TEST_SUITE_P(
    Deadlock, Validation,
    testing::Values(
        // Rank 0 needs the gradient of microbatch 0 before it sends microbatch 1, which rank 1 needs first.
        Validated{
            "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n",
            "rank 0, step 1 (0B0): deadlock: rank 0 at step 1 (0B0) waits for 1B0 of rank 1, rank 1 at step 1 (1F1) "
            "waits for 0F1 of rank 0"},
        // Stage 2 belongs to rank 0 and needs stage 1, which waits for stage 0 later in rank 0's own order.
        Validated{
            "2F0,0F0,2B0,0B0\n1F0,1B0\n",
            "rank 0, step 0 (2F0): deadlock: rank 0 at step 0 (2F0) waits for 1F0 of rank 1, rank 1 at step 0 (1F0) "
            "waits for 0F0 of rank 0"},
        // One rank can block itself.
        Validated{"1F0,0F0,1B0,0B0\n",
                  "rank 0, step 0 (1F0): deadlock: rank 0 at step 0 (1F0) waits for 0F0 of rank 0"},
        // Gradients are awaited by their producer's name.
        Validated{
            "0F0,0B0,0F1,0B1\n1F0,1F1,1I0,1I1,1W0,1W1\n",
            "rank 0, step 1 (0B0): deadlock: rank 0 at step 1 (0B0) waits for 1I0 of rank 1, rank 1 at step 1 (1F1) "
            "waits for 0F1 of rank 0"},
        // Rank 2 waits for the cycle of ranks 0 and 1 but is not part of it.
        Validated{
            "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n",
            "rank 0, step 1 (0B0): deadlock: rank 0 at step 1 (0B0) waits for 1B0 of rank 1, rank 1 at step 1 (1F1) "
            "waits for 0F1 of rank 0"},
        // A pair waits for both halves.
        Validated{
            "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n",
            "rank 0, step 2 (0F2): deadlock: rank 0 at step 2 (0F2) waits for 1B0 of rank 1, rank 1 at step 2 (1F2) "
            "waits for 0F2 of rank 0"}));

TEST(Validation, NamesAtMostEightRanksOfALongCircle) {
  std::string csv;
  for (int rank = 0; rank < 20; ++rank) {
    const std::string stage = std::to_string(rank);
    csv += rank == 19 ? stage + "F0," + stage + "F1," + stage + "B0," + stage + "B1\n"
                      : stage + "F0," + stage + "B0," + stage + "F1," + stage + "B1\n";
  }
  const auto fault = find_fault(parse_csv(csv, "long.csv", {}));
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->reason.find("deadlock"), std::string::npos);
  EXPECT_EQ(fault->cycle.size(), 2U) << "rank 18 and rank 19 wait for each other; the others wait for them";
}

TEST(Validation, OfAProgramWithoutRanksOrWithAWrongMap) {
  EXPECT_EQ(fault_text(Program{}), "the chains cover 0 of 0 stages");
  Program program = parse_csv("0F0,0B0\n", "one.csv", {});
  program.rank_of_stage = {7};
  EXPECT_EQ(fault_text(program), "no rank executes stage 0");
  program.rank_of_stage = {0};
  program.ranks[0][1].overlaps_next = true;
  EXPECT_EQ(fault_text(program), "rank 0, step 1 (0B0): the overlapped pair has no second half");
  program = parse_csv("0F0,0B0,1F0,1B0\n", "two.csv", {});
  program.rank_of_stage = {0};
  program.chains = {Chain{0, 0}};
  EXPECT_EQ(fault_text(program), "rank 0, step 2 (1F0): the program has 1 stages");
}

TEST(Validation, IsLinear) {
  const Program large =
      generate_schedule(*find_schedule("interleaved"), {.pipeline_ranks = 64, .microbatches = 4096, .chunks = 4});
  EXPECT_EQ(large.action_count(), 2U * 64 * 4096 * 4);
  EXPECT_EQ(fault_text(large), "");
  std::string one_rank = "0F0,0B0";
  for (int stage = 1; stage < 60'000; ++stage)
    one_rank += "," + std::to_string(stage) + "F0," + std::to_string(stage) + "B0";
  std::string chains = "0-0";
  for (int stage = 1; stage < 60'000; ++stage) chains += "," + std::to_string(stage) + "-" + std::to_string(stage);
  EXPECT_EQ(fault_text(parse_csv(one_rank, "many.csv", parse_chains(chains))), "");
}

TEST(FaultGrid, MarksTheCellsAtFault) {
  const Program program = parse_csv("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n", "cycle.csv", {});
  EXPECT_EQ(render_fault_grid(program, find_fault(program).value()),
            "       rank 0 rank 1\n"
            "step 0  0F0    1F0\n"
            "step 1 [0B0]  [1F1]  <-- here\n"
            "step 2  0F1    1B0\n"
            "step 3  0B1    1B1\n");
}

TEST(FaultGrid, ShowsAPairAsOneStepAndRanksOfUnequalLength) {
  const Program program = parse_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n1F0,1B0,1F1,1B1,1B1\n", "pair.csv", {});
  EXPECT_EQ(render_fault_grid(program, find_fault(program).value()),
            "         rank 0      rank 1\n"
            "step 0     0F0         1F0\n"
            "step 1  (0F1;0B0)      1B0\n"
            "step 2     0B1         1F1\n"
            "step 3                 1B1\n"
            "step 4                [1B1]  <-- here\n");
}

TEST(FaultGrid, ShowsAWindowOfALargeProgram) {
  Program program = generate_schedule(*find_schedule("1f1b"), {.pipeline_ranks = 40, .microbatches = 500});
  std::swap(program.ranks[30][400], program.ranks[30][401]);
  program.ranks[30][401] = program.ranks[30][400];
  const auto fault = find_fault(program);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->rank, 30);
  const std::string grid = render_fault_grid(program, *fault);
  EXPECT_NE(grid.find("(16 of 40 ranks)"), std::string::npos) << grid;
  EXPECT_NE(grid.find("<-- here"), std::string::npos) << grid;
  EXPECT_LE(std::count(grid.begin(), grid.end(), '\n'), 41);
}

TEST(FaultGrid, OfAMissingActionMarksNothing) {
  const Program program = parse_csv("0F0,0I0\n", "missing.csv", {});
  EXPECT_EQ(render_fault_grid(program, find_fault(program).value()),
            "       rank 0\n"
            "step 0  0F0\n"
            "step 1  0I0\n");
}

TEST(PeakInFlight, ReleasesAtBAndWAndCountsThePairsForwardFirst) {
  const auto peak = [](const std::string& csv) { return peak_in_flight(parse_csv(csv, "peak.csv", {})).at(0); };
  EXPECT_EQ(peak("0F0,0B0,0F1,0B1\n"), 1);
  EXPECT_EQ(peak("0F0,0I0,0F1,0I1,0W0,0W1\n"), 2) << "I releases nothing";
  EXPECT_EQ(peak("0F0,0F1,0B0,0F2,0B1,0B2\n"), 2);
  EXPECT_EQ(peak("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n"), 3);
  EXPECT_EQ(peak("0F0,0F1,(0B0;0F2)OVERLAP_F_B,0B1,0B2\n"), 3);
}

}  // namespace
}  // namespace flopcast
