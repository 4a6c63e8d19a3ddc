#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/order_options.hpp"
#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_table.hpp"
#include "cli/schedule_times.hpp"
#include "cli/terminal.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"

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

// Times only matter to a schedule whose order depends on them; without any it is the one for equal times.
Program program_for(const ScheduleOptions& schedule, const TimeOptions& times) {
  if (!times.given()) return schedule.program();
  if (!schedule.uses_times()) {
    throw ConfigError({"--forward and the other times", "change nothing: the order does not depend on them", "",
                       "leave them out, or use a schedule such as zb-auto"});
  }
  Program program = schedule.program([&times](const Program& stages) { return times.times_for(stages); });
  refuse_unused_fused(times, has_pairs(program), "schedule " + program.schedule);
  if (const std::string assumed = times.assumed_for(program); !assumed.empty()) warn(assumed);
  return program;
}

int run_show(const Arguments& arguments) {
  CommandLine command_line(
      "schedule show", "flopcast schedule show (FILE.csv | --schedule NAME --pp P --microbatches M) [options]",
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
  output.write(order.listing(program_for(schedule, times), format));
  return 0;
}

int run_export(const Arguments& arguments) {
  CommandLine command_line("schedule export",
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
  const Program program = program_for(schedule, times);
  require_valid(program);
  if (program_name == "torch" && !program.replicas_of_stage.empty()) {
    throw ConfigError({"--for", "torch executes a stage on one rank, but this schedule has replicated stages", "",
                       "give --for ours, which flopcast reads back"});
  }
  // Other programs read CSV; the other formats are for people who look at what they would get.
  output.write(order.listing(program, format));
  return 0;
}

}  // namespace

int run_schedule(const Arguments& arguments) {
  static const std::vector<CommandEntry> entries = {
      {"list", "the schedules flopcast can generate", run_list},
      {"show", "the order of every rank's actions", run_show},
      {"check", "whether a schedule in a file can be executed", run_schedule_check},
      {"simulate", "its makespan, idle shares and activations for given times", run_schedule_simulate},
      {"compare", "the same request under several schedules", run_schedule_compare},
      {"export", "write it for another program", run_export},
  };
  return dispatch("flopcast schedule", "Pipeline schedules by themselves, without a model.", entries, arguments);
}

}  // namespace flopcast
