#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"
#include "sim/program/validate.hpp"

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

/// One line a rank, one cell a step, no header: the compute-only CSV of torch.distributed.pipelining. An overlapped
/// pair is one cell, `(3F1;0B0)OVERLAP_F_B`.
std::string write_csv(const Program& program);
/// All cells, as torch.distributed.pipelining dumps a lowered schedule.
std::string write_csv(const CellProgram& program);

/// Reads what write_csv writes and what torch.distributed.pipelining dumps: blank cells are idle steps and dropped;
/// blanks around cells, quoted cells, CRLF, a byte order mark and blank lines at the end are accepted. Stages are
/// mapped to the rank that executes them first, or to neighbouring ranks (lines) that take their microbatches in turn;
/// a stage that no line names gets rank -1 and a blank line becomes a rank without actions, both for find_fault to
/// report. `chains` empty: one chain over all stages. Throws ConfigError (field "schedule", where "file.csv:LINE:CELL",
/// both from 1) on text that is no schedule.
CellProgram parse_cell_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains);

/// "0-3,4-7": the stage ranges of a bidirectional schedule. Whether they fit a program is find_fault's to say.
/// Throws ConfigError (field "chains").
std::vector<Chain> parse_chains(std::string_view text);

/// The first fault of a schedule with communications, nothing when it can be executed. Steps count all cells of a rank,
/// idle ones too. In this order: the faults of its compute actions; every send and receive belongs to two neighbouring
/// stages on different ranks, comes once and has its other half; a send follows the action that makes what it sends, a
/// receive precedes the one that consumes it; a stage is unsharded while it computes, and unsharding and resharding
/// alternate; gradients are reduced once, after the last B or W of the stage; no rank waits forever, given that sends
/// and receives return at once and an action waits until what it receives has been sent. A program without any SEND and
/// RECV (UNSHARD and RESHARD, REDUCE_GRAD) leaves them to whoever executes it, and none is missing.
std::optional<ScheduleFault> find_fault(const CellProgram& program);

/// The first transfer that two ranks do not list in the same order; nothing when all do. Where sends and receives of
/// two ranks run one after the other, without tags, as NCCL runs them, such a program hangs or swaps tensors. Expects a
/// program without a fault.
std::optional<ScheduleFault> find_transfer_mismatch(const CellProgram& program);

/// The grid of steps (rows) and ranks (columns) around the fault, the cells at fault in brackets and their rows marked
/// with "<-- here". At most 40 steps and 16 ranks are shown.
std::string render_fault_grid(const Program& program, const ScheduleFault& fault);

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault);

// The passes by which torch.distributed.pipelining (schedules.py, torch 2.14.1) turns a compute order into one with
// communications. Each takes cells and gives cells; given PyTorch's input they give its output, cell by cell.

/// How many stages PyTorch keeps unsharded per rank.
inline constexpr int kActiveStages = 3;

/// Weights shared by several ranks (FSDP) are gathered ahead of use: before each cell, the next `active_stages`
/// different stages of the rank are looked up; active stages that are not among them are resharded, in ascending order,
/// then those not yet active are unsharded in the order of their use. What is active at the end is resharded. A pair
/// may bring the count to one more. Idle cells are dropped.
void add_unshard_reshard(CellProgram& program, int active_stages = kActiveStages);

/// A stage's gradients are reduced right after its last microbatch's B or W. Idle cells are dropped.
void add_gradient_reductions(CellProgram& program);

/// Sends and receives wherever neighbouring stages of a chain are on different ranks. The ranks take turns of one cell;
/// a compute cell is taken when all it needs is there. Its sends follow it at once, and each receive is appended to the
/// receiver's order at that moment: the earliest place that keeps the transfers of two ranks in the same order on both.
/// Expects a program without a fault.
void add_send_receive(CellProgram& program);

/// Moves each receive to right before the action that consumes it, so that its buffer lives shorter. Of two ranks, the
/// lower one still receives what is due from its peer before it sends to it. The transfers of two ranks are not in the
/// same order on both any more (find_transfer_mismatch).
void defer_receives(CellProgram& program);

/// I directly followed by the W of the same stage and microbatch becomes B. Idle cells are dropped.
void merge_backward(CellProgram& program);

struct CommunicationOptions {
  bool unshard_reshard = true;  ///< weights are shared by several ranks (FSDP)
  bool defer_receives = false;
};

/// The program with its communications as torch.distributed.pipelining dumps them (`_dump_csv(format="compute_comms")`,
/// torch 2.14.1): UNSHARD and RESHARD, REDUCE_GRAD, then sends and receives. Left out: transfers that PyTorch's runtime
/// fuses. Expects a program without a fault.
CellProgram add_communication(const Program& program, const CommunicationOptions& options);

}  // namespace flopcast
