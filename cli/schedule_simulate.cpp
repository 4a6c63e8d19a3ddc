#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>

#include "cli/commands.hpp"
#include "cli/output_options.hpp"
#include "cli/schedule_commands.hpp"
#include "cli/schedule_options.hpp"
#include "cli/schedule_times.hpp"
#include "cli/valid_schedule.hpp"
#include "sim/lower/lower.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

constexpr Ticks kTicksPerUnit = 1'000'000;

// Whole numbers stay whole, so that a reader can compare them exactly.
Json in_units(Ticks ticks) {
  if (ticks % kTicksPerUnit == 0) return ticks / kTicksPerUnit;
  return static_cast<double>(ticks) / static_cast<double>(kTicksPerUnit);
}

Json metrics_json(const TimelineMetrics& metrics) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < metrics.ranks.size(); ++rank) {
    const RankMetrics& row = metrics.ranks[rank];
    ranks.push_back({{"busy", in_units(row.busy)},
                     {"first_start", in_units(row.first_start)},
                     {"last_end", in_units(row.last_end)},
                     {"idle_fraction", metrics.idle_fraction(rank)},
                     {"span", in_units(row.span())},
                     {"peak_in_flight", row.peak_in_flight}});
  }
  return {{"makespan", in_units(metrics.makespan)}, {"bubble_fraction", metrics.idle_fraction()}, {"ranks", ranks}};
}

Table metrics_table(const Program& program, const TimelineMetrics& metrics) {
  const auto number = [](Ticks ticks) { return in_units(ticks).dump(); };
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
  const TimelineMetrics metrics = measure(simulate(program, times.times_for(program)));
  if (format == Format::kJson) {
    output.write(metrics_json(metrics).dump(2));
  } else {
    output.write({metrics_table(program, metrics)});
  }
  return 0;
}

}  // namespace flopcast
