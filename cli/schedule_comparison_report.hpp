#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "reports/table.hpp"
#include "sim/compare/comparison.hpp"

namespace flopcast {

/// A line of `schedule compare`.
struct ComparedSchedule {
  std::string name;                    ///< with its chunks where it has several: "interleaved:2"
  const ScheduleInfo* info = nullptr;  ///< null: from a file
  ScheduleRequest request;             ///< of a file, what its program shows
  ScheduleFigures figures;
  std::optional<MemoryFit> fit;  ///< with --at-memory
};

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
