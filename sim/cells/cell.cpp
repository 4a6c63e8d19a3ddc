#include "sim/cells/cell.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/text/words.hpp"

namespace flopcast {

namespace {

struct Word {
  CellKind kind;
  std::string_view text;
  bool of_microbatch;
};

constexpr std::array<Word, 7> kWords = {{{CellKind::kSendForward, "SEND_F", true},
                                         {CellKind::kReceiveForward, "RECV_F", true},
                                         {CellKind::kSendBackward, "SEND_B", true},
                                         {CellKind::kReceiveBackward, "RECV_B", true},
                                         {CellKind::kUnshard, "UNSHARD", false},
                                         {CellKind::kReshard, "RESHARD", false},
                                         {CellKind::kReduceGradient, "REDUCE_GRAD", false}}};

std::optional<Cell> parse_pair(std::string_view text) {
  const std::size_t separator = text.find(';');
  const bool closed = text.size() > kPairSuffix.size() &&
                      text.substr(text.size() - kPairSuffix.size()) == kPairSuffix &&
                      separator < text.size() - kPairSuffix.size();
  if (!closed) return std::nullopt;
  const auto first = parse_action(trim(text.substr(1, separator - 1)));
  const auto second = parse_action(trim(text.substr(separator + 1, text.size() - kPairSuffix.size() - separator - 1)));
  if (!first || !second) return std::nullopt;
  return pair_cell(*first, *second);
}

std::optional<Cell> parse_communication(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(kDecimalDigits), text.size());
  const std::size_t end = std::min(text.find_first_of(kDecimalDigits, begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  const auto* found =
      std::find_if(kWords.begin(), kWords.end(), [word](const Word& known) { return known.text == word; });
  if (found == kWords.end() || found->of_microbatch != (end < text.size())) return std::nullopt;
  // The numbers have the ranges of an action's, so that parse_action checks them.
  const std::string_view microbatch = found->of_microbatch ? text.substr(end) : "0";
  const auto numbers = parse_action(fmt::format("{}F{}", text.substr(0, begin), microbatch));
  if (!numbers) return std::nullopt;
  return communication_cell(found->kind, numbers->stage, numbers->microbatch);
}

}  // namespace

Cell compute_cell(const Action& action) {
  Cell cell;
  cell.kind = CellKind::kCompute;
  cell.action = action;
  cell.action.overlaps_next = false;
  return cell;
}

Cell pair_cell(const Action& first, const Action& second) {
  Cell cell = compute_cell(first);
  cell.kind = CellKind::kPair;
  cell.second = second;
  cell.second.overlaps_next = false;
  return cell;
}

Cell communication_cell(CellKind kind, int stage, std::uint32_t microbatch) {
  Cell cell;
  cell.kind = kind;
  cell.action.stage = static_cast<std::uint16_t>(stage);
  cell.action.microbatch = microbatch;
  return cell;
}

std::string to_string(const Cell& cell) {
  if (cell.kind == CellKind::kIdle) return {};
  if (cell.kind == CellKind::kCompute) return to_string(cell.action);
  if (cell.kind == CellKind::kPair) {
    return fmt::format("({};{}{}", to_string(cell.action), to_string(cell.second), kPairSuffix);
  }
  const auto* word =
      std::find_if(kWords.begin(), kWords.end(), [&cell](const Word& known) { return known.kind == cell.kind; });
  std::string text = fmt::format("{}{}", cell.action.stage, word->text);
  if (word->of_microbatch) text += fmt::format("{}", cell.action.microbatch);
  return text;
}

std::optional<Cell> parse_cell(std::string_view text) {
  if (text.empty()) return Cell();
  if (text.front() == '(') return parse_pair(text);
  if (const auto action = parse_action(text)) return compute_cell(*action);
  return parse_communication(text);
}

namespace {

std::vector<Cell> cells_of(const std::vector<Action>& actions) {
  std::vector<Cell> cells;
  cells.reserve(actions.size());
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const bool pair = actions[index].overlaps_next && index + 1 < actions.size();
    cells.push_back(pair ? pair_cell(actions[index], actions[index + 1]) : compute_cell(actions[index]));
    if (pair) ++index;
  }
  return cells;
}

std::vector<Action> actions_of(const std::vector<Cell>& cells) {
  std::vector<Action> actions;
  for (const Cell& cell : cells) {
    if (!is_compute(cell.kind)) continue;
    actions.push_back(cell.action);
    if (cell.kind != CellKind::kPair) continue;
    actions.back().overlaps_next = true;
    actions.push_back(cell.second);
  }
  return actions;
}

}  // namespace

std::size_t CellProgram::communication_count() const {
  std::ptrdiff_t count = 0;
  for (const std::vector<Cell>& cells : ranks) {
    count += std::count_if(cells.begin(), cells.end(), [](const Cell& cell) { return is_communication(cell.kind); });
  }
  return static_cast<std::size_t>(count);
}

ByStage<std::size_t> CellProgram::microbatches_by_stage() const {
  ByStage<std::size_t> counts(rank_of_stage.size(), 0);
  for (const std::vector<Cell>& cells : ranks) {
    for (const Cell& cell : cells) {
      for_each_action(cell, [&counts](const Action& action) {
        counts[action.stage] = std::max(counts[action.stage], std::size_t{action.microbatch} + 1);
      });
    }
  }
  return counts;
}

CellProgram as_cells(const Program& program) {
  CellProgram written;
  written.schedule = program.schedule;
  written.rank_of_stage = program.rank_of_stage;
  written.replicas_of_stage = program.replicas_of_stage;
  written.chains = program.chains;
  for (const std::vector<Action>& actions : program.ranks) written.ranks.push_back(cells_of(actions));
  return written;
}

Program compute_of(const CellProgram& written) {
  Program program;
  program.schedule = written.schedule;
  program.rank_of_stage = written.rank_of_stage;
  program.replicas_of_stage = written.replicas_of_stage;
  program.chains = written.chains;
  for (const std::vector<Cell>& cells : written.ranks) program.ranks.push_back(actions_of(cells));
  return program;
}

Cell send_cell(const StageTransfer& transfer) {
  return communication_cell(transfer.is_forward() ? CellKind::kSendForward : CellKind::kSendBackward,
                            transfer.from_stage, transfer.microbatch);
}

Cell receive_cell(const StageTransfer& transfer) {
  return communication_cell(transfer.is_forward() ? CellKind::kReceiveForward : CellKind::kReceiveBackward,
                            transfer.to_stage, transfer.microbatch);
}

std::optional<StageTransfer> transfer_of(const Needs& needs, const Cell& cell) {
  if (!is_send(cell.kind) && !is_receive(cell.kind)) return std::nullopt;
  const bool forward = cell.kind == CellKind::kSendForward || cell.kind == CellKind::kReceiveForward;
  Action action = cell.action;
  action.kind = forward ? ActionKind::kForward : ActionKind::kBackward;
  return is_send(cell.kind) ? needs.produced_by(action) : needs.needed_by(action);
}

Needs needs_of(const CellProgram& program) {
  return Needs(program.chains, program.rank_of_stage, program.replicas_of_stage);
}

}  // namespace flopcast
