#include "cli/compared_schedule.hpp"

#include <fmt/format.h>

namespace flopcast {

ComparedSchedule compare_program(const std::string& name, const Program& program, const TimesOfProgram& times) {
  ComparedSchedule row;
  row.name = name;
  row.request.pipeline_ranks = program.rank_count();
  row.request.microbatches = program.microbatch_count();
  row.figures = figures_of(program, times);
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

}  // namespace flopcast
