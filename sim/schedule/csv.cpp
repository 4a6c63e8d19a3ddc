#include "sim/schedule/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "model/error/error.hpp"
#include "sim/schedule/catalogue.hpp"
#include "sim/schedule/text.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kPairSuffix = ")OVERLAP_F_B";
constexpr std::string_view kDigits = "0123456789";

struct Place {
  std::string_view file;
  std::size_t line;
  std::size_t cell;
};

[[noreturn]] void fail_at(const Place& place, std::string problem, std::string help) {
  throw ConfigError(Diagnostic{.field = "schedule",
                               .problem = std::move(problem),
                               .where = fmt::format("{}:{}:{}", place.file, place.line, place.cell),
                               .help = std::move(help)});
}

[[noreturn]] void fail_at_cell(const Place& place, std::string_view cell) {
  const std::size_t letter = std::min(cell.find_first_not_of(kDigits), cell.size());
  const std::size_t rest = std::min(cell.find_first_not_of(kDigits, letter + 1), cell.size());
  const bool well_formed = letter > 0 && letter + 1 < cell.size() && rest == cell.size() &&
                           std::string_view("FBIW").find(cell[letter]) != std::string_view::npos;
  if (well_formed) {
    fail_at(place, fmt::format("cell {} has too large a number", quote(cell)),
            fmt::format("stages below {}, microbatches below {}", kMaxStages, kMaxMicrobatches));
  }
  fail_at(place, fmt::format("cell {} is no action", quote(cell)),
          "<stage><F|B|I|W><microbatch> such as 2F0, a pair (3F1;0B0)OVERLAP_F_B, or an empty cell; one line a rank, "
          "no header");
}

// A transfer or a step of parameter sharding in a lowered dump: stage, word, and a microbatch or nothing.
bool is_lowered_action(std::string_view cell) {
  constexpr std::array<std::string_view, 7> kWords = {"SEND_F",  "RECV_F",  "SEND_B",     "RECV_B",
                                                      "UNSHARD", "RESHARD", "REDUCE_GRAD"};
  const std::size_t begin = cell.find_first_not_of(kDigits);
  if (begin == 0 || begin == std::string_view::npos) return false;
  const std::size_t end = std::min(cell.find_first_of(kDigits, begin), cell.size());
  if (cell.find_first_not_of(kDigits, end) != std::string_view::npos) return false;
  return std::find(kWords.begin(), kWords.end(), cell.substr(begin, end - begin)) != kWords.end();
}

void append_pair(std::string_view cell, const Place& place, std::vector<Action>& actions) {
  const std::size_t separator = cell.find(';');
  const bool closed = cell.size() > kPairSuffix.size() &&
                      cell.substr(cell.size() - kPairSuffix.size()) == kPairSuffix &&
                      separator != std::string_view::npos;
  if (!closed) fail_at_cell(place, cell);
  const std::string_view second = cell.substr(separator + 1, cell.size() - kPairSuffix.size() - separator - 1);
  std::optional<Action> first_action = parse_action(trim(cell.substr(1, separator - 1)));
  const std::optional<Action> second_action = parse_action(trim(second));
  if (!first_action || !second_action) fail_at_cell(place, cell);
  first_action->overlaps_next = true;
  actions.push_back(*first_action);
  actions.push_back(*second_action);
}

void append_cell(std::string_view cell, const Place& place, std::vector<Action>& actions) {
  if (cell.empty()) return;
  if (cell.front() == '(') {
    append_pair(cell, place, actions);
  } else if (const std::optional<Action> action = parse_action(cell)) {
    actions.push_back(*action);
  } else if (!is_lowered_action(cell)) {
    fail_at_cell(place, cell);
  }
}

// Takes the next cell off `line`, without blanks and quotes, and the comma after it.
std::string_view take_cell(std::string_view& line, const Place& place) {
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

std::vector<Action> parse_line(std::string_view line, Place place) {
  std::vector<Action> actions;
  while (!line.empty()) {
    append_cell(take_cell(line, place), place, actions);
    ++place.cell;
  }
  return actions;
}

std::vector<int> infer_ranks_of_stages(const std::vector<std::vector<Action>>& ranks) {
  std::vector<int> rank_of_stage;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    for (const Action& action : ranks[rank]) {
      if (action.stage >= rank_of_stage.size()) rank_of_stage.resize(std::size_t{action.stage} + 1, -1);
      int& holder = rank_of_stage[action.stage];
      if (holder == -1) holder = static_cast<int>(rank);
    }
  }
  return rank_of_stage;
}

// Stages whose microbatches neighbouring lines take in turn; empty when there is none. Anything less regular stays one
// rank's stage, for find_fault to report.
std::vector<int> infer_replicas(const Program& program) {
  std::vector<int> last_rank(program.rank_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) last_rank[action.stage] = static_cast<int>(rank);
  }
  if (last_rank == program.rank_of_stage) return {};
  Program guess;
  guess.rank_of_stage = program.rank_of_stage;
  for (std::size_t stage = 0; stage < last_rank.size(); ++stage) {
    guess.replicas_of_stage.push_back(last_rank[stage] - program.rank_of_stage[stage] + 1);
  }
  std::vector<int> replicas(guess.replicas_of_stage);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    for (const Action& action : program.ranks[rank]) {
      if (guess.rank_of(action.stage, action.microbatch) != static_cast<int>(rank)) replicas[action.stage] = 1;
    }
  }
  const bool none = std::all_of(replicas.begin(), replicas.end(), [](int count) { return count == 1; });
  return none ? std::vector<int>() : replicas;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  return text;
}

std::vector<std::vector<Action>> parse_lines(std::string_view text, std::string_view file_name) {
  std::vector<std::vector<Action>> ranks;
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  std::size_t action_count = 0;
  while (!text.empty()) {
    const Place place{.file = file_name, .line = ranks.size() + 1, .cell = 1};
    if (ranks.size() == kMaxStages) {
      fail_at(place, "the file has too many lines", fmt::format("one line a rank, at most {}", kMaxStages));
    }
    const std::size_t end = std::min(text.find('\n'), text.size());
    ranks.push_back(parse_line(text.substr(0, end), place));
    action_count += ranks.back().size();
    if (action_count > kMaxActions) {
      fail_at(place, "the file has too many actions", fmt::format("at most {}", kMaxActions));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return ranks;
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

Program parse_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  Program program;
  program.schedule = std::string(file_name);
  program.ranks = parse_lines(without_byte_order_mark(text), file_name);
  program.rank_of_stage = infer_ranks_of_stages(program.ranks);
  if (program.rank_of_stage.empty()) {
    throw ConfigError(Diagnostic{.field = "schedule",
                                 .problem = program.ranks.empty() ? "the file is empty" : "the file has no action",
                                 .where = std::string(file_name),
                                 .help = "one line a rank, cells such as 2F0 separated by commas"});
  }
  program.replicas_of_stage = infer_replicas(program);
  program.chains = chains;
  if (chains.empty()) program.chains = {Chain{.first_stage = 0, .last_stage = program.stage_count() - 1}};
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
