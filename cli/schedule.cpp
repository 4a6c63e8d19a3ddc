#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_table.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"
#include "sim/schedule/csv.hpp"
#include "sim/schedule/validate.hpp"

namespace flopcast {

namespace {

int run_list(const Arguments& arguments) {
  CommandLine command_line("schedule list", "flopcast schedule list [options]", "The schedules flopcast can generate.",
                           {"flopcast schedule list", "flopcast schedule list --format json"});
  OutputOptions output;
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  output.write({schedule_table(output.format())});
  return 0;
}

// Cells as CSV writes them, an overlapped pair as one.
std::vector<std::vector<std::string>> cells_of(const Program& program) {
  std::vector<std::vector<std::string>> rows;
  for (const std::vector<Action>& actions : program.ranks) {
    std::vector<std::string> cells;
    for (std::size_t index = 0; index < actions.size(); ++index) {
      if (actions[index].overlaps_next && index + 1 < actions.size()) {
        cells.push_back(fmt::format("({};{})OVERLAP_F_B", to_string(actions[index]), to_string(actions[index + 1])));
        ++index;
      } else {
        cells.push_back(to_string(actions[index]));
      }
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::string listing(const Program& program, Format format) {
  if (format == Format::kCsv) return write_csv(program);
  const auto rows = cells_of(program);
  if (format == Format::kJson) {
    nlohmann::ordered_json json = {
        {"schedule", program.schedule}, {"ranks", rows}, {"rank_of_stage", program.rank_of_stage}};
    if (!program.replicas_of_stage.empty()) json["replicas_of_stage"] = program.replicas_of_stage;
    return json.dump(2);
  }
  Table table;
  table.columns = {number_column("rank"), text_column("actions")};
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    table.rows.push_back({fmt::format("{}", rank), fmt::format("{}", fmt::join(rows[rank], " "))});
  }
  return write_table(table, format);
}

int run_show(const Arguments& arguments) {
  CommandLine command_line(
      "schedule show", "flopcast schedule show (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
      "The order in which every rank executes its actions.",
      {"flopcast schedule show --schedule 1f1b --pp 4 --microbatches 8",
       "flopcast schedule show --schedule interleaved --pp 4 --microbatches 8 --vpp 2 --format csv",
       "flopcast schedule show --schedule pipedream --pp 4 --microbatches 8 --versions"});
  ScheduleOptions schedule;
  OutputOptions output;
  bool versions = false;
  bool vertical_sync = false;
  std::optional<std::string> policy;
  schedule.add_to(command_line);
  command_line.add_flag("--versions", versions, "the weight versions of every F and B, instead of the order");
  command_line.add_option("--policy", policy, "NAME",
                          "with --versions of a file: stashed, vertical-sync, double-buffered, newest or flushed");
  command_line.add_flag("--vertical-sync", vertical_sync, "the same as --schedule pipedream:vertical-sync");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  if (versions) {
    if (vertical_sync && policy) throw ConfigError({"--policy", "and --vertical-sync are two", "", "give one of them"});
    if (vertical_sync) policy = name_of(WeightPolicy::kVerticalSync);
    schedule.accept_accumulation_beside_file();
    output.write(versions_listing(schedule, policy, format));
    return 0;
  }
  if (policy) throw ConfigError({"--policy", "changes weight versions only", "", "give --versions too"});
  if (vertical_sync) throw ConfigError({"--vertical-sync", "changes weight versions only", "", "give --versions too"});
  output.write(listing(schedule.program(), format));
  return 0;
}

nlohmann::ordered_json verdict_json(const Program& program, const std::optional<ScheduleFault>& fault) {
  nlohmann::ordered_json json = {{"valid", !fault},
                                 {"ranks", program.rank_count()},
                                 {"stages", program.stage_count()},
                                 {"actions", program.action_count()}};
  if (fault) {
    json["reason"] = fault->reason;
    json["rank"] = fault->rank ? nlohmann::ordered_json(*fault->rank) : nlohmann::ordered_json();
    json["step"] = fault->step ? nlohmann::ordered_json(*fault->step) : nlohmann::ordered_json();
  }
  return json;
}

Table verdict_table(const Program& program, const std::optional<ScheduleFault>& fault) {
  Table table;
  table.columns = {text_column("schedule"), text_column("valid"), number_column("ranks"), number_column("stages"),
                   number_column("actions")};
  table.rows = {{program.schedule, fault ? "no" : "yes", fmt::format("{}", program.rank_count()),
                 fmt::format("{}", program.stage_count()), fmt::format("{}", program.action_count())}};
  if (fault) {
    table.columns.push_back(text_column("reason"));
    table.rows.front().push_back(fault->reason);
  }
  return table;
}

int run_check(const Arguments& arguments) {
  CommandLine command_line(
      "schedule check", "flopcast schedule check FILE.csv [options]",
      "Whether a schedule can be executed: exit code 0 when it can, 3 when it cannot, with the place.",
      {"flopcast schedule check mine.csv", "flopcast schedule check dualpipe.csv --chains 0-3,4-7"});
  ScheduleOptions schedule;
  OutputOptions output;
  schedule.add_to(command_line);
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  const Program program = schedule.program();
  const auto fault = find_fault(program);
  if (format == Format::kJson) {
    output.write(verdict_json(program, fault).dump(2));
  } else if (!fault || format != Format::kTable) {
    output.write({verdict_table(program, fault)});
  }
  // Readable, but it cannot be executed: the answer is no.
  if (fault) {
    throw NegativeAnswer(fmt::format("{}: invalid: {}\n\n{}", program.schedule, render_fault(*fault),
                                     render_fault_grid(program, *fault)));
  }
  return 0;
}

int run_export(const Arguments& arguments) {
  CommandLine command_line("schedule export",
                           "flopcast schedule export (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
                           "Writes a schedule for another program. torch: the compute-only CSV that "
                           "torch.distributed.pipelining loads; ours is the same text.",
                           {"flopcast schedule export --schedule 1f1b --pp 4 --microbatches 8 -o 1f1b.csv"});
  ScheduleOptions schedule;
  OutputOptions output;
  std::optional<std::string> target;
  schedule.add_to(command_line);
  output.add_to(command_line);
  command_line.add_option("--for", target, "PROGRAM", "torch (default) or ours");
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format_or(Format::kCsv);
  const std::string program_name = target.value_or("torch");
  if (program_name != "torch" && program_name != "ours") {
    throw ConfigError({"--for", fmt::format("unknown program \"{}\"", program_name), "",
                       choices_help(program_name, {"torch", "ours"})});
  }
  const Program program = schedule.program();
  require_valid(program);
  if (program_name == "torch" && !program.replicas_of_stage.empty()) {
    throw ConfigError({"--for", "torch executes a stage on one rank, but this schedule has replicated stages", "",
                       "give --for ours, which flopcast reads back"});
  }
  // Other programs read CSV; the other formats are for people who look at what they would get.
  output.write(listing(program, format));
  return 0;
}

}  // namespace

int run_schedule(const Arguments& arguments) {
  static const std::vector<CommandEntry> entries = {
      {"list", "the schedules flopcast can generate", run_list},
      {"show", "the order of every rank's actions", run_show},
      {"check", "whether a schedule in a file can be executed", run_check},
      {"simulate", "its makespan, idle shares and activations for given times", run_schedule_simulate},
      {"compare", "the same request under several schedules", run_schedule_compare},
      {"export", "write it for another program", run_export},
  };
  return dispatch("flopcast schedule", "Pipeline schedules by themselves, without a model.", entries, arguments);
}

}  // namespace flopcast
