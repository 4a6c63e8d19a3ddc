#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_options.hpp"
#include "cli/terminal.hpp"
#include "model/error/error.hpp"
#include "sim/cells/check.hpp"
#include "sim/cells/fault_grid.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

namespace {

using Fault = std::optional<ScheduleFault>;

struct Verdict {
  const CellProgram& program;
  std::size_t actions = 0;
  Fault fault;
};

nlohmann::ordered_json verdict_json(const Verdict& verdict) {
  const auto number = [](const std::optional<int>& value) {
    return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
  };
  nlohmann::ordered_json json = {{"valid", !verdict.fault},
                                 {"ranks", verdict.program.rank_count()},
                                 {"stages", verdict.program.stage_count()},
                                 {"actions", verdict.actions},
                                 {"communications", verdict.program.communication_count()}};
  if (!verdict.fault) return json;
  json["reason"] = verdict.fault->reason;
  json["rank"] = number(verdict.fault->rank);
  json["step"] = number(verdict.fault->step);
  json["cell"] = verdict.fault->cell;
  return json;
}

Table verdict_table(const Verdict& verdict) {
  const CellProgram& program = verdict.program;
  Table table;
  table.columns = {text_column("schedule"), text_column("valid"), number_column("ranks"), number_column("stages"),
                   number_column("actions")};
  table.rows = {{program.schedule, verdict.fault ? "no" : "yes", fmt::format("{}", program.rank_count()),
                 fmt::format("{}", program.stage_count()), fmt::format("{}", verdict.actions)}};
  if (const std::size_t communications = program.communication_count(); communications > 0) {
    table.columns.push_back(number_column("communications"));
    table.rows.front().push_back(fmt::format("{}", communications));
  }
  if (verdict.fault) {
    table.columns.push_back(text_column("reason"));
    table.rows.front().push_back(verdict.fault->reason);
  }
  return table;
}

std::string explain(const CellProgram& program, const Program& compute, const ScheduleFault& fault) {
  std::string text = fmt::format("{}: invalid: {}", program.schedule, render_fault(fault));
  if (const auto chains = hint_two_chains(compute)) {
    text += fmt::format("\n  help: valid as a bidirectional schedule of two chains: --chains {}", *chains);
  }
  return text + "\n\n" + render_fault_grid(program, fault);
}

}  // namespace

int run_schedule_check(const Arguments& arguments) {
  CommandLine command_line(
      "schedule check", "flopcast schedule check FILE.csv [options]",
      "Whether a schedule can be executed: exit code 0 when it can, 3 when it cannot, with the place. Ranks and steps "
      "count from 0, steps by the cells of a line. Sends, receives and the other communications of a file are checked "
      "too.",
      {"flopcast schedule check mine.csv", "flopcast schedule check dualpipe.csv --chains 0-3,4-7",
       "flopcast schedule check lowered.csv --in-order-transfers"});
  ScheduleOptions schedule;
  OutputOptions output;
  bool in_order = false;
  schedule.add_to(command_line);
  command_line.begin_group("Transfers");
  command_line.add_flag("--in-order-transfers", in_order,
                        "two ranks that list their transfers in different orders are a fault, not a warning");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  const CellProgram program = schedule.cell_program();
  const Program compute = compute_of(program);
  Verdict verdict{program, compute.action_count(), find_fault(program)};
  if (!verdict.fault) {
    if (Fault mismatch = find_transfer_mismatch(program)) {
      if (in_order) {
        verdict.fault = std::move(mismatch);
      } else {
        warn(
            fmt::format("{}: {}; a transport that runs them in order, as NCCL does, hangs or swaps tensors "
                        "(--in-order-transfers makes this a fault)",
                        program.schedule, render_fault(*mismatch)));
      }
    }
  }
  if (format == Format::kJson) {
    output.write(verdict_json(verdict).dump(2));
  } else if (!verdict.fault || format != Format::kTable) {
    output.write({verdict_table(verdict)});
  }
  // Readable, but it cannot be executed: the answer is no.
  if (verdict.fault) throw NegativeAnswer(explain(program, compute, *verdict.fault));
  return 0;
}

}  // namespace flopcast
