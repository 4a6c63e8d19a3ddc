#include "sim/cells/cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

// A cell of a CSV text; line and cell count from 1.
struct CsvPlace {
  std::string_view file;
  std::size_t line = 1;
  std::size_t cell = 1;
};

// Throws ConfigError (field "schedule", where "file.csv:LINE:CELL").
[[noreturn]] void fail_at(const CsvPlace& place, std::string problem, std::string help);
// Same, for a text that is not a cell; the help suggests what it may have been meant to be.
[[noreturn]] void fail_at_cell(const CsvPlace& place, std::string_view cell);

// Removes the next cell and the comma after it from `line`; returns the cell without blanks and quotes.
std::string_view take_cell(std::string_view& line, const CsvPlace& place) {
  const std::size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  if (begin == line.size() || line[begin] != '"') {
    const std::size_t comma = std::min(line.find(','), line.size());
    const std::string_view cell = trim(line.substr(0, comma));
    line.remove_prefix(std::min(comma + 1, line.size()));
    return cell;
  }
  const std::size_t end = line.find('"', begin + 1);
  if (end == std::string_view::npos) {
    fail_at(place, fmt::format("cell {} has no closing quote", quote(trim(line))), "quote whole cells or none");
  }
  const std::size_t comma = std::min(line.find(',', end), line.size());
  if (!trim(line.substr(end + 1, comma - end - 1)).empty()) fail_at_cell(place, trim(line.substr(0, comma)));
  const std::string_view cell = trim(line.substr(begin + 1, end - begin - 1));
  line.remove_prefix(std::min(comma + 1, line.size()));
  return cell;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  return text;
}

void visit_line(std::string_view line, CsvPlace place,
                const std::function<void(std::string_view, const CsvPlace&)>& visit) {
  while (!line.empty()) {
    const CsvPlace here = place;
    visit(take_cell(line, here), here);
    ++place.cell;
  }
}

// The letters between the two numbers of `cell`; empty unless it consists of number, letters, number.
std::string_view word_of(std::string_view cell) {
  const std::size_t begin = std::min(cell.find_first_not_of(kDecimalDigits), cell.size());
  const std::size_t end = std::min(cell.find_first_of(kDecimalDigits, begin), cell.size());
  const bool well_formed =
      begin > 0 && end < cell.size() && cell.find_first_not_of(kDecimalDigits, end) == std::string_view::npos;
  return well_formed ? cell.substr(begin, end - begin) : std::string_view();
}

std::string help_for(std::string_view cell) {
  if (word_of(cell) == "BW") {
    return "zero-bubble papers and old PyTorch dumps write BW for the whole backward pass and B for its input-gradient "
           "part: rename B to I, then BW to B";
  }
  const std::size_t separator = cell.find_first_of("; \t");
  const bool separated = cell.find('(') == std::string_view::npos && separator != std::string_view::npos &&
                         parse_action(cell.substr(0, separator)).has_value();
  if (separated) return "separate cells with commas: one line per rank, cells such as 2F0";
  return "<stage><F|B|I|W><microbatch> such as 2F0, a pair (3F1;0B0)OVERLAP_F_B, or an empty cell; one line per rank, "
         "no header";
}

// Calls `visit` with every cell of the text, line by line, without surrounding blanks and quotes; accepts a byte order
// mark, CRLF and blank lines at the end. Returns the number of lines. Throws ConfigError (field "schedule") on an
// unclosed quote and on more lines than a program can have ranks.
std::size_t for_each_cell(std::string_view text, std::string_view file_name,
                          const std::function<void(std::string_view, const CsvPlace&)>& visit) {
  text = without_byte_order_mark(text);
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  std::size_t lines = 0;
  while (!text.empty()) {
    const CsvPlace place{.file = file_name, .line = lines + 1, .cell = 1};
    if (lines == kMaxStages) {
      fail_at(place, "the file has too many lines", fmt::format("use one line per rank, at most {}", kMaxStages));
    }
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit_line(text.substr(0, end), place, visit);
    ++lines;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void fail_at(const CsvPlace& place, std::string problem, std::string help) {
  throw ConfigError(Diagnostic{.field = "schedule",
                               .problem = std::move(problem),
                               .where = fmt::format("{}:{}:{}", place.file, place.line, place.cell),
                               .help = std::move(help)});
}

void fail_at_cell(const CsvPlace& place, std::string_view cell) {
  const std::string_view word = word_of(cell);
  constexpr std::array<std::string_view, 8> kKnown = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  if (std::find(kKnown.begin(), kKnown.end(), word) != kKnown.end()) {
    fail_at(place, fmt::format("a number in cell {} is too large", quote(cell)),
            fmt::format("use stages below {} and microbatches below {}", kMaxStages, kMaxMicrobatches));
  }
  fail_at(place, fmt::format("cell {} is not an action", quote(cell)), help_for(cell));
}

void include_stage(ByStage<int>& rank_of_stage, std::size_t stage, int rank) {
  if (stage >= rank_of_stage.size()) rank_of_stage.resize(stage + 1, -1);
  if (rank_of_stage[stage] == -1) rank_of_stage[stage] = rank;
}

// A stage belongs to the rank that executes it first.
CellProgram read_cells(std::string_view text, std::string_view file_name) {
  CellProgram program;
  std::size_t kept = 0;
  const std::size_t lines = for_each_cell(text, file_name, [&](std::string_view written, const CsvPlace& place) {
    const std::optional<Cell> cell = parse_cell(written);
    if (!cell) fail_at_cell(place, written);
    const std::size_t rank = place.line - 1;
    for_each_action(*cell, [&program, rank](const Action& action) {
      include_stage(program.rank_of_stage, action.stage, static_cast<int>(rank));
    });
    if (program.ranks.size() <= rank) program.ranks.resize(rank + 1);
    program.ranks[rank].push_back(*cell);
    if (++kept > kMaxActions)
      fail_at(place, "the file has too many actions", fmt::format("use at most {} actions", kMaxActions));
  });
  if (program.rank_of_stage.empty()) {
    throw ConfigError(Diagnostic{.field = "schedule",
                                 .problem = lines == 0 ? "the file is empty" : "the file has no actions",
                                 .where = std::string(file_name),
                                 .help = "write one line per rank, with cells such as 2F0 separated by commas"});
  }
  program.ranks.resize(lines);
  return program;
}

std::optional<int> parse_stage(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.size() > 5 || text.find_first_not_of(kDecimalDigits) != std::string_view::npos)
    return std::nullopt;
  int stage = 0;
  for (const char digit : text) stage = stage * 10 + (digit - '0');
  if (stage >= static_cast<int>(kMaxStages)) return std::nullopt;
  return stage;
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

std::string write_csv(const CellProgram& program) {
  std::string text;
  for (const std::vector<Cell>& cells : program.ranks) {
    for (std::size_t step = 0; step < cells.size(); ++step) text += (step == 0 ? "" : ",") + to_string(cells[step]);
    text += '\n';
  }
  return text;
}

CellProgram parse_cell_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  CellProgram program = read_cells(text, file_name);
  program.schedule = std::string(file_name);
  program.chains = chains;
  if (chains.empty()) program.chains = {Chain{.first_stage = 0, .last_stage = program.stage_count() - 1}};
  program.replicas_of_stage = infer_replicas(compute_of(program));
  if (!program.replicas_of_stage.empty() && program.communication_count() > 0) {
    throw ConfigError(
        Diagnostic{.field = "schedule",
                   .problem = "the file lists communications of replicated stages, which is not supported",
                   .where = std::string(file_name),
                   .help = "remove SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD"});
  }
  return program;
}

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
                                   .problem = fmt::format("{} is not a range of stages", quote(range)),
                                   .where = "",
                                   .help = "write ascending ranges separated by commas, such as 0-3,4-7"});
    }
    chains.push_back(Chain{.first_stage = *first, .last_stage = *last});
    begin = end + 1;
  }
  return chains;
}

}  // namespace flopcast
