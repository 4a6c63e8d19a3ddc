#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/cells/cell.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

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

}  // namespace flopcast
