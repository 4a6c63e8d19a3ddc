#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/schedule_options.hpp"
#include "cli/schedule_times.hpp"
#include "planner/tables/schedule_tables.hpp"

namespace flopcast {

/// Several schedules, names and files, that are put side by side with the same numbers.
struct ScheduleList {
  std::vector<std::string> names;  ///< "1f1b", "interleaved:2", "file:PATH"
  ScheduleNumbers numbers;
  std::optional<std::string> chains;  ///< of the files

  bool only_files() const;
  /// Throws ConfigError for a number that none of the schedules reads: it would be a silent mistake.
  void refuse_what_nobody_reads() const;
  /// Throws ConfigError for what is refused, for a schedule that cannot be executed, and for a file of other ranks,
  /// microbatches or chunks than were given.
  Program program(const std::string& name, const TimesOfStages& times) const;
  /// The line of `program`, which is that of `name`. `memory` as --at-memory.
  ComparedSchedule compared(const std::string& name, const Program& program, std::optional<int> memory,
                            const TimesOfProgram& times) const;

 private:
  void require_shape(const std::string& name, const Program& program) const;
};

inline constexpr std::string_view kAtMemoryHelp =
    "how many microbatches fit when a rank has room for the activations of N";
/// Throws ConfigError for an --at-memory that is out of range.
void require_memory(const std::optional<int>& memory);

/// On standard error, where schedules that split the backward pass would do other work than the others.
void warn_of_unequal_parts(const TimeOptions& times);

}  // namespace flopcast
