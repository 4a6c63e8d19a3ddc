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

/// Kinds of cells of a CellProgram, named as in torch.distributed.pipelining.
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

/// One cell of a rank: an action, an overlapped pair, or a communication of a stage. Sends, receives and compute
/// actions belong to a microbatch, the other kinds to the stage as a whole.
struct Cell {
  CellKind kind = CellKind::kIdle;
  Action action;  ///< kCompute and kPair; other kinds use only its stage and microbatch
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

/// The text after the two actions of a pair.
inline constexpr std::string_view kPairSuffix = ")OVERLAP_F_B";

/// "2F0", "(3F1;0B0)OVERLAP_F_B", "2SEND_F0", "2UNSHARD"; empty if idle.
std::string to_string(const Cell& cell);
/// Inverse of to_string that also accepts blanks inside a pair; nullopt if the text is not a cell.
std::optional<Cell> parse_cell(std::string_view text);

/// A schedule that lists communications in the order of its ranks, as a training program executes it. A Program holds
/// only the compute actions; whatever executes it derives the communications.
struct CellProgram {
  std::string schedule;             ///< the catalogue name, or the file that the schedule was read from
  ByRank<std::vector<Cell>> ranks;  ///< ranks[r][step]
  ByStage<int> rank_of_stage;       ///< as in Program
  ByStage<int> replicas_of_stage;   ///< as in Program; empty if communications are listed
  std::vector<Chain> chains;        ///< as in Program

  int rank_count() const { return static_cast<int>(ranks.size()); }
  int stage_count() const { return static_cast<int>(rank_of_stage.size()); }
  std::size_t communication_count() const;
  /// Indexed by stage: 1 + the largest microbatch index of its compute actions.
  ByStage<std::size_t> microbatches_by_stage() const;
};

/// The program in the same order, with one cell per compute action or overlapped pair and no other cells.
CellProgram as_cells(const Program& program);
/// The compute actions in order; communications and idle cells are dropped.
Program compute_of(const CellProgram& written);

/// The two halves of a transfer.
Cell send_cell(const StageTransfer& transfer);
Cell receive_cell(const StageTransfer& transfer);
/// The transfer of a send or receive cell; nullopt for other cells and if the stage has no such neighbour.
std::optional<StageTransfer> transfer_of(const Needs& needs, const Cell& cell);
/// Dependencies of a program that lists communications; its stages have no replicas.
Needs needs_of(const CellProgram& program);

/// One line per rank, one cell per step, no header: the compute-only CSV of torch.distributed.pipelining. An overlapped
/// pair is one cell, `(3F1;0B0)OVERLAP_F_B`.
std::string write_csv(const Program& program);
/// All cells, in the format in which torch.distributed.pipelining dumps a lowered schedule.
std::string write_csv(const CellProgram& program);

/// Reads the output of write_csv and the dumps of torch.distributed.pipelining. Blank cells become idle steps; blanks
/// around cells, quoted cells, CRLF, a byte order mark and blank lines at the end are accepted. A stage is mapped to
/// the rank that executes it first, or to adjacent ranks (lines) that take its microbatches in turn. A stage that no
/// line names gets rank -1 and a blank line becomes a rank without actions; find_fault reports both. An empty `chains`
/// means one chain over all stages. Throws ConfigError (field "schedule", where "file.csv:LINE:CELL", both from 1) if
/// the text is not a schedule.
CellProgram parse_cell_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains);

/// Parses the stage ranges of a bidirectional schedule, such as "0-3,4-7". find_fault checks that they fit the program.
/// Throws ConfigError (field "chains").
std::vector<Chain> parse_chains(std::string_view text);

/// The first fault of a schedule with communications, or nullopt if it can be executed. Steps count all cells of a
/// rank, including idle ones. Checks, in this order: the compute actions have no fault; every send and receive connects
/// two adjacent stages on different ranks, is listed once and has its other half; a send follows the action that
/// produces its data, and a receive precedes the action that consumes it; a stage is unsharded while it computes, and
/// unsharding and resharding alternate; gradients are reduced once, after the last B or W of the stage; no rank waits
/// forever, given that sends and receives return at once and an action waits until its input has been sent. A program
/// without any SEND and RECV (or UNSHARD and RESHARD, or REDUCE_GRAD) leaves them to whatever executes it, and none
/// counts as missing.
std::optional<ScheduleFault> find_fault(const CellProgram& program);

/// The first transfer that two ranks list in different orders; nullopt if there is none. Where the sends and receives
/// between two ranks run one after the other and without tags, as in NCCL, such a program hangs or swaps tensors. The
/// program must have no fault.
std::optional<ScheduleFault> find_transfer_mismatch(const CellProgram& program);

/// The grid of steps (rows) and ranks (columns) around the fault, with the cells at fault in brackets and their rows
/// marked with "<-- here". Shows at most 40 steps and 16 ranks.
std::string render_fault_grid(const Program& program, const ScheduleFault& fault);

std::string render_fault_grid(const CellProgram& program, const ScheduleFault& fault);

// The passes with which torch.distributed.pipelining (schedules.py, torch 2.14.1) turns a compute order into one with
// communications. Each transforms cells into cells; given PyTorch's input, it reproduces PyTorch's output cell by cell.

/// Number of stages that PyTorch keeps unsharded per rank.
inline constexpr int kActiveStages = 3;

/// Gathers weights shared by several ranks (FSDP) ahead of use. Before each cell, looks up the next `active_stages`
/// different stages of the rank, reshards the active stages that are not among them, in ascending order, then unshards
/// those not yet active, in the order of their use. Stages active at the end are resharded. A pair may raise the count
/// by one. Idle cells are dropped.
void add_unshard_reshard(CellProgram& program, int active_stages = kActiveStages);

/// Reduces a stage's gradients right after the B or W of its last microbatch. Idle cells are dropped.
void add_gradient_reductions(CellProgram& program);

/// Adds sends and receives wherever adjacent stages of a chain are on different ranks. The ranks take turns of one
/// cell; a compute cell is taken once all its inputs have arrived. Its sends follow at once, and each receive is
/// appended to the receiver's order at that moment: the earliest position that keeps the transfers of two ranks in the
/// same order on both. The program must have no fault.
void add_send_receive(CellProgram& program);

/// Moves each receive to just before the action that consumes it, so that its buffer lives shorter. Of two ranks, the
/// lower one still receives what is due from its peer before it sends to it. Afterwards the two ranks may list their
/// transfers in different orders (find_transfer_mismatch).
void defer_receives(CellProgram& program);

/// Merges I and the W of the same stage and microbatch directly after it into B. Idle cells are dropped.
void merge_backward(CellProgram& program);

struct CommunicationOptions {
  bool unshard_reshard = true;  ///< weights are shared by several ranks (FSDP)
  bool defer_receives = false;
};

/// The program with its communications as torch.distributed.pipelining dumps them (`_dump_csv(format="compute_comms")`,
/// torch 2.14.1): UNSHARD and RESHARD, REDUCE_GRAD, then sends and receives. Left out: transfers that PyTorch's runtime
/// fuses. The program must have no fault.
CellProgram add_communication(const Program& program, const CommunicationOptions& options);

}  // namespace flopcast
