#include "planner/tables/tables.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/config/document.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

namespace {

constexpr int kDecimals = 6;
constexpr Ticks kDecimalsPerUnit = 1'000'000;
static_assert(kTicksPerUnit % kDecimalsPerUnit == 0);

[[noreturn]] void refuse(const std::string& flag, const std::string& problem) {
  throw ConfigError(
      {flag, problem, "", "give a time without a unit, such as 10 or 2.5: not negative, at most six decimals"});
}

}  // namespace

double in_units(double ticks) {
  constexpr auto kDecimalsOfUnit = static_cast<double>(kDecimalsPerUnit);
  return std::round(ticks / static_cast<double>(kTicksPerUnit) * kDecimalsOfUnit) / kDecimalsOfUnit;
}

double in_units(Ticks ticks) {
  return in_units(static_cast<double>(ticks));
}

std::string units_text(Ticks ticks) {
  return fmt::format("{}", in_units(ticks));
}

Ticks parse_time(const std::string& flag, std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const auto all_digits = [](std::string_view digits) {
    return std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const bool is_number = all_digits(whole) && all_digits(decimals) && !(whole.empty() && decimals.empty());
  if (!is_number) refuse(flag, fmt::format("\"{}\" is not a plain number", text));
  if (decimals.size() > kDecimals) refuse(flag, fmt::format("\"{}\" has more than six decimals", text));
  constexpr Ticks kTicksPerDecimal = kTicksPerUnit / kDecimalsPerUnit;
  constexpr Ticks kLargest = std::numeric_limits<Ticks>::max() / kTicksPerDecimal;
  Ticks value = 0;
  std::string digits(whole);
  digits += decimals;
  digits.append(kDecimals - decimals.size(), '0');
  for (const char character : digits) {
    const Ticks digit = character - '0';
    if (value > (kLargest - digit) / 10) refuse(flag, fmt::format("\"{}\" is too large", text));
    value = value * 10 + digit;
  }
  return value * kTicksPerDecimal;
}

std::vector<Ticks> parse_times(const std::string& flag, std::string_view text) {
  std::vector<Ticks> times;
  for (const std::string& part : split(text)) times.push_back(parse_time(flag, part));
  return times;
}

Timeline in_millionths(Timeline timeline) {
  const auto rescale = [](Ticks& time) {
    constexpr Ticks kTicks = kTicksPerUnit / kDecimalsPerUnit;
    time = (time + kTicks / 2) / kTicks;
  };
  for (std::vector<Span>& spans : timeline.ranks) {
    for (Span& span : spans) {
      rescale(span.start);
      rescale(span.end);
    }
  }
  for (Transfer& transfer : timeline.transfers) {
    rescale(transfer.start);
    rescale(transfer.end);
  }
  if (timeline.weights) {
    for (std::vector<Ticks>& updates : timeline.weights->updates)
      std::for_each(updates.begin(), updates.end(), rescale);
  }
  timeline.units_per_tick = 1.0 / static_cast<double>(kDecimalsPerUnit);
  return timeline;
}

bool ComparedSchedule::same_shape(const ScheduleRequest& other) const {
  return request.pipeline_ranks == other.pipeline_ranks && request.microbatches == other.microbatches;
}

std::string shape_text(const ScheduleRequest& request) {
  return fmt::format("{} rank{} and {} microbatch{}", request.pipeline_ranks, request.pipeline_ranks == 1 ? "" : "s",
                     request.microbatches, request.microbatches == 1 ? "" : "es");
}

ScheduleRequest shape_of(const Program& program) {
  ScheduleRequest shape;
  shape.pipeline_ranks = 0;
  for (const Chain& chain : program.chains) {
    shape.pipeline_ranks = std::max(shape.pipeline_ranks, static_cast<int>(ranks_of_chain(program, chain).size()));
  }
  shape.microbatches = program.microbatch_count();
  return shape;
}

ComparedSchedule compare_program(const std::string& name, const Program& program, std::optional<int> memory,
                                 const TimesOfProgram& times) {
  ComparedSchedule row;
  row.name = name;
  row.request = shape_of(program);
  row.figures = figures_of(program, times);
  if (memory) {
    MemoryFit fit;
    fit.microbatches = row.figures.largest_peak() <= *memory ? row.request.microbatches : 0;
    fit.bubble_fraction = row.figures.bubble_fraction;
    row.fit = fit;
  }
  return row;
}

ComparedSchedule compare_named(const std::string& name, const ScheduleRequest& request, std::optional<int> memory,
                               const TimesOfProgram& times) {
  const ScheduleName parsed = parse_schedule_name(name);
  ComparedSchedule row;
  row.info = parsed.info;
  row.request = request;
  row.name = request.chunks == 1 || parsed.chunks ? name : fmt::format("{}:{}", name, request.chunks);
  row.figures = figures_of(*row.info, request, times);
  if (memory) row.fit = fit_into_memory(*row.info, request, *memory, times);
  return row;
}

namespace {

using Json = nlohmann::ordered_json;

std::string title_of(const ScheduleComparison& comparison) {
  return fmt::format("{} pipeline rank{}, {} microbatch{}", comparison.pipeline_ranks,
                     comparison.pipeline_ranks == 1 ? "" : "s", comparison.microbatches,
                     comparison.microbatches == 1 ? "" : "es");
}

std::string figure_text(double value) {
  return fmt::format("{:.6g}", value);
}
// "4 … 1", first and last rank's value, if the ranks differ.
std::string over_ranks(const std::vector<int>& values) {
  const bool same = std::all_of(values.begin(), values.end(), [&](int value) { return value == values.front(); });
  return same ? fmt::format("{}", values.front()) : fmt::format("{} … {}", values.front(), values.back());
}

std::string copies_of(const std::vector<int>& copies) {
  const bool one = over_ranks(copies) == "1";
  return fmt::format("{} cop{}{}", over_ranks(copies), one ? "y" : "ies",
                     copies.front() == copies.back() ? "" : " from the first to the last rank");
}

int largest(const std::vector<int>& values) {
  return *std::max_element(values.begin(), values.end());
}

bool is_asynchronous(const ComparedSchedule& schedule) {
  return schedule.info != nullptr && schedule.info->asynchronous;
}

std::string updates_of(const ComparedSchedule& schedule) {
  if (!is_asynchronous(schedule))
    return "once per step, after its last microbatch: gradient accumulation, no staleness";
  const int every = schedule.info->weights.accumulation(schedule.request);
  std::string text = every == 1 ? "after every microbatch" : fmt::format("after every {} microbatches", every);
  switch (schedule.info->weight_policy(schedule.request)) {
    case WeightPolicy::kStashed:
      text += "; both passes use the weights of the forward pass";
      break;
    case WeightPolicy::kVerticalSync:
      text += "; all stages use the weights that the first stage used";
      break;
    case WeightPolicy::kDoubleBuffered:
      text += "; both passes use the weights before the latest update";
      break;
    case WeightPolicy::kNewest:
      text += "; each pass uses the newest weights, so the two passes differ";
      break;
    case WeightPolicy::kFlushed:
      break;
  }
  return text + fmt::format("; staleness {}", over_ranks(schedule.figures.staleness));
}

std::string bubble_of(const ComparedSchedule& schedule) {
  const ScheduleFigures& figures = schedule.figures;
  if (!figures.steady_idle) return fmt::format("{:.3f} of every step", figures.bubble_fraction);
  return fmt::format("{:.3f} once the pipeline is full; {:.3f} for a run of {} microbatches", *figures.steady_idle,
                     figures.bubble_fraction, schedule.request.microbatches);
}

}  // namespace

Table figures_table(const ScheduleComparison& comparison, Format format) {
  Table table = {
      .title = title_of(comparison),
      .columns = {text_column("schedule"), number_column("makespan"), number_column("span"),
                  number_column("bubble fraction"), number_column("bubble ratio"),
                  number_column("activations", "peak_activations"), number_column("weights", "weight_copies"),
                  number_column("staleness"), number_column("messages"), number_column("closed form")}};
  const bool with_reasons = shown_by(format) == Shows::kRows;
  if (with_reasons) table.columns.insert(table.columns.end(), {text_column("note"), text_column("refused")});
  for (const ComparedSchedule& schedule : comparison.schedules) {
    const ScheduleFigures& figures = schedule.figures;
    table.rows.push_back({schedule.name, units_text(figures.makespan), units_text(figures.span),
                          fmt::format("{:.4f}", figures.bubble_fraction), fmt::format("{:.4f}", figures.bubble_ratio),
                          figure_text(figures.largest_peak()), fmt::format("{}", largest(figures.weight_copies)),
                          fmt::format("{}", largest(figures.staleness)), fmt::format("{}", figures.messages),
                          figures.closed_form ? units_text(*figures.closed_form) : ""});
    if (with_reasons) table.rows.back().insert(table.rows.back().end(), {figures.closed_form_note, ""});
    if (!figures.closed_form_note.empty()) {
      table.notes.push_back(fmt::format("{}: closed form: {}", schedule.name, figures.closed_form_note));
    }
    if (figures.steady_period && figures.steady_idle) {
      table.notes.push_back(fmt::format("{}: once the pipeline is full: a microbatch every {}, idle share {:.4f}",
                                        schedule.name, in_units(*figures.steady_period), *figures.steady_idle));
    }
  }
  if (with_reasons) {
    for (const RefusedSchedule& refused : comparison.refused) {
      std::vector<std::string> row(table.columns.size());
      row.front() = refused.name;
      row.back() = refused.refusal.problem;
      table.rows.push_back(std::move(row));
    }
  }
  const std::vector<std::string> legend = {
      "bubble fraction: idle share of all ranks, including waits for transfers; bubble ratio: makespan over the "
      "busiest "
      "rank's work, minus 1",
      "activations (in microbatches), weights and staleness: maximum over ranks"};
  table.notes.insert(table.notes.begin(), legend.begin(), legend.end());
  const bool any_steady = std::any_of(comparison.schedules.begin(), comparison.schedules.end(), is_asynchronous);
  if (any_steady) {
    table.notes.insert(table.notes.begin() + static_cast<std::ptrdiff_t>(legend.size()),
                       "weights and staleness of asynchronous schedules hold once the pipeline is full");
  }
  return table;
}

namespace {

Table one_row_a_property(const Table& wide) {
  Table table = {.title = wide.title, .columns = {wide.columns.front(), text_column("property"), text_column("value")}};
  for (const std::vector<std::string>& row : wide.rows) {
    for (std::size_t column = 1; column < row.size(); ++column) {
      if (row[column].empty()) continue;
      table.rows.push_back({column == 1 ? row.front() : "", wide.columns[column].name, row[column]});
    }
  }
  return table;
}

}  // namespace

Table semantics_table(const ScheduleComparison& comparison, Format format) {
  Table table = {.title = title_of(comparison),
                 .columns = {text_column("schedule"), text_column("mode"), text_column("activations"),
                             text_column("weights", "weight_copies"), text_column("update"), text_column("bubble"),
                             text_column("where to use")}};
  for (const ComparedSchedule& schedule : comparison.schedules) {
    const std::string formula =
        schedule.info == nullptr ? "" : fmt::format("; chunks on rank r: {}", schedule.info->peak_in_flight);
    const double peak = schedule.figures.largest_peak();
    const std::string most = fmt::format("{} microbatch{} at most", figure_text(peak), peak == 1.0 ? "" : "es");
    table.rows.push_back({schedule.name, is_asynchronous(schedule) ? "asynchronous" : "synchronous", most + formula,
                          copies_of(schedule.figures.weight_copies), updates_of(schedule), bubble_of(schedule),
                          schedule.info == nullptr ? "" : std::string(schedule.info->where_to_use)});
  }
  return format == Format::kTable ? one_row_a_property(table) : table;
}

Table memory_table(const ScheduleComparison& comparison) {
  Table table = {.title = fmt::format("memory for the activations of {} microbatch{} per rank; {} in the step",
                                      *comparison.memory, *comparison.memory == 1 ? "" : "es", comparison.microbatches),
                 .columns = {text_column("schedule"), number_column("microbatches that fit", "microbatches"),
                             text_column("more would fit", "unlimited"), number_column("bubble fraction")}};
  for (const ComparedSchedule& schedule : comparison.schedules) {
    if (!schedule.fit) continue;
    const MemoryFit& fit = *schedule.fit;
    table.rows.push_back({schedule.name, fmt::format("{}", fit.microbatches), fit.unlimited ? "any number" : "no",
                          fit.microbatches == 0 ? "" : fmt::format("{:.4f}", fit.bubble_fraction)});
  }
  table.notes = {
      "microbatches that fit: the most between two updates such that no rank exceeds this memory;",
      "unit: activations of one microbatch on one rank. The bubble is that of a step with this number of microbatches"};
  const bool any_file = std::any_of(comparison.schedules.begin(), comparison.schedules.end(),
                                    [](const ComparedSchedule& schedule) { return schedule.info == nullptr; });
  if (any_file) table.notes.emplace_back("the microbatches of a schedule file are fixed: all fit, or none");
  return table;
}

std::optional<Table> refused_table(const ScheduleComparison& comparison) {
  if (comparison.refused.empty()) return std::nullopt;
  Table table = {.title = "schedules that refuse this request",
                 .columns = {text_column("schedule"), text_column("reason", "because"), text_column("valid")}};
  for (const RefusedSchedule& refused : comparison.refused) {
    table.rows.push_back({refused.name, refused.refusal.problem, refused.refusal.help});
  }
  return table;
}

namespace {

Json schedule_json(const ComparedSchedule& schedule) {
  const ScheduleFigures& figures = schedule.figures;
  Json json = {{"name", schedule.name},
               {"mode", is_asynchronous(schedule) ? "asynchronous" : "synchronous"},
               {"makespan", in_units(figures.makespan)},
               {"span", in_units(figures.span)},
               {"bubble_fraction", figures.bubble_fraction},
               {"bubble_ratio", figures.bubble_ratio},
               {"peak_activations", figures.peak_activations},
               {"weight_copies", figures.weight_copies},
               {"staleness", figures.staleness},
               {"messages", figures.messages}};
  if (figures.closed_form) json["closed_form"] = in_units(*figures.closed_form);
  json["closed_form_note"] = figures.closed_form_note;
  if (figures.steady_period && figures.steady_idle) {
    json["steady"] = {{"period", in_units(*figures.steady_period)}, {"idle_fraction", *figures.steady_idle}};
  }
  json["update"] = updates_of(schedule);
  if (schedule.info != nullptr) json["where_to_use"] = schedule.info->where_to_use;
  if (schedule.fit) {
    json["memory_fit"] = {{"microbatches", schedule.fit->microbatches}, {"unlimited", schedule.fit->unlimited}};
    if (schedule.fit->microbatches > 0) json["memory_fit"]["bubble_fraction"] = schedule.fit->bubble_fraction;
  }
  return json;
}

}  // namespace

std::string write_comparison(const ScheduleComparison& comparison) {
  Json json = {{"schema", "flopcast.schedule-comparison/1"},
               {"pipeline_ranks", comparison.pipeline_ranks},
               {"microbatches", comparison.microbatches}};
  if (comparison.memory) json["memory"] = *comparison.memory;
  json["schedules"] = Json::array();
  for (const ComparedSchedule& schedule : comparison.schedules) json["schedules"].push_back(schedule_json(schedule));
  json["refused"] = Json::array();
  for (const RefusedSchedule& refused : comparison.refused) {
    json["refused"].push_back(
        {{"name", refused.name}, {"reason", refused.refusal.problem}, {"help", refused.refusal.help}});
  }
  return dumped(json, 2);
}

}  // namespace flopcast
