#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/needs.hpp"

namespace flopcast {

/// What one cell of a CellProgram does. The words are those of torch.distributed.pipelining.
enum class CellKind : std::uint8_t {
  kIdle,            ///< an empty cell
  kCompute,         ///< F, B, I or W
  kPair,            ///< two compute actions at once, (a;b)OVERLAP_F_B
  kSendForward,     ///< SEND_F: an activation leaves its stage for the next one
  kReceiveForward,  ///< RECV_F: an activation arrives from the previous stage
  kSendBackward,    ///< SEND_B: the gradient of an input leaves its stage for the previous one
  kReceiveBackward,
  kUnshard,         ///< the stage's weights are gathered from the ranks that share them
  kReshard,         ///< the gathered copy is dropped
  kReduceGradient,  ///< REDUCE_GRAD: the stage's gradients are summed over its replicas
};

/// One cell of a rank: an action, a pair of them, or a communication of a stage. Sends, receives and compute actions
/// belong to a microbatch, the rest to the stage as a whole.
struct Cell {
  CellKind kind = CellKind::kIdle;
  Action action;  ///< kCompute and kPair; of the other kinds its stage and microbatch
  Action second;  ///< kPair

  friend bool operator==(const Cell& a, const Cell& b) {
    return a.kind == b.kind && a.action == b.action && a.second == b.second;
  }
};

Cell compute_cell(const Action& action);
Cell pair_cell(const Action& first, const Action& second);
Cell communication_cell(CellKind kind, int stage, std::uint32_t microbatch = 0);

constexpr bool is_compute(CellKind kind) {
  return kind == CellKind::kCompute || kind == CellKind::kPair;
}
constexpr bool is_send(CellKind kind) {
  return kind == CellKind::kSendForward || kind == CellKind::kSendBackward;
}
constexpr bool is_receive(CellKind kind) {
  return kind == CellKind::kReceiveForward || kind == CellKind::kReceiveBackward;
}
constexpr bool is_communication(CellKind kind) {
  return kind != CellKind::kIdle && !is_compute(kind);
}

/// Calls `visit` with each compute action of the cell: none, one, or the two of a pair.
template <typename Visit>
void for_each_action(const Cell& cell, Visit visit) {
  if (!is_compute(cell.kind)) return;
  visit(cell.action);
  if (cell.kind == CellKind::kPair) visit(cell.second);
}

/// What follows the two actions of a pair.
inline constexpr std::string_view kPairSuffix = ")OVERLAP_F_B";

/// "2F0", "(3F1;0B0)OVERLAP_F_B", "2SEND_F0", "2UNSHARD"; empty when idle.
std::string to_string(const Cell& cell);
/// The inverse of to_string, blanks inside a pair allowed; nothing when the text is no cell.
std::optional<Cell> parse_cell(std::string_view text);

/// A schedule whose communications stand in the order of its ranks, as a training program executes it. A Program holds
/// only the compute actions: whoever executes that one derives the communications himself.
struct CellProgram {
  std::string schedule;             ///< the catalogue name, or the file it was read from
  ByRank<std::vector<Cell>> ranks;  ///< ranks[r][step]
  ByStage<int> rank_of_stage;       ///< as in Program
  ByStage<int> replicas_of_stage;   ///< as in Program; empty where communications are listed
  std::vector<Chain> chains;        ///< as in Program

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t communication_count() const;
  /// By stage: 1 + the largest microbatch index of its compute actions.
  ByStage<std::size_t> microbatches_by_stage() const;
};

/// The same order, one cell a compute action or overlapped pair, nothing else.
CellProgram as_cells(const Program& program);
/// The compute actions in their order; communications and idle cells are dropped.
Program compute_of(const CellProgram& written);

/// The two halves of a transfer.
Cell send_cell(const StageTransfer& transfer);
Cell receive_cell(const StageTransfer& transfer);
/// The transfer of a send or receive cell; nothing for other cells, and when the stage has no such neighbour.
std::optional<StageTransfer> transfer_of(const Needs& needs, const Cell& cell);
/// Of programs that list communications, whose stages have no replicas.
Needs needs_of(const CellProgram& program);

}  // namespace flopcast
