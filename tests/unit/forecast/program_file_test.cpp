// A schedule that is exported and read back is unchanged.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "sim/cells/cell.hpp"
#include "sim/forecast/forecast.hpp"
#include "tests/unit/model/jobs.hpp"

namespace flopcast {
namespace {

// The job has 64 devices: dp uses the remainder.
std::string layout_of(int ranks, int microbatches, const std::string& more) {
  return fmt::format(R"({{"tp": 8, "pp": {}, "global_batch_size": {}{}}})", ranks, microbatches * 8 / ranks, more);
}

Forecast forecast_file(const std::string& csv, int ranks, int microbatches, const std::string& more = "") {
  return forecast(job_from(gpt3_job(layout_of(ranks, microbatches, R"(, "schedule": "file:own.csv")" + more))),
                  [&csv](const std::string&) { return csv; });
}

std::string chains_key(const Program& program) {
  if (program.chains.size() == 1) return "";
  std::string text;
  for (const Chain& chain : program.chains) {
    text += fmt::format("{}{}-{}", text.empty() ? "" : ",", chain.first_stage, chain.last_stage);
  }
  return R"(, "chains": ")" + text + '"';
}

// Asynchronous schedules are left out, because a file is one step with a flush, and so are those that split
// microbatches into slices, because a file has whole microbatches.
bool is_whole_in_a_file(const ScheduleInfo& info) {
  for (const auto number : info.reads) {
    if (number == &ScheduleRequest::slices) return false;
  }
  return !info.asynchronous;
}

TEST(ProgramFile, OfEveryScheduleTakesAsLongAsTheScheduleByName) {
  int compared = 0;
  for (const ScheduleInfo& info : schedule_catalogue()) {
    if (!is_whole_in_a_file(info)) continue;
    int of_this = 0;
    for (const auto& [ranks, microbatches] : {std::pair(2, 4), {4, 8}, {4, 16}, {8, 16}}) {
      for (const int chunks : {info.default_chunks, 2, 3}) {
        ScheduleRequest request{.pipeline_ranks = ranks, .microbatches = microbatches, .chunks = chunks};
        const bool refused = refuse_request(info, request).has_value();
        if (refused || (chunks != info.default_chunks && !info.uses_chunks)) continue;
        SCOPED_TRACE(fmt::format("{} pp {} m {} vpp {}", info.name, ranks, microbatches, chunks));
        const std::string named = fmt::format(R"(, "schedule": "{}", "vpp": {})", info.name, chunks);
        const Forecast expected = forecast(job_from(gpt3_job(layout_of(ranks, microbatches, named))), no_files);
        const Program& program = expected.step.program;
        const CellProgram cells = add_communication(program, {});
        for (const std::string& csv : {write_csv(program), write_csv(cells)}) {
          EXPECT_FALSE(find_fault(parse_cell_csv(csv, "own.csv", program.chains)).has_value());
          const Forecast read = forecast_file(csv, ranks, microbatches, chains_key(program));
          EXPECT_EQ(read.result.iteration.time_s, expected.result.iteration.time_s);
          EXPECT_EQ(read.step.job.layout.microbatches(), microbatches);
          EXPECT_EQ(read.step.program.ranks, program.ranks);
          EXPECT_EQ(read.step.program.rank_of_stage, program.rank_of_stage);
        }
        ++of_this;
      }
    }
    EXPECT_GE(of_this, 2) << info.name;
    compared += of_this;
  }
  std::cout << "schedules exported, read back and forecast: " << compared << '\n';
  EXPECT_GE(compared, 30);
}

// V map, split backward, overlapped pairs, on two ranks.
const char* const kV = "0F0,0F1,3F0,3I0,3W0,(3F1;0B0)OVERLAP_F_B,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n";
const char* const kBidirectional = "0F0,3F0,3B0,0B0\n2F0,1F0,1B0,2B0\n";

TEST(ProgramFile, MayHoldAVMapPairsAndASplitBackward) {
  const Forecast read = forecast_file(kV, 2, 2);
  EXPECT_EQ(read.step.job.layout.vpp, 2);
  EXPECT_EQ(read.step.stages.rank_of_stage, std::vector<int>({0, 1, 1, 0}));
  EXPECT_GT(read.result.iteration.time_s, 0);
}

TEST(ProgramFile, OfTwoChainsNeedsToBeTold) {
  const Forecast read = forecast_file(kBidirectional, 2, 2, R"(, "chains": "0-1,2-3")");
  EXPECT_EQ(read.step.stages.model_stages, 2);
  EXPECT_EQ(read.step.program.chains.size(), 2U);
  try {
    forecast_file(kBidirectional, 2, 2);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().field, "layout.schedule");
    EXPECT_EQ(error.diagnostic().help, "valid as a bidirectional schedule: layout.chains 0-1,2-3");
  }
}

struct Refusal {
  std::string csv;
  std::string more;
  std::string field;
  std::string problem;
};

TEST(ProgramFile, ThatDoesNotFitTheJobIsRefused) {
  const std::string plain = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
  const Refusal refusals[] = {
      {"0F0,0F1,0B0,0B1\n", "", "layout.pp", "2 pipeline ranks, but own.csv has 1 lines"},
      {"0F0,0B0\n1F0,1B0\n", "", "layout.global_batch_size", "2 microbatches per pipeline, but own.csv has 1"},
      {plain, R"(, "vpp": 2)", "layout.vpp", "2 stages per rank, but own.csv has 1"},
      {plain, R"(, "group_size": 2)", "layout.group_size", "2 has no effect on a schedule from a file"},
      {plain, R"(, "chains": "all")", "layout.chains", "'all' is not a range of stages"},
      {kBidirectional, R"(, "chains": "0-0,1-3")", "layout.schedule", "deadlock"},
      {"0F0,1F0,1B0,0B0\n2F0,2B0\n", R"(, "chains": "0-1,2-2")", "layout.chains", "have unequal lengths"}};
  for (const Refusal& refusal : refusals) {
    SCOPED_TRACE(refusal.csv + refusal.more);
    try {
      forecast_file(refusal.csv, 2, 2, refusal.more);
      ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.diagnostic().field, refusal.field) << error.what();
      EXPECT_NE(error.diagnostic().problem.find(refusal.problem), std::string::npos) << error.what();
    }
  }
  const std::string named = layout_of(2, 2, R"(, "schedule": "1f1b", "chains": "0-0,1-1")");
  EXPECT_THROW(forecast(job_from(gpt3_job(named)), no_files), ConfigError);
}

TEST(ProgramFile, LeavesCommunicationsOutAndSaysSo) {
  const Forecast read = forecast_file("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 2, 1);
  bool said = false;
  for (const std::string& note : read.step.job.assumptions)
    said = said || note.find("4 communications of own.csv") == 0;
  EXPECT_TRUE(said);
}

}  // namespace
}  // namespace flopcast
