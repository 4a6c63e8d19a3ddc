#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/text/table.hpp"
#include "sim/compare/comparison.hpp"

namespace flopcast {

/// A line of `schedule compare`.
struct ComparedSchedule {
  std::string name;                    ///< with its chunks where it has several: "interleaved:2"
  const ScheduleInfo* info = nullptr;  ///< null: from a file
  ScheduleRequest request;             ///< of a file, what its program shows
  ScheduleFigures figures;
  std::optional<MemoryFit> fit;  ///< with --at-memory

  /// Whether ranks and microbatches are the same, so that figures compare.
  bool same_shape(const ScheduleRequest& other) const;
};

/// "4 ranks and 8 microbatches"
std::string shape_text(const ScheduleRequest& request);
/// Pipeline ranks, replicas of a stage counted once, and microbatches of a program.
ScheduleRequest shape_of(const Program& program);
/// Of a program that stands for itself, such as one from a file: with `memory` all its microbatches fit, or none.
ComparedSchedule compare_program(const std::string& name, const Program& program, std::optional<int> memory,
                                 const TimesOfProgram& times);
/// Of a request that its schedule does not refuse. `memory` as --at-memory.
ComparedSchedule compare_named(const std::string& name, const ScheduleRequest& request, std::optional<int> memory,
                               const TimesOfProgram& times);

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
