#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "api/options/job_options.hpp"
#include "api/schedule/options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "planner/tables/tables.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/run_file.hpp"
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

// Job flags have no effect on a bare schedule; accepting them would hide a mistake.
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

// Options for schedules without a job.
struct BareOptions {
  std::optional<int> microbatches;
  std::optional<std::string> replicas;
  std::optional<int> memory;
  TimeOptions times;

  bool given() const { return microbatches || replicas || memory || times.given(); }
  // None of them applies if there is a job.
  void refuse_all() const {
    if (memory) {
      throw ConfigError({"--at-memory", "applies only to schedules without a job", "",
                         "give only --microbatches, --pp and --schedule; for a job, use flopcast memory JOB"});
    }
    if (!given()) return;
    const char* const flag = microbatches ? "--microbatches"
                             : replicas   ? "--replicas"
                                          : "--forward and the other times";
    throw ConfigError({flag, "cannot be given for a job, which determines them", "", "leave it out, or omit the job"});
  }
};

struct BareTimelines {
  std::vector<Timeline> timelines;
  ScheduleComparison comparison;  // figures of the same schedules
};

ScheduleList list_of(const JobOptions& options, const BareOptions& bare) {
  refuse_job_flags(options);
  const auto schedules = options.flag("layout.schedule");
  if (!schedules)
    throw ConfigError({"", "neither a job nor a schedule is given", "",
                       "give JOB, or --pp P --microbatches M --schedule NAME[,NAME…]"});
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
  list.refuse_unused_numbers_of_all();
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

// Comparison of figures; empty for one schedule. Schedules from files may have different shapes.
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

std::string drawn(const std::vector<Timeline>& timelines, const Terminal& terminal) {
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

// True for cells such as 0F0, false for a job's JSON object.
bool is_schedule_csv(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] != '{' && text.find(',') < text.find('\n');
}

class TimelineQuestion final : public Question {
 public:
  void declare(Form& form) override {
    job_.add_to(form);
    job_.add_more_files(form);
    form.begin_group("Schedule without a job (with --pp, --vpp, --group, --schedule A,B,…)");
    form.add_option("--microbatches,-m,--mb", bare_options_.microbatches, "N", "microbatches");
    form.add_option("--replicas", bare_options_.replicas, "N,N,…", std::string(kReplicasHelp));
    form.add_option("--at-memory", bare_options_.memory, "N", std::string(kAtMemoryHelp));
    bare_options_.times.add_to(form);
    form.begin_group("Months (with --failures)");
    form.add_flag("--life", draws_life_, "draw the median run over months instead of a step");
    form.place_output();
    form.place_drawing();
    form.place_figure("write the timeline as a figure");
    form.place_page("write a report as one self-contained HTML file");
    form.place_trace("write the timeline as a trace for ui.perfetto.dev");
  }

  Answer ask(const Context& context) override {
    take_rows_for_schedule(context.streams);
    if (std::optional<Answer> config = job_.config_answer(context)) return std::move(*config);
    if (!job_.names_a_job()) return bare_answer(context);
    bare_options_.refuse_all();
    if (draws_life_) return life_answer(context);
    forecast_ = forecast(job_.read(), read_file);
    timelines_ = {forecast_.timeline};
    Answer answer = answer_of_timelines(context);
    add_timeline_files(
        forecast_, [this] { return PageParts{.advice = advice_on(forecast_, read_file)}; }, answer);
    return answer;
  }

 private:
  // A CSV file among the files is a schedule.
  void take_rows_for_schedule(const Streams& streams) {
    const auto is_rows = [&streams](const std::string& file) {
      return file == kStandardInput ? is_schedule_csv(read_input(streams, file)) : file.ends_with(".csv");
    };
    const std::optional<std::string> given = job_.flag("layout.schedule");
    const std::optional<std::string> rows = job_.take_file_for("layout.schedule", "file:", "--schedule", is_rows);
    if (!rows || !given) return;
    throw ConfigError({"--schedule", fmt::format("conflicts with the schedule file: {} and {}", *given, *rows), "",
                       "give only one of them"});
  }

  Answer answer_of_timelines(const Context& context) {
    Answer answer{.tables = [this] { return std::vector<Table>{span_table(timelines_)}; },
                  .json = [this] { return write_timelines(timelines_); }};
    if (context.format == Format::kTable)
      answer.text = [this, &context] { return drawn(timelines_, context.terminal); };
    return answer;
  }

  Answer bare_answer(const Context& context) {
    if (draws_life_) throw ConfigError({"--life", "needs a job", "", "give JOB with failures, or --failures NAME"});
    require_memory(bare_options_.memory);
    const bool draws = context.format == Format::kTable;
    if (bare_options_.memory && !draws) {
      throw ConfigError({"--at-memory", "is only shown below the drawing in a terminal", "",
                         "for other formats, use flopcast schedule compare --at-memory"});
    }
    BareTimelines bare = bare_timelines(list_of(job_, bare_options_), bare_options_, context.streams);
    timelines_ = std::move(bare.timelines);
    comparison_ = std::move(bare.comparison);
    Answer answer = answer_of_timelines(context);
    if (draws) {
      answer.text = [this, &context] {
        return drawn(timelines_, context.terminal) + compared(comparison_, context.style);
      };
    }
    add_timeline_files(timelines_, answer);
    return answer;
  }

  Answer life_answer(const Context& context) {
    if (context.format != Format::kTable || (context.has_figure || context.has_page || context.has_trace)) {
      throw ConfigError({"--life", "is only drawn in a terminal", "",
                         "for files, use flopcast simulate --life FILE.svg or FILE.html"});
    }
    forecast_ = forecast(job_.read(), read_file);
    life_ = add_run(forecast_, WithOptions::kNo);
    require_life(life_, forecast_);
    return {.text = [this, &context] {
      TerminalOptions drawing;
      drawing.width = context.terminal.width;
      drawing.ascii = context.terminal.ascii;
      const Job& job = forecast_.step.job;
      return draw_life(*life_, job.model.name + " on " + job.cluster.name, drawing);
    }};
  }

  JobOptions job_;
  BareOptions bare_options_;
  bool draws_life_ = false;

  Forecast forecast_;
  std::optional<RunLife> life_;
  std::vector<Timeline> timelines_;
  ScheduleComparison comparison_;
};

}  // namespace

QuestionInfo timeline_question() {
  return {
      "timeline",
      "draw a step, or a schedule without a model",
      "flopcast timeline (JOB | --pp P --microbatches M --schedule A,B,…) [options]",
      "Draws the actions of every pipeline rank over time. Without a job, a rank takes 1 for its forward and 2 for its "
      "backward pass, spread over its chunks, unless times are given.",
      {"flopcast timeline --pp 4 --microbatches 8 --schedule gpipe,1f1b,interleaved:2",
       "flopcast timeline job.json --svg timeline.svg",
       "flopcast timeline --pp 4 -m 8 --schedule 1f1b --p2p 0.5 --format csv"},
      make_question<TimelineQuestion>};
}

}  // namespace flopcast
