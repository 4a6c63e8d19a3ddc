#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "cli/commands.hpp"
#include "cli/options/job_options.hpp"
#include "cli/options/output.hpp"
#include "cli/schedule/options.hpp"
#include "planner/tables/tables.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/timeline_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/lower/lower.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

namespace {

std::optional<int> number_of(const JobOptions& options, std::string_view field, const std::string& flag) {
  const auto text = options.flag(field);
  if (!text) return std::nullopt;
  const std::optional<int> number = parse_digits(*text, 0, 999'999'999);
  if (!number) throw ConfigError({flag, fmt::format("\"{}\" is not a whole number", *text), "", ""});
  return number;
}

// Flags of a job mean nothing to a bare schedule; saying nothing would hide the mistake.
void refuse_job_flags(const JobOptions& options) {
  for (const FlagValue* value : options.given()) {
    const std::string_view field = value->key->field;
    const bool known = field == "layout.pp" || field == "layout.vpp" || field == "layout.schedule" ||
                       field == "layout.chains" ||
                       std::any_of(schedule_numbers().begin(), schedule_numbers().end(),
                                   [field](const ScheduleNumber& number) { return number.field == field; });
    if (!known)
      throw ConfigError({value->flag, "needs a job", "", "give JOB or --model and --cluster, or leave it out"});
  }
}

// What the command line says of schedules without a job.
struct BareOptions {
  std::optional<int> microbatches;
  std::optional<std::string> replicas;
  std::optional<int> memory;
  TimeOptions times;

  bool given() const { return microbatches || replicas || memory || times.given(); }
  // With a job, there is nothing for them to say.
  void refuse_all() const {
    if (memory) {
      throw ConfigError({"--at-memory", "is for schedules without a job", "",
                         "--microbatches, --pp and --schedule alone; flopcast memory JOB tells what a job needs"});
    }
    if (!given()) return;
    const char* const flag = microbatches ? "--microbatches"
                             : replicas   ? "--replicas"
                                          : "--forward and the other times";
    throw ConfigError({flag, "come from the job when there is one", "", "leave it out, or leave the job out"});
  }
};

struct BareTimelines {
  std::vector<Timeline> timelines;
  ScheduleComparison comparison;  // of the same schedules
};

ScheduleList list_of(const JobOptions& options, const BareOptions& bare) {
  refuse_job_flags(options);
  const auto schedules = options.flag("layout.schedule");
  if (!schedules)
    throw ConfigError(
        {"", "no job and no schedule given", "", "give JOB, or --pp P --microbatches M --schedule NAME[,NAME…]"});
  ScheduleList list;
  list.names = split(*schedules);
  list.chains = options.flag("layout.chains");
  list.numbers.pipeline_ranks = number_of(options, "layout.pp", "--pp");
  list.numbers.microbatches = bare.microbatches;
  list.numbers.chunks = number_of(options, "layout.vpp", "--vpp");
  list.numbers.replicas = bare.replicas;
  for (const ScheduleNumber& number : schedule_numbers())
    list.numbers.request.*number.request = number_of(options, number.field, std::string(number.flag));
  return list;
}

Timeline titled(Timeline timeline, const Program& program, const ComparedSchedule& row) {
  const auto counted = [](int count, const char* one, const char* more) {
    return fmt::format("{} {}", count, count == 1 ? one : more);
  };
  std::string work = counted(program.microbatch_count(), "microbatch", "microbatches");
  if (program.slices_per_microbatch > 1) work += fmt::format(" of {} slices", program.slices_per_microbatch);
  timeline.title = fmt::format("{}: {}, {}, bubble {:.1f} % of all device time{}", row.name,
                               counted(program.rank_count(), "rank", "ranks"), work,
                               100.0 * row.figures.steady_idle.value_or(row.figures.bubble_fraction),
                               row.figures.steady_idle ? " once full" : "");
  return timeline;
}

BareTimelines bare_timelines(const ScheduleList& list, const BareOptions& options, const Streams& streams) {
  const TimeOptions& times = options.times;
  times.require_readable();
  list.refuse_what_nobody_reads();
  if (list.names.size() > 1) warn_of_unequal_parts(times, streams);
  bool any_pairs = false;
  const auto times_of = [&](const Program& program) {
    any_pairs = any_pairs || has_pairs(program);
    return times.times_for_comparison(program);
  };
  BareTimelines bare;
  bare.comparison.memory = options.memory;
  for (const std::string& name : list.names) {
    const Program program = list.program(name, times_of, streams);
    bare.comparison.schedules.push_back(list.compared(name, program, options.memory, times_of));
    Timeline timeline = in_millionths(simulate(program, times_of(program)));
    bare.timelines.push_back(titled(std::move(timeline), program, bare.comparison.schedules.back()));
  }
  refuse_unused_fused(times, any_pairs, fmt::format("{}", fmt::join(list.names, ", ")));
  return bare;
}

// Side by side in figures too; schedules from files may be of other shapes.
std::string compared(ScheduleComparison& comparison, const TableStyle& style) {
  const auto& schedules = comparison.schedules;
  const ComparedSchedule& first = schedules.front();
  for (const ComparedSchedule& other : schedules) {
    if (other.same_shape(first.request)) continue;
    return fmt::format("\nno comparison: {} has {}, {} has {}\n", first.name, shape_text(first.request), other.name,
                       shape_text(other.request));
  }
  comparison.pipeline_ranks = first.request.pipeline_ranks;
  comparison.microbatches = first.request.microbatches;
  std::string text;
  if (schedules.size() > 1)
    text += "\n" + write_table(figures_table(comparison, Format::kTable), Format::kTable, style);
  if (comparison.memory) text += "\n" + write_table(memory_table(comparison), Format::kTable, style);
  return text;
}

Table span_table(const std::vector<Timeline>& timelines) {
  Table table;
  table.columns = {text_column("timeline"), number_column("rank"),  text_column("kind"), text_column("action"),
                   text_column("stream"),   number_column("start"), number_column("end")};
  for (const Timeline& timeline : timelines) {
    for (std::size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
      for (const Span& span : timeline.ranks[rank]) {
        const bool names_action = is_action(span.kind) || span.kind == SpanKind::kSend;
        table.rows.push_back({timeline.title, fmt::format("{}", rank), std::string(name_of(span.kind)),
                              names_action ? to_string(span.action) : "", std::string(name_of(span.stream)),
                              fmt::format("{}", units_of(timeline, span.start)),
                              fmt::format("{}", units_of(timeline, span.end))});
      }
    }
  }
  return table;
}

std::string rendered(const std::vector<Timeline>& timelines, Format format, const Terminal& terminal) {
  if (format == Format::kJson) return write_timelines(timelines);
  if (format != Format::kTable) return write_table(span_table(timelines), format);
  std::string text;
  for (const Timeline& timeline : timelines) {
    TerminalOptions options;
    options.width = terminal.width;
    options.color = terminal.color;
    options.ascii = terminal.ascii;
    text += (text.empty() ? "" : "\n") + draw_timeline(timeline, options);
  }
  return text;
}

}  // namespace

namespace {

// Cells such as 0F0, and no object of a job.
bool is_schedule_csv(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] != '{' && text.find(',') < text.find('\n');
}

// A CSV in place of JOB is a schedule's rows.
Arguments with_schedule_files(const Arguments& arguments, const Streams& streams) {
  Arguments meant;
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const bool is_value = at > 0 && !arguments[at - 1].empty() && arguments[at - 1].front() == '-';
    const bool names_rows = arguments[at] == kStandardInput
                                ? is_schedule_csv(read_input(streams, arguments[at]))
                                : arguments[at].ends_with(".csv") && arguments[at].front() != '-';
    const bool is_rows = names_rows && !is_value;
    if (is_rows) meant.emplace_back("--schedule");
    meant.push_back(is_rows ? "file:" + arguments[at] : arguments[at]);
  }
  return meant;
}

std::string life_of(const JobOptions& options, Format format, const Terminal& terminal, bool wants_files) {
  if (format != Format::kTable || wants_files) {
    throw ConfigError({"--life", "is drawn in a terminal only", "", "flopcast simulate --life FILE.svg or FILE.html"});
  }
  Forecast answer = forecast(options.read(), read_file);
  const std::optional<RunLife> life = add_run(answer, WithOptions::kNo);
  if (!life) {
    throw ConfigError(
        {"--life", answer.step.job.failures ? "there is no run to draw: it never finishes" : "there is no run to draw",
         "", "give --failures NAME, such as llama3"});
  }
  TerminalOptions drawing;
  drawing.width = terminal.width;
  drawing.ascii = terminal.ascii;
  return draw_life(*life, answer.step.job.model.name + " on " + answer.step.job.cluster.name, drawing);
}

}  // namespace

int run_timeline(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(streams, "timeline",
                           "flopcast timeline (JOB | --pp P --microbatches M --schedule A,B,…) [options]",
                           "Draws what every pipeline rank does when. Without a job a rank takes 1 for its forward and "
                           "2 for its backward pass, "
                           "spread over its chunks, unless times are given.",
                           {"flopcast timeline --pp 4 --microbatches 8 --schedule gpipe,1f1b,interleaved:2",
                            "flopcast timeline job.json --svg timeline.svg",
                            "flopcast timeline --pp 4 -m 8 --schedule 1f1b --p2p 0.5 --format csv"});
  JobOptions job;
  BareOptions bare_options;
  OutputOptions output;
  DrawingOptions drawing;
  TimelineFiles files;
  bool draws_life = false;
  job.add_to(command_line);
  command_line.begin_group("Schedule without a job (with --pp, --vpp, --group, --schedule A,B,…)");
  command_line.add_option("--microbatches,-m,--mb", bare_options.microbatches, "N", "microbatches");
  command_line.add_option("--replicas", bare_options.replicas, "N,N,…", std::string(kReplicasHelp));
  command_line.add_option("--at-memory", bare_options.memory, "N", std::string(kAtMemoryHelp));
  bare_options.times.add_to(command_line);
  command_line.begin_group("Months (with --failures)");
  command_line.add_flag("--life", draws_life, "draw the median run of months instead of a step");
  output.add_to(command_line);
  drawing.add_to(command_line);
  files.add_to(command_line);
  if (!command_line.parse(with_schedule_files(arguments, streams))) return 0;

  const Format format = output.format();
  if (job.show_config(output)) return 0;
  files.check();
  const Terminal terminal = drawing.terminal();
  if (!job.names_a_job()) {
    if (draws_life) throw ConfigError({"--life", "needs a job", "", "give JOB with failures, or --failures NAME"});
    require_memory(bare_options.memory);
    if (bare_options.memory && format != Format::kTable) {
      throw ConfigError({"--at-memory", "stands below the drawing, in a terminal only", "",
                         "flopcast schedule compare --at-memory writes every format"});
    }
    BareTimelines bare = bare_timelines(list_of(job, bare_options), bare_options, streams);
    files.write(bare.timelines);
    const std::string figures = format == Format::kTable ? compared(bare.comparison, table_style(streams)) : "";
    output.write(rendered(bare.timelines, format, terminal) + figures);
    return 0;
  }
  bare_options.refuse_all();
  if (draws_life) {
    output.write(life_of(job, format, terminal, files.wanted()));
    return 0;
  }
  const Forecast answer = forecast(job.read(), read_file);
  PageParts parts;
  if (files.has_page()) parts.advice = advice_on(answer, read_file);
  files.write(answer, command_line.typed(), parts);
  output.write(rendered({answer.timeline}, format, terminal));
  return 0;
}

}  // namespace flopcast
