#include "cli/schedule_table.hpp"

#include "sim/schedules/catalogue.hpp"

namespace flopcast {

Table schedule_table(Format format) {
  Table table;
  table.columns = {text_column("schedule", "name"), text_column("what it does", "summary"),
                   text_column("activations held by rank r", "peak_in_flight")};
  // A terminal has no room for these.
  const bool everything = format == Format::kCsv || format == Format::kJson;
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

}  // namespace flopcast
