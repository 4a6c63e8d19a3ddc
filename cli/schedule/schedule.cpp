#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/host/command_line.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/output.hpp"
#include "cli/schedule/options.hpp"
#include "model/config/document.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

std::vector<std::vector<std::string>> texts_of(const CellProgram& program) {
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<Cell>& cells : program.ranks) {
    std::vector<std::string> texts;
    texts.reserve(cells.size());
    for (const Cell& cell : cells) texts.push_back(to_string(cell));
    rows.push_back(std::move(texts));
  }
  return rows;
}

std::string listing_of(const CellProgram& program, Format format, const TableStyle& style) {
  if (format == Format::kCsv) return write_csv(program);
  const auto rows = texts_of(program);
  if (format == Format::kJson) {
    nlohmann::ordered_json json = {
        {"schedule", program.schedule}, {"ranks", rows}, {"rank_of_stage", program.rank_of_stage}};
    if (!program.replicas_of_stage.empty()) json["replicas_of_stage"] = program.replicas_of_stage;
    return dumped(json, 2);
  }
  Table table;
  table.columns = {number_column("rank"), text_column("actions")};
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    table.rows.push_back({fmt::format("{}", rank), fmt::format("{}", fmt::join(rows[rank], " "))});
  }
  return write_table(table, format, style);
}

// How commands print the order of every rank's actions: --with-comm and the flags that belong to it.
class OrderOptions {
 public:
  void add_to(CommandLine& command_line);
  // Throws ConfigError for flags that contradict each other, and where communications are asked of a schedule that
  // cannot be executed.
  std::string listing(const Program& program, Format format, const TableStyle& style) const;
  // Whether any flag was given.
  bool given() const { return with_communication_ || defer_receives_ || no_sharding_ || merge_backward_; }

 private:
  Streams streams_;
  bool with_communication_ = false;
  bool defer_receives_ = false;
  bool no_sharding_ = false;
  bool merge_backward_ = false;
};

void OrderOptions::add_to(CommandLine& command_line) {
  streams_ = command_line.streams();
  command_line.begin_group("Order");
  command_line.add_flag("--with-comm", with_communication_,
                        "with SEND, RECV, UNSHARD, RESHARD and REDUCE_GRAD, as PyTorch lowers it");
  command_line.add_flag("--no-sharding", no_sharding_, "without UNSHARD and RESHARD: every rank keeps its weights");
  command_line.add_flag("--defer-recv", defer_receives_, "receives right before their use, as PyTorch defers them");
  command_line.add_flag("--merge-bw", merge_backward_, "an I followed by its W becomes B");
}

std::string OrderOptions::listing(const Program& program, Format format, const TableStyle& style) const {
  for (const auto& [given, flag] : {std::pair(defer_receives_, "--defer-recv"), {no_sharding_, "--no-sharding"}}) {
    if (given && !with_communication_)
      throw ConfigError({flag, "changes communications only", "", "give --with-comm too"});
  }
  CellProgram order = as_cells(program);
  if (merge_backward_) merge_backward(order);
  if (!with_communication_) return listing_of(order, format, style);
  if (!program.replicas_of_stage.empty()) {
    throw ConfigError({"--with-comm", "torch, whose communications these are, has no replicated stages", "",
                       "leave out --with-comm or the replicas"});
  }
  const Program compute = compute_of(order);
  require_valid(compute);
  const CellProgram with_transfers =
      add_communication(compute, {.unshard_reshard = !no_sharding_, .defer_receives = defer_receives_});
  if (const auto mismatch = find_transfer_mismatch(with_transfers)) {
    warn(streams_, render_fault(*mismatch) +
                       "; a transport that runs them in order, as NCCL does, hangs or swaps tensors. Without "
                       "--defer-recv they agree");
  }
  return listing_of(with_transfers, format, style);
}

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

Table schedule_table(Format format) {
  Table table;
  table.columns = {text_column("schedule", "name"), text_column("what it does", "summary"),
                   text_column("activations held by rank r", "peak_in_flight")};
  // A terminal has no room for these.
  const bool everything = shown_by(format) != Shows::kPages;
  if (everything) {
    table.columns.insert(table.columns.end(),
                         {text_column("makespan"), text_column("needs", "constraints"), text_column("source")});
  }
  for (const ScheduleInfo& info : schedule_catalogue()) {
    table.rows.push_back({std::string(info.name), std::string(info.summary), std::string(info.peak_in_flight)});
    if (!everything) continue;
    for (const std::string_view text : {info.makespan, info.constraints, info.source})
      table.rows.back().emplace_back(text);
  }
  if (!everything) table.notes.emplace_back("--format json adds closed forms, constraints and sources");
  return table;
}

int run_schedule_check(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "schedule check", "flopcast schedule check FILE.csv [options]",
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
        warn(streams, fmt::format("{}: {}; a transport that runs them in order, as NCCL does, hangs or swaps tensors "
                                  "(--in-order-transfers makes this a fault)",
                                  program.schedule, render_fault(*mismatch)));
      }
    }
  }
  // A person is told of a fault where it lies, below.
  if (!verdict.fault || format != Format::kTable) {
    output.write({.tables = [&] { return std::vector<Table>{verdict_table(verdict)}; },
                  .json = [&] { return dumped(verdict_json(verdict), 2); }},
                 format);
  }
  // Readable, but it cannot be executed: the answer is no.
  if (verdict.fault) throw NegativeAnswer(explain(program, compute, *verdict.fault));
  return 0;
}

namespace {

int run_list(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(streams, "schedule list", "flopcast schedule list [options]",
                           "The schedules flopcast can generate.",
                           {"flopcast schedule list", "flopcast schedule list --format json"});
  OutputOptions output;
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  output.write({schedule_table(output.format())});
  return 0;
}

// Times only matter to a schedule whose order depends on them; without any it is the one for equal times.
Program program_for(const ScheduleOptions& schedule, const TimeOptions& times, const Streams& streams) {
  if (!times.given()) return schedule.program();
  if (!schedule.uses_times()) {
    throw ConfigError({"--forward and the other times", "change nothing: the order does not depend on them", "",
                       "leave them out, or use a schedule such as zb-auto"});
  }
  Program program = schedule.program([&times](const Program& stages) { return times.times_for(stages); });
  refuse_unused_fused(times, has_pairs(program), "schedule " + program.schedule);
  if (const std::string assumed = times.assumed_for(program); !assumed.empty()) warn(streams, assumed);
  return program;
}

int run_show(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "schedule show", "flopcast schedule show (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
      "The order in which every rank executes its actions.",
      {"flopcast schedule show --schedule 1f1b --pp 4 --microbatches 8",
       "flopcast schedule show --schedule interleaved --pp 4 --microbatches 8 --vpp 2 --format csv",
       "flopcast schedule show --schedule interleaved --pp 2 --microbatches 4 --vpp 2 --with-comm",
       "flopcast schedule show --schedule zb-auto --pp 4 -m 8 --memory-limit 6 --forward 10 --backward 21",
       "flopcast schedule show --schedule pipedream --pp 4 --microbatches 8 --versions"});
  ScheduleOptions schedule;
  OrderOptions order;
  TimeOptions times;
  OutputOptions output;
  bool versions = false;
  bool vertical_sync = false;
  std::optional<std::string> policy;
  schedule.add_to(command_line);
  order.add_to(command_line);
  command_line.add_flag("--versions", versions, "the weight versions of every F and B, instead of the order");
  command_line.add_option("--policy", policy, "NAME",
                          "with --versions of a file: stashed, vertical-sync, double-buffered, newest or flushed");
  command_line.add_flag("--vertical-sync", vertical_sync, "the same as --schedule pipedream:vertical-sync");
  times.add_to(command_line);
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  if (versions) {
    if (order.given() || times.given())
      throw ConfigError({"--versions", "is instead of the order", "", "leave out what changes the order"});
    if (vertical_sync && policy) throw ConfigError({"--policy", "and --vertical-sync are two", "", "give one of them"});
    if (vertical_sync) policy = name_of(WeightPolicy::kVerticalSync);
    schedule.accept_accumulation_beside_file();
    output.write(versions_listing(schedule, policy, format));
    return 0;
  }
  if (policy) throw ConfigError({"--policy", "changes weight versions only", "", "give --versions too"});
  if (vertical_sync) throw ConfigError({"--vertical-sync", "changes weight versions only", "", "give --versions too"});
  output.write(order.listing(program_for(schedule, times, streams), format, output.style()));
  return 0;
}

int run_export(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(streams, "schedule export",
                           "flopcast schedule export (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
                           "Writes a schedule for another program. torch: the CSV that torch.distributed.pipelining "
                           "loads, as compute_only, or with --with-comm as compute_comms; ours is the same text.",
                           {"flopcast schedule export --schedule 1f1b --pp 4 --microbatches 8 -o 1f1b.csv",
                            "flopcast schedule export mine.csv --with-comm -o lowered.csv"});
  ScheduleOptions schedule;
  OrderOptions order;
  OutputOptions output;
  TimeOptions times;
  std::optional<std::string> target;
  schedule.add_to(command_line);
  order.add_to(command_line);
  times.add_to(command_line);
  output.add_to(command_line);
  command_line.add_option("--for", target, "PROGRAM", "torch (default) or ours");
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format_or(Format::kCsv);
  const std::string program_name = target.value_or("torch");
  if (program_name != "torch" && program_name != "ours") {
    throw ConfigError({"--for", fmt::format("unknown program \"{}\"", program_name), "",
                       choices_help(program_name, {"torch", "ours"})});
  }
  const Program program = program_for(schedule, times, streams);
  require_valid(program);
  if (program_name == "torch" && !program.replicas_of_stage.empty()) {
    throw ConfigError({"--for", "torch executes a stage on one rank, but this schedule has replicated stages", "",
                       "give --for ours, which flopcast reads back"});
  }
  // Other programs read CSV; the other formats are for people who look at what they would get.
  output.write(order.listing(program, format, output.style()));
  return 0;
}

}  // namespace

int run_schedule(const Arguments& arguments, const Streams& streams) {
  static const std::vector<CommandEntry> entries = {
      {"list", "the schedules flopcast can generate", run_list},
      {"show", "the order of every rank's actions", run_show},
      {"check", "whether a schedule in a file can be executed", run_schedule_check},
      {"simulate", "its makespan, idle shares and activations for given times", run_schedule_simulate},
      {"compare", "the same request under several schedules", run_schedule_compare},
      {"export", "write it for another program", run_export},
  };
  return dispatch("flopcast schedule", "Pipeline schedules by themselves, without a model.", entries, arguments,
                  streams);
}

}  // namespace flopcast
