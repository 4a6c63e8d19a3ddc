#include "sim/schedule/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "model/error/error.hpp"
#include "sim/schedule/catalogue.hpp"
#include "sim/schedule/communication/cell.hpp"
#include "sim/schedule/csv_cells.hpp"
#include "sim/schedule/text.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kPairSuffix = ")OVERLAP_F_B";
constexpr std::string_view kDigits = "0123456789";

void include_stage(std::vector<int>& rank_of_stage, std::size_t stage, int rank) {
  if (stage >= rank_of_stage.size()) rank_of_stage.resize(stage + 1, -1);
  if (rank_of_stage[stage] == -1) rank_of_stage[stage] = rank;
}

// What read_cells finds beside the cells; stages belong to the rank that executes them first.
struct CsvReading {
  std::size_t lines = 0;
  std::vector<int> rank_of_stage;
};

template <typename Keep>
CsvReading read_cells(std::string_view text, std::string_view file_name, Keep keep) {
  CsvReading reading;
  std::size_t kept = 0;
  reading.lines = for_each_cell(text, file_name, [&](std::string_view written, const CsvPlace& place) {
    const std::optional<Cell> cell = parse_cell(written);
    if (!cell) fail_at_cell(place, written);
    const std::size_t rank = place.line - 1;
    for_each_action(*cell, [&reading, rank](const Action& action) {
      include_stage(reading.rank_of_stage, action.stage, static_cast<int>(rank));
    });
    kept += keep(*cell, rank);
    if (kept > kMaxActions) fail_at(place, "the file has too many actions", fmt::format("at most {}", kMaxActions));
  });
  if (!reading.rank_of_stage.empty()) return reading;
  throw ConfigError(Diagnostic{.field = "schedule",
                               .problem = reading.lines == 0 ? "the file is empty" : "the file has no action",
                               .where = std::string(file_name),
                               .help = "one line a rank, cells such as 2F0 separated by commas"});
}

template <typename AnyProgram>
void fill_in(AnyProgram& program, CsvReading reading, std::string_view file_name, const std::vector<Chain>& chains) {
  program.schedule = std::string(file_name);
  program.ranks.resize(reading.lines);
  program.rank_of_stage = std::move(reading.rank_of_stage);
  program.chains = chains;
  if (chains.empty()) program.chains = {Chain{.first_stage = 0, .last_stage = program.stage_count() - 1}};
}

// The list of `rank`, which is the last one there is or a new one.
template <typename Element>
std::vector<Element>& list_of(std::vector<std::vector<Element>>& ranks, std::size_t rank) {
  if (ranks.size() <= rank) ranks.resize(rank + 1);
  return ranks[rank];
}

void append_actions(const Cell& cell, std::vector<Action>& actions) {
  for_each_action(cell, [&actions](const Action& action) { actions.push_back(action); });
  if (cell.kind == CellKind::kPair) actions[actions.size() - 2].overlaps_next = true;
}

}  // namespace

std::string write_csv(const Program& program) {
  std::string text;
  const auto append = [&text](const Action& action) {
    const fmt::format_int stage(action.stage);
    const fmt::format_int microbatch(action.microbatch);
    text.append(stage.data(), stage.size());
    text += letter_of(action.kind);
    text.append(microbatch.data(), microbatch.size());
  };
  for (const std::vector<Action>& actions : program.ranks) {
    for (std::size_t index = 0; index < actions.size(); ++index) {
      if (index > 0) text += ',';
      const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
      if (pair) text += '(';
      append(actions[index]);
      if (!pair) continue;
      text += ';';
      append(actions[++index]);
      text += kPairSuffix;
    }
    text += '\n';
  }
  return text;
}

std::string write_csv(const LoweredProgram& program) {
  std::string text;
  for (const std::vector<Cell>& cells : program.ranks) {
    for (std::size_t step = 0; step < cells.size(); ++step) text += (step == 0 ? "" : ",") + to_string(cells[step]);
    text += '\n';
  }
  return text;
}

Program parse_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  Program program;
  CsvReading reading = read_cells(text, file_name, [&program](const Cell& cell, std::size_t rank) {
    if (!is_compute(cell.kind)) return 0;
    append_actions(cell, list_of(program.ranks, rank));
    return cell.kind == CellKind::kPair ? 2 : 1;
  });
  fill_in(program, std::move(reading), file_name, chains);
  return program;
}

LoweredProgram parse_lowered_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  LoweredProgram program;
  CsvReading reading = read_cells(text, file_name, [&program](const Cell& cell, std::size_t rank) {
    list_of(program.ranks, rank).push_back(cell);
    return 1;
  });
  fill_in(program, std::move(reading), file_name, chains);
  return program;
}

namespace {

std::optional<int> parse_stage(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.size() > 5 || text.find_first_not_of(kDigits) != std::string_view::npos) return std::nullopt;
  int stage = 0;
  for (const char digit : text) stage = stage * 10 + (digit - '0');
  if (stage >= static_cast<int>(kMaxStages)) return std::nullopt;
  return stage;
}

}  // namespace

std::vector<Chain> parse_chains(std::string_view text) {
  std::vector<Chain> chains;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view range = text.substr(begin, end - begin);
    const std::size_t dash = std::min(range.find('-'), range.size());
    const std::optional<int> first = parse_stage(range.substr(0, dash));
    const std::optional<int> last = dash < range.size() ? parse_stage(range.substr(dash + 1)) : std::nullopt;
    if (!first || !last || *first > *last) {
      throw ConfigError(Diagnostic{.field = "chains",
                                   .problem = fmt::format("{} is no range of stages", quote(range)),
                                   .where = "",
                                   .help = "first-last, ascending, separated by commas, such as 0-3,4-7"});
    }
    chains.push_back(Chain{.first_stage = *first, .last_stage = *last});
    begin = end + 1;
  }
  return chains;
}

}  // namespace flopcast
