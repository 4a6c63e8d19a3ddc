#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/compared_schedule.hpp"
#include "reports/table.hpp"

namespace flopcast {

struct RefusedSchedule {
  std::string name;
  ScheduleRefusal refusal;
};

struct ScheduleComparison {
  int pipeline_ranks = 0;
  int microbatches = 0;
  std::optional<int> memory;  ///< --at-memory
  std::vector<ComparedSchedule> schedules;
  std::vector<RefusedSchedule> refused;
};

Table figures_table(const ScheduleComparison& comparison, Format format);
/// Mode, memory, updates and use: what sets schedules apart beside their times. One row a schedule; in a terminal,
/// which has no room for that, one a property.
Table semantics_table(const ScheduleComparison& comparison, Format format);
/// Of --at-memory.
Table memory_table(const ScheduleComparison& comparison);
/// Nothing to show when nothing was refused.
std::optional<Table> refused_table(const ScheduleComparison& comparison);
nlohmann::ordered_json comparison_json(const ScheduleComparison& comparison);

}  // namespace flopcast
