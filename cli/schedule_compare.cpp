#include <fmt/format.h>

#include <algorithm>

#include "cli/commands.hpp"
#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_comparison_report.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_times.hpp"
#include "cli/terminal.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

// What the command line asks for.
struct CompareOptions {
  std::optional<std::string> schedules;
  ScheduleNumbers numbers;
  TimeOptions times;
  std::optional<int> memory;
  std::optional<std::string> columns;
};

// A number that none of the compared schedules reads would be a silent mistake.
void refuse_numbers_nobody_reads(const std::vector<std::string>& names, const ScheduleNumbers& numbers) {
  const auto somebody = [&names](auto reads) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return !schedule_file_of(name) && reads(*parse_schedule_name(name).info);
    });
  };
  const auto refuse = [](std::string_view flag, int value) {
    throw ConfigError(
        {std::string(flag), fmt::format("{} means nothing to any of the schedules", value), "", "leave it out"});
  };
  if (numbers.chunks.value_or(1) != 1 && !somebody([](const ScheduleInfo& info) { return info.uses_chunks; })) {
    refuse("--vpp", *numbers.chunks);
  }
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = numbers.request.*number.request;
    if (value && !somebody([&](const ScheduleInfo& info) { return info.reads_number(number); })) {
      refuse(number.flag, *value);
    }
  }
}

// A file has the ranks and microbatches that it has.
void require_same_shape(const ComparedSchedule& row, const ScheduleNumbers& numbers) {
  const bool same =
      row.request.pipeline_ranks == *numbers.pipeline_ranks && row.request.microbatches == *numbers.microbatches;
  if (same) return;
  throw ConfigError({"--schedule",
                     fmt::format("{} has {} ranks and {} microbatches, which cannot be compared with {} and {}",
                                 row.name, row.request.pipeline_ranks, row.request.microbatches,
                                 *numbers.pipeline_ranks, *numbers.microbatches),
                     "",
                     fmt::format("--pp {} --microbatches {}", row.request.pipeline_ranks, row.request.microbatches)});
}

void add_schedule(const std::string& name, const CompareOptions& options, ScheduleComparison& comparison) {
  const TimesOfProgram times = [&options](const Program& program) {
    return options.times.times_for_comparison(program);
  };
  if (const auto path = schedule_file_of(name)) {
    const Program program = read_schedule_file(*path, std::nullopt);
    require_valid(program);
    comparison.schedules.push_back(compare_program(*path, program, times));
    require_same_shape(comparison.schedules.back(), options.numbers);
    return;
  }
  const ScheduleRequest request = request_for(name, options.numbers);
  const std::optional<ScheduleRefusal> refusal = refuse_request(*parse_schedule_name(name).info, request);
  if (!refusal) {
    comparison.schedules.push_back(compare_named(name, request, options.memory, times));
  } else if (options.schedules) {
    throw ConfigError({"schedule", refusal->problem, "", refusal->help});
  } else {
    comparison.refused.push_back({name, *refusal});
  }
}

ScheduleComparison compare(const CompareOptions& options) {
  std::vector<std::string> names;
  if (options.schedules) {
    names = split_names(*options.schedules);
  } else {
    for (const ScheduleInfo& info : schedule_catalogue()) names.emplace_back(info.name);
  }
  // Before anything is generated, so that a wrong number is named rather than its consequences.
  const ScheduleRequest common = request_for("naive", options.numbers);
  refuse_numbers_nobody_reads(names, options.numbers);
  constexpr int kMostActivations = 1'000'000;
  if (options.memory && (*options.memory < 1 || *options.memory > kMostActivations)) {
    throw ConfigError({"--at-memory", fmt::format("{} is out of range", *options.memory), "",
                       fmt::format("expected a whole number of microbatches from 1 to {}", kMostActivations)});
  }
  ScheduleComparison comparison;
  comparison.pipeline_ranks = common.pipeline_ranks;
  comparison.microbatches = common.microbatches;
  comparison.memory = options.memory;
  for (const std::string& name : names) add_schedule(name, options, comparison);
  return comparison;
}

bool wants_semantics(const CompareOptions& options) {
  const std::string columns = options.columns.value_or("figures");
  if (columns != "figures" && columns != "semantics") {
    throw ConfigError({"--columns", fmt::format("unknown columns \"{}\"", columns), "",
                       choices_help(columns, {"figures", "semantics"})});
  }
  return columns == "semantics";
}

std::vector<Table> tables_of(const ScheduleComparison& comparison, bool semantics, Format format) {
  // CSV holds one table, with the refused among its rows.
  if (comparison.memory && format == Format::kCsv) return {memory_table(comparison)};
  std::vector<Table> tables = {semantics ? semantics_table(comparison, format) : figures_table(comparison, format)};
  if (format == Format::kCsv) return tables;
  if (comparison.memory) tables.push_back(memory_table(comparison));
  if (const std::optional<Table> refused = refused_table(comparison)) tables.push_back(*refused);
  return tables;
}

}  // namespace

int run_schedule_compare(const Arguments& arguments) {
  CommandLine command_line(
      "schedule compare", "flopcast schedule compare [--schedule A,B,…] --pp P --microbatches M [options]",
      "The same ranks, microbatches and times under several schedules; without --schedule, under all that accept them. "
      "A rank takes 1 for its forward and 2 for its backward pass, spread over its chunks, unless times are given.",
      {"flopcast schedule compare --pp 4 --microbatches 8",
       "flopcast schedule compare --schedule gpipe,1f1b --pp 4 --microbatches 32 --p2p 0.2 --at-memory 4",
       "flopcast schedule compare --schedule gpipe,1f1b,pipedream,pipedream-2bw --pp 4 -m 8 --columns semantics"});
  CompareOptions options;
  OutputOptions output;
  command_line.begin_group("Schedules");
  command_line.add_option("--schedule", options.schedules, "A,B,…",
                          "compare these, file:PATH among them (see: flopcast schedule list)");
  add_number_options(command_line, options.numbers);
  command_line.begin_group("Comparison");
  command_line.add_option("--at-memory", options.memory, "N",
                          "how many microbatches fit when a rank has room for the activations of N");
  command_line.add_option("--columns", options.columns, "WHICH",
                          "figures (default), or semantics: updates, memory, where to use");
  options.times.add_to(command_line);
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;
  const Format format = output.format();
  const bool semantics = wants_semantics(options);
  const ScheduleComparison comparison = compare(options);
  if (format == Format::kJson) {
    output.write(comparison_json(comparison).dump(2));
  } else {
    output.write(tables_of(comparison, semantics, format));
  }
  return 0;
}

}  // namespace flopcast
