#include "cli/compared_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "sim/program/program.hpp"

namespace flopcast {

bool ComparedSchedule::same_shape(const ScheduleRequest& other) const {
  return request.pipeline_ranks == other.pipeline_ranks && request.microbatches == other.microbatches;
}

std::string shape_text(const ScheduleRequest& request) {
  return fmt::format("{} rank{} and {} microbatch{}", request.pipeline_ranks, request.pipeline_ranks == 1 ? "" : "s",
                     request.microbatches, request.microbatches == 1 ? "" : "es");
}

ScheduleRequest shape_of(const Program& program) {
  ScheduleRequest shape;
  shape.pipeline_ranks = 0;
  for (const Chain& chain : program.chains) {
    shape.pipeline_ranks = std::max(shape.pipeline_ranks, static_cast<int>(ranks_of_chain(program, chain).size()));
  }
  shape.microbatches = program.microbatch_count();
  return shape;
}

ComparedSchedule compare_program(const std::string& name, const Program& program, std::optional<int> memory,
                                 const TimesOfProgram& times) {
  ComparedSchedule row;
  row.name = name;
  row.request = shape_of(program);
  row.figures = figures_of(program, times);
  if (memory) {
    MemoryFit fit;
    fit.microbatches = row.figures.largest_peak() <= *memory ? row.request.microbatches : 0;
    fit.bubble_fraction = row.figures.bubble_fraction;
    row.fit = fit;
  }
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
