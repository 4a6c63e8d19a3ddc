#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/table.hpp"
#include "sim/metrics/comparison.hpp"
#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Ticks of an abstract schedule in the user's unit: six decimals are exact, and so are shares of up to ten chunks or
/// slices of a whole unit.
inline constexpr Ticks kTicksPerUnit = 63'000'000;

/// In the user's unit, rounded to six decimals.
double in_units(double ticks);
double in_units(Ticks ticks);
/// The same as text, without zeros at the end.
std::string units_text(Ticks ticks);

/// "2.5": one number, or a comma list. Throws ConfigError for signs, exponents, units and more than six decimals.
std::vector<Ticks> parse_times(const std::string& flag, std::string_view text);
Ticks parse_time(const std::string& flag, std::string_view text);

/// A simulated timeline in millionths of the user's unit, which are what reports draw and traces write.
Timeline in_millionths(Timeline timeline);

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
/// Schema flopcast.schedule-comparison/1.
std::string write_comparison(const ScheduleComparison& comparison);

}  // namespace flopcast
