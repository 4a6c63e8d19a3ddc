#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_times.hpp"
#include "cli/terminal.hpp"
#include "cli/valid_schedule.hpp"
#include "planner/tables/time_units.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/metrics/steady_state.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// Whole numbers stay whole, so that a reader can compare them exactly.
Json number_in_units(double ticks) {
  const double units = in_units(ticks);
  return std::floor(units) == units && std::abs(units) < 1e15 ? Json(static_cast<std::int64_t>(units)) : Json(units);
}
Json number_in_units(Ticks ticks) {
  return number_in_units(static_cast<double>(ticks));
}

Json metrics_json(const TimelineMetrics& metrics) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& row = metrics.ranks[rank];
    ranks.push_back({{"busy", number_in_units(row.busy)},
                     {"first_start", number_in_units(row.first_start)},
                     {"last_end", number_in_units(row.last_end)},
                     {"idle_fraction", metrics.idle_fraction(rank)},
                     {"span", number_in_units(row.span())},
                     {"peak_in_flight", row.peak_in_flight}});
  }
  return {
      {"makespan", number_in_units(metrics.makespan)}, {"bubble_fraction", metrics.idle_fraction()}, {"ranks", ranks}};
}

Table metrics_table(const Program& program, const TimelineMetrics& metrics) {
  const auto number = [](Ticks ticks) { return number_in_units(ticks).dump(); };
  Table table;
  table.title = fmt::format(
      "{}: makespan {}, bubble fraction {:.4f} (idle share of all ranks), bubble ratio {:.4f} (over the busiest rank)",
      program.schedule, number(metrics.makespan), metrics.idle_fraction(), metrics.bubble_ratio());
  table.columns = {number_column("rank"),
                   number_column("busy"),
                   number_column("first start", "first_start"),
                   number_column("last end", "last_end"),
                   number_column("idle share", "idle_fraction"),
                   number_column("span"),
                   number_column("peak in flight", "peak_in_flight")};
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& row = metrics.ranks[rank];
    table.rows.push_back({fmt::format("{}", rank), number(row.busy), number(row.first_start), number(row.last_end),
                          fmt::format("{:.6f}", metrics.idle_fraction(rank)), number(row.span()),
                          fmt::format("{}", row.peak_in_flight)});
  }
  return table;
}

// The regime of a pipeline that never flushes.
struct Steady {
  SteadyState state;
  CriticalCycle cycle;
};

// Of a generated asynchronous schedule; a file says nothing about further microbatches.
std::optional<Steady> steady_of(const ScheduleOptions& schedule, const StepTimes& times) {
  if (schedule.file()) return std::nullopt;
  const ScheduleInfo& info = *parse_schedule_name(*schedule.schedule()).info;
  if (!info.asynchronous) return std::nullopt;
  const auto generate = [&](int microbatches) {
    ScheduleRequest request = schedule.request();
    request.microbatches = microbatches;
    return info.generate(request);
  };
  const std::optional<CriticalCycle> cycle = critical_cycle(generate, times);
  if (!cycle) return std::nullopt;
  return Steady{steady_state(generate, times), *cycle};
}

Json steady_json(const Steady& steady) {
  Json steps = Json::array();
  for (const CriticalCycle::Step& step : steady.cycle.steps) {
    steps.push_back({{"rank", step.rank}, {"action", to_string(step.action)}});
  }
  return {{"period", number_in_units(steady.cycle.period_ticks())},
          {"fill", number_in_units(steady.state.fill_ticks)},
          {"idle_fraction", steady.state.idle_fraction},
          {"cycle",
           {{"time", number_in_units(steady.cycle.time)},
            {"microbatches", steady.cycle.microbatches},
            {"actions", std::move(steps)}}}};
}

std::string steady_note(const Steady& steady) {
  const std::optional<int> busy = steady.cycle.only_rank();
  const std::string why = busy ? fmt::format("rank {} never waits", *busy)
                               : fmt::format("{} every {} microbatch{}", number_in_units(steady.cycle.time).dump(),
                                             steady.cycle.microbatches, steady.cycle.microbatches == 1 ? "" : "es");
  return fmt::format("steady: period {} a microbatch, fill {} once, cycle {} ({})",
                     number_in_units(steady.cycle.period_ticks()).dump(),
                     number_in_units(steady.state.fill_ticks).dump(), describe(steady.cycle), why);
}

}  // namespace

int run_schedule_simulate(const Arguments& arguments) {
  CommandLine command_line(
      "schedule simulate",
      "flopcast schedule simulate (FILE.csv | --schedule NAME --pp P --microbatches M) --forward T --backward T "
      "[options]",
      "Times a schedule: every rank executes its order, an action starts when its rank is free and what it needs has "
      "arrived. Transfers cost latency only.",
      {"flopcast schedule simulate --schedule 1f1b --pp 4 --microbatches 8 --forward 1 --backward 2",
       "flopcast schedule simulate mine.csv --forward 10,12 --backward-input 11 --backward-weight 9 --p2p 1 --format "
       "json"});
  ScheduleOptions schedule;
  TimeOptions times;
  OutputOptions output;
  schedule.add_to(command_line);
  times.add_to(command_line);
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;

  const Format format = output.format();
  const Program program = schedule.program([&times](const Program& stages) { return times.times_for(stages); });
  require_valid(program);
  const StepTimes step_times = times.times_for(program);
  refuse_unused_fused(times, has_pairs(program), "schedule " + program.schedule);
  if (const std::string assumed = times.assumed_for(program); !assumed.empty()) warn(assumed);
  const TimelineMetrics metrics = measure(simulate(program, step_times));
  const std::optional<Steady> steady = steady_of(schedule, step_times);
  if (format == Format::kJson) {
    Json json = metrics_json(metrics);
    if (steady) json["steady"] = steady_json(*steady);
    output.write(json.dump(2));
  } else {
    Table table = metrics_table(program, metrics);
    if (steady) table.notes.push_back(steady_note(*steady));
    output.write({table});
  }
  return 0;
}

}  // namespace flopcast
