#include "sim/cells/cell.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

constexpr std::string_view kTwoRanks = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";

TEST(Csv, GivesBackEveryGeneratedProgram) {
  for (const ScheduleInfo& info : schedule_catalogue()) {
    ScheduleRequest request{.pipeline_ranks = 3, .microbatches = 6, .chunks = info.default_chunks};
    if (refuse_request(info, request)) request.pipeline_ranks = 2;  // bidirectional ones need an even number
    const Program program = generate_schedule(info, request);
    const Program again = parse_csv(write_csv(program), "again.csv", program.chains);
    EXPECT_EQ(again.ranks, program.ranks) << info.name;
    EXPECT_EQ(again.rank_of_stage, program.rank_of_stage) << info.name;
    ASSERT_EQ(again.chains.size(), program.chains.size());
    EXPECT_EQ(again.chains.back().last_stage, program.stage_count() - 1) << info.name;
    if (program.chains.size() == 1) {
      EXPECT_EQ(parse_csv(write_csv(program), "again.csv", {}).chains[0].last_stage, program.stage_count() - 1);
    }
    EXPECT_EQ(again.schedule, "again.csv");
  }
}

TEST(Csv, WritesAPairAsOneCell) {
  const std::string text = "0F0,(0F1;1B0)OVERLAP_F_B,1I1,1W1\n";
  const Program program = parse_csv(text, "pair.csv", {});
  ASSERT_EQ(program.ranks.at(0).size(), 5U);
  EXPECT_TRUE(program.ranks[0][1].overlaps_next);
  EXPECT_FALSE(program.ranks[0][2].overlaps_next);
  EXPECT_EQ(program.ranks[0][2].kind, ActionKind::kBackward);
  EXPECT_EQ(write_csv(program), text);
}

TEST(Csv, InfersRanksAndKeepsTheGivenChains) {
  const Program program = parse_csv("0F0,3F0\n1F0,2F0\n", "v.csv", parse_chains("0-1,2-3"));
  EXPECT_EQ(program.rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
  ASSERT_EQ(program.chains.size(), 2U);
  EXPECT_EQ(program.chains[1].first_stage, 2);
  EXPECT_EQ(program.chains[1].last_stage, 3);
}

TEST(Csv, LeavesStagesAndRanksThatAreMissingToValidation) {
  const Program program = parse_csv("0F0\n\n2F0\n", "gap.csv", {});
  EXPECT_EQ(program.rank_of_stage, (std::vector<int>{0, -1, 2}));
  EXPECT_TRUE(program.ranks.at(1).empty());
}

class SameAsTwoRanks : public testing::TestWithParam<std::string> {};

TEST_P(SameAsTwoRanks, IsReadAlike) {
  EXPECT_EQ(write_csv(parse_csv(GetParam(), "two.csv", {})), kTwoRanks);
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, SameAsTwoRanks,
    testing::Values("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1",                             // no newline at the end
                    "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n",                       // CRLF
                    "\xEF\xBB\xBF"                                                  // byte order mark
                    "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",                           //
                    "0F0,0F1,,,0B0,0B1,\n,1F0,1B0,1F1,1B1,,\n",                     // idle steps
                    " 0F0 ,\t0F1, 0B0 , 0B1\n1F0 , 1B0,  ,1F1,1B1   \n\n \n",       // blanks, blank lines at the end
                    "\"0F0\",\"0F1\", \"0B0\" ,0B1,\"\"\n1F0,1B0,\" 1F1 \",1B1\n",  // quotes
                    "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\n"
                    "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"));  // lowered

struct Malformed {
  std::string text;
  std::string where;
  std::string problem;

  friend void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.problem; }
};

class MalformedCsv : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedCsv, IsRefusedWithItsPlaceAndText) {
  try {
    parse_csv(GetParam().text, "bad.csv", {});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "schedule");
    EXPECT_EQ(error.diagnostic().where, GetParam().where);
    EXPECT_NE(error.diagnostic().problem.find(GetParam().problem), std::string::npos) << error.what();
    EXPECT_FALSE(error.diagnostic().help.empty());
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Texts, MalformedCsv,
    testing::Values(Malformed{"", "bad.csv", "the file is empty"},
                    Malformed{"\n\n  \r\n", "bad.csv", "the file is empty"},
                    Malformed{",,,\n,,\n", "bad.csv", "the file has no actions"},
                    Malformed{"0SEND_F0,0RECV_B0\n", "bad.csv", "the file has no actions"},
                    Malformed{"step 0,step 1\n0F0,0B0\n", "bad.csv:1:1", "cell 'step 0' is not an action"},
                    Malformed{"0F0,0B0\n1F0,1X0\n", "bad.csv:2:2", "cell '1X0' is not an action"},
                    Malformed{"0F0,,0BW0\n", "bad.csv:1:3", "cell '0BW0' is not an action"},
                    Malformed{"F0\n", "bad.csv:1:1", "cell 'F0' is not an action"},
                    Malformed{"0F\n", "bad.csv:1:1", "cell '0F' is not an action"},
                    Malformed{"0f0\n", "bad.csv:1:1", "cell '0f0' is not an action"},
                    Malformed{"-1F0\n", "bad.csv:1:1", "cell '-1F0' is not an action"},
                    Malformed{"0F-1\n", "bad.csv:1:1", "cell '0F-1' is not an action"},
                    Malformed{"0F0 0B0\n", "bad.csv:1:1", "cell '0F0 0B0' is not an action"},
                    Malformed{"0F0;0B0\n", "bad.csv:1:1", "cell '0F0;0B0' is not an action"},
                    Malformed{"0F1.5\n", "bad.csv:1:1", "cell '0F1.5' is not an action"},
                    Malformed{"65535F0\n", "bad.csv:1:1", "a number in cell '65535F0' is too large"},
                    Malformed{"0F0,0B100000000\n", "bad.csv:1:2", "a number in cell '0B100000000' is too large"},
                    Malformed{"0F99999999999999999999999999\n", "bad.csv:1:1", "is too large"},
                    Malformed{"(0F0;0B0)\n", "bad.csv:1:1", "cell '(0F0;0B0)' is not an action"},
                    Malformed{"(0F0,0B0)OVERLAP_F_B\n", "bad.csv:1:1", "cell '(0F0' is not an action"},
                    Malformed{"(0F0;)OVERLAP_F_B\n", "bad.csv:1:1", "cell '(0F0;)OVERLAP_F_B' is not an action"},
                    Malformed{"(;)OVERLAP_F_B\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"()OVERLAP_F_B\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"(0F0;0B0;0F1)OVERLAP_F_B\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"((0F0;0B0)OVERLAP_F_B;0F1)OVERLAP_F_B\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"(OVERLAP_F_B;\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"0F0,\"0B0\n", "bad.csv:1:2", "has no closing quote"},
                    Malformed{"\"0F0\"0B0\n", "bad.csv:1:1", "is not an action"},
                    Malformed{"\"0F0,0B0\"\n", "bad.csv:1:1", "cell '0F0,0B0' is not an action"},
                    Malformed{"0SEND_X0\n", "bad.csv:1:1", "cell '0SEND_X0' is not an action"},
                    Malformed{"0SEND_F0F\n", "bad.csv:1:1", "cell '0SEND_F0F' is not an action"},
                    Malformed{"{\"model\": 1}\n", "bad.csv:1:1", "cell '{\"model\": 1}' is not an action"},
                    Malformed{std::string("0F0\0,0B0\n", 9), "bad.csv:1:1", "cell '0F0?' is not an action"},
                    Malformed{"\x7F"
                              "ELF\n",
                              "bad.csv:1:1", "cell '?ELF' is not an action"},
                    Malformed{"0F0," + std::string(1'000'000, '7') + "\n", "bad.csv:1:2", "cell '77777"},
                    Malformed{"(" + std::string(1'000'000, '('), "bad.csv:1:1", "cell '((((("},
                    Malformed{std::string(1'000'000, '"'), "bad.csv:1:1", "is not an action"},
                    Malformed{std::string(70'000, '\n') + "0F0\n", "bad.csv:65536:1", "too many lines"}));

TEST(Csv, ReadsAMillionCellsOfOneLine) {
  std::string text;
  for (int microbatch = 0; microbatch < 500'000; ++microbatch) {
    text += "0F" + std::to_string(microbatch) + ",0B" + std::to_string(microbatch) + ",";
  }
  EXPECT_EQ(parse_csv(text, "long.csv", {}).action_count(), 1'000'000U);
}

TEST(Chains, AreRangesOfStages) {
  const std::vector<Chain> chains = parse_chains("0-3, 4-7");
  ASSERT_EQ(chains.size(), 2U);
  EXPECT_EQ(chains[0].last_stage, 3);
  EXPECT_EQ(chains[1].first_stage, 4);
  EXPECT_EQ(parse_chains("2-2").size(), 1U);
}

TEST(Chains, RefuseWhatIsNoRange) {
  for (const std::string text :
       {"", "0", "0-", "-3", "3-0", "0-3,", ",", "a-b", "0-3-5", "0-99999", "0-999999999999"}) {
    try {
      parse_chains(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().field, "chains");
    }
  }
}

}  // namespace
}  // namespace flopcast
