#include <fmt/format.h>

#include "api/schedule/options.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "planner/tables/tables.hpp"

namespace flopcast {

namespace {

// Options of the command line.
struct CompareOptions {
  std::optional<std::string> schedules;
  ScheduleList list;
  TimeOptions times;
  std::optional<int> memory;
  std::optional<std::string> columns;
};

// Times given per stage or per link may fit only some of all schedules; those that do not fit are refused instead of
// failing.
std::optional<ScheduleRefusal> add_unless_times_do_not_fit(const std::string& name, const CompareOptions& options,
                                                           const TimesOfProgram& times,
                                                           ScheduleComparison& comparison) {
  const ScheduleRequest request = request_for(name, options.list.numbers);
  const bool may_not_fit = !options.schedules && options.times.names_stages();
  try {
    comparison.schedules.push_back(compare_named(name, request, options.memory, times));
  } catch (const ConfigError& error) {
    if (!may_not_fit) throw;
    const Diagnostic& why = error.diagnostic();
    return ScheduleRefusal{.problem = fmt::format("{}: {}", why.field, why.problem), .help = why.help};
  }
  return std::nullopt;
}

void add_schedule(const std::string& name, const CompareOptions& options, const TimesOfProgram& times,
                  const Streams& streams, ScheduleComparison& comparison) {
  if (schedule_file_of(name)) {
    const Program program = options.list.program(name, times, streams);
    comparison.schedules.push_back(options.list.compared(name, program, options.memory, times));
    return;
  }
  const ScheduleRequest request = request_for(name, options.list.numbers);
  std::optional<ScheduleRefusal> refusal = refuse_request(*parse_schedule_name(name).info, request);
  if (refusal && options.schedules) throw ConfigError({"schedule", refusal->problem, "", refusal->help});
  if (!refusal) refusal = add_unless_times_do_not_fit(name, options, times, comparison);
  if (refusal) comparison.refused.push_back({name, *refusal});
}

void check(const CompareOptions& options, const Streams& streams) {
  // Checked before anything is generated, so that the error names the wrong number, not its consequences.
  if (!options.list.only_files()) static_cast<void>(request_for("naive", options.list.numbers));
  options.list.refuse_unused_numbers_of_all();
  options.times.require_readable();
  require_memory(options.memory);
  warn_of_unequal_parts(options.times, streams);
}

ScheduleComparison compare(CompareOptions options, const Streams& streams) {
  if (options.schedules) {
    options.list.names = split(*options.schedules);
  } else {
    for (const ScheduleInfo& info : schedule_catalogue()) options.list.names.emplace_back(info.name);
  }
  check(options, streams);
  bool any_pairs = false;
  const TimesOfProgram times = [&](const Program& program) {
    any_pairs = any_pairs || has_pairs(program);
    return options.times.times_for_comparison(program);
  };
  ScheduleComparison comparison;
  comparison.memory = options.memory;
  for (const std::string& name : options.list.names) {
    add_schedule(name, options, times, streams, comparison);
    if (comparison.schedules.empty()) continue;
    // If only files are given, the first one determines ranks and microbatches.
    const ScheduleRequest& first = comparison.schedules.front().request;
    options.list.numbers.pipeline_ranks = first.pipeline_ranks;
    options.list.numbers.microbatches = first.microbatches;
  }
  refuse_unused_fused(options.times, any_pairs, "any of the schedules");
  comparison.pipeline_ranks = options.list.numbers.pipeline_ranks.value_or(0);
  comparison.microbatches = options.list.numbers.microbatches.value_or(0);
  return comparison;
}

bool wants_semantics(const CompareOptions& options) {
  return choice_of("--columns", options.columns.value_or("figures"), {"figures", "semantics"}, "columns") == 1;
}

std::vector<Table> tables_of(const ScheduleComparison& comparison, bool semantics, Format format) {
  std::vector<Table> tables = {semantics ? semantics_table(comparison, format) : figures_table(comparison, format)};
  if (comparison.memory) tables.push_back(memory_table(comparison));
  if (const std::optional<Table> refused = refused_table(comparison)) tables.push_back(*refused);
  return tables;
}

class ScheduleCompare final : public Question {
 public:
  void declare(Form& form) override {
    form.begin_group("Schedules");
    form.add_option("--schedule", options_.schedules, "A,B,…",
                    "schedules to compare, also file:PATH (see: flopcast schedule list)");
    add_number_options(form, options_.list.numbers);
    form.add_option("--replicas", options_.list.numbers.replicas, "N,N,…", std::string(kReplicasHelp));
    form.add_option("--chains", options_.list.chains, "A-B,C-D", "stage ranges of bidirectional schedules in files");
    form.begin_group("Comparison");
    form.add_option("--at-memory", options_.memory, "N", std::string(kAtMemoryHelp));
    form.add_option("--columns", options_.columns, "WHICH",
                    "figures (default) or semantics: updates, memory, recommended use");
    options_.times.add_to(form);
    form.place_output();
  }

  Answer ask(const Context& context) override {
    const bool semantics = wants_semantics(options_);
    comparison_ = compare(options_, context.streams);
    const Format format = context.format;
    // In a single table, refused schedules are among its rows.
    const auto rows = [this, semantics, format] {
      return comparison_.memory ? memory_table(comparison_)
             : semantics        ? semantics_table(comparison_, format)
                                : figures_table(comparison_, format);
    };
    return {.tables = [this, semantics, format] { return tables_of(comparison_, semantics, format); },
            .rows = rows,
            .json = [this] { return write_comparison(comparison_); }};
  }

 private:
  CompareOptions options_;
  ScheduleComparison comparison_;
};

}  // namespace

QuestionInfo schedule_compare_question() {
  return {"schedule compare",
          "compare several schedules for the same request",
          "flopcast schedule compare [--schedule A,B,…] --pp P --microbatches M [options]",
          "Compares schedules with the same ranks, microbatches and times; without --schedule, all that accept "
          "them. A rank takes 1 for its forward and 2 for its backward pass, spread over its chunks, unless times are "
          "given.",
          {"flopcast schedule compare --pp 4 --microbatches 8",
           "flopcast schedule compare --schedule gpipe,1f1b --pp 4 --microbatches 32 --p2p 0.2 --at-memory 4",
           "flopcast schedule compare --schedule gpipe,1f1b,pipedream,pipedream-2bw --pp 4 -m 8 --columns semantics"},
          make_question<ScheduleCompare>};
}

}  // namespace flopcast
