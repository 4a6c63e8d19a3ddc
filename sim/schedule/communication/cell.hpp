#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "sim/schedule/action.hpp"

namespace flopcast {

/// What one cell of a lowered schedule does. The words are those of torch.distributed.pipelining.
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

/// "2F0", "(3F1;0B0)OVERLAP_F_B", "2SEND_F0", "2UNSHARD"; empty when idle.
std::string to_string(const Cell& cell);
/// The inverse of to_string, blanks inside a pair allowed; nothing when the text is no cell.
std::optional<Cell> parse_cell(std::string_view text);

}  // namespace flopcast
