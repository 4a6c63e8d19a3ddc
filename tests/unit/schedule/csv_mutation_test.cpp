// Damaged schedules: any text gives either an error with a position or a valid program.
#include <gtest/gtest.h>

#include <chrono>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/error.hpp"
#include "sim/cells/cell.hpp"
#include "sim/lower/lower.hpp"
#include "sim/schedules/catalogue.hpp"
#include "tests/support/parse_csv.hpp"

namespace flopcast {
namespace {

using Random = std::mt19937;

std::size_t below(Random& random, std::size_t limit) {
  return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  for (const char* name : {"1f1b", "gpipe", "interleaved", "bfs"}) {
    const ScheduleInfo& info = *find_schedule(name);
    const Program program =
        generate_schedule(info, {.pipeline_ranks = 2, .microbatches = 4, .chunks = info.uses_chunks ? 2 : 1});
    texts.push_back(write_csv(program));
    texts.push_back(write_csv(add_communication(program, {})));
    texts.push_back(write_csv(add_communication(program, {.unshard_reshard = false, .defer_receives = true})));
  }
  texts.emplace_back("0F0,0F1,3F0,3I0,3W0,(3F1;0B0)OVERLAP_F_B,3B1,0B1\n1F0,2F0,1F1,2F1,2B0,1B0,2B1,1B1\n");
  return texts;
}

std::vector<std::size_t> commas_of(const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t place = 0; place < text.size(); ++place) {
    if (text[place] == ',' || text[place] == '\n') places.push_back(place);
  }
  return places;
}

// One damage: a byte changed, removed or inserted; a cell removed, duplicated or swapped with its neighbour; or the
// rest lost.
void damage(std::string& text, Random& random) {
  using namespace std::string_view_literals;
  constexpr std::string_view kDamage = "0123456789FBIWSENDRECV_,;()\"\n\r\t \0\xFFx-"sv;
  if (text.size() < 2) {
    text += "0F0,0B0\n";
    return;
  }
  const std::size_t place = below(random, text.size());
  const std::vector<std::size_t> commas = commas_of(text);
  const std::size_t cell = commas.size() < 3 ? 0 : below(random, commas.size() - 2);
  const auto cell_text = [&](std::size_t index) {
    return text.substr(commas[index] + 1, commas[index + 1] - commas[index] - 1);
  };
  switch (below(random, commas.size() < 3 ? 3 : 7)) {
    case 0:
      text[place] = kDamage[below(random, kDamage.size())];
      return;
    case 1:
      text.erase(place, 1 + below(random, 3));
      return;
    case 2:
      text.insert(place, 1, kDamage[below(random, kDamage.size())]);
      return;
    case 3:
      text.erase(commas[cell] + 1, commas[cell + 1] - commas[cell]);
      return;
    case 4:
      text.insert(commas[cell] + 1, cell_text(cell) + ",");
      return;
    case 5: {
      const std::string first = cell_text(cell);
      const std::string second = cell_text(cell + 1);
      const char between = text[commas[cell + 1]];
      text.replace(commas[cell] + 1, commas[cell + 2] - commas[cell] - 1, second + between + first);
      return;
    }
    default:
      text.resize(place);
  }
}

struct Counts {
  int unreadable = 0;
  int invalid = 0;
  int valid = 0;
};

void check(const std::string& text, Counts& counts) {
  SCOPED_TRACE(text);
  CellProgram program;
  try {
    program = parse_cell_csv(text, "damaged.csv", {});
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.diagnostic().where.rfind("damaged.csv", 0), 0U) << error.what();
    EXPECT_FALSE(error.diagnostic().help.empty());
    ++counts.unreadable;
    return;
  }
  EXPECT_EQ(parse_csv(text, "damaged.csv", {}).ranks, compute_of(program).ranks);
  const auto fault = find_fault(program);
  if (!fault) {
    ++counts.valid;
    find_transfer_mismatch(program);
    const Program compute = compute_of(program);
    EXPECT_FALSE(find_fault(compute).has_value());
    EXPECT_FALSE(find_fault(add_communication(compute, {})).has_value());
    StepTimes times;
    times.stages.assign(
        compute.rank_of_stage.size(),
        {.forward = 1, .backward = 2, .input_gradient = 1, .weight_gradient = 1, .fused = std::nullopt});
    times.boundaries.resize(compute.rank_of_stage.size() - 1);
    EXPECT_GT(simulate(compute, times).makespan(), 0);
    return;
  }
  ++counts.invalid;
  EXPECT_FALSE(fault->reason.empty());
  if (fault->rank && fault->step) {
    const std::vector<Cell>& cells = program.ranks.at(static_cast<std::size_t>(*fault->rank));
    ASSERT_LT(static_cast<std::size_t>(*fault->step), cells.size()) << render_fault(*fault);
    // The position is the cell's; for a pair, one of its halves may be named.
    EXPECT_NE(to_string(cells[static_cast<std::size_t>(*fault->step)]).find(fault->cell), std::string::npos)
        << render_fault(*fault);
    EXPECT_NE(render_fault_grid(program, *fault).find("<-- here"), std::string::npos);
  }
}

TEST(DamagedCsv, IsRefusedWithItsPlaceOrRuns) {
  constexpr int kCases = 10'000;
  const std::vector<std::string> texts = seeds();
  Random random(20'260'101);
  Counts counts;
  const auto begin = std::chrono::steady_clock::now();
  for (int number = 0; number < kCases && !testing::Test::HasFailure(); ++number) {
    std::string text = texts[below(random, texts.size())];
    for (std::size_t left = 1 + below(random, 3); left > 0; --left) damage(text, random);
    check(text, counts);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::cout << "damaged schedules: " << counts.unreadable << " unreadable, " << counts.invalid << " invalid, "
            << counts.valid << " still valid, " << seconds << " s\n";
  // Each outcome must occur often, otherwise the damage proves nothing.
  EXPECT_GT(counts.unreadable, kCases / 10);
  EXPECT_GT(counts.invalid, kCases / 10);
  EXPECT_GT(counts.valid, kCases / 50);
}

}  // namespace
}  // namespace flopcast
