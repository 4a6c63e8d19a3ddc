#pragma once

#include <optional>
#include <string>

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

/// Of a program that stands for itself, such as one from a file.
ComparedSchedule compare_program(const std::string& name, const Program& program, const TimesOfProgram& times);
/// Of a request that its schedule does not refuse. `memory` as --at-memory.
ComparedSchedule compare_named(const std::string& name, const ScheduleRequest& request, std::optional<int> memory,
                               const TimesOfProgram& times);

}  // namespace flopcast
