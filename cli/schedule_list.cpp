#include "cli/schedule_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "cli/terminal.hpp"
#include "cli/valid_schedule.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

bool is_file(const std::string& name) {
  return schedule_file_of(name).has_value();
}

template <class Reads>
bool somebody(const std::vector<std::string>& names, const Reads& reads) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return !is_file(name) && reads(*parse_schedule_name(name).info); });
}

bool uses_chunks(const ScheduleInfo& info) {
  return info.uses_chunks;
}

[[noreturn]] void refuse(std::string_view flag, const std::string& value) {
  throw ConfigError(
      {std::string(flag), fmt::format("{} means nothing to any of the schedules", value), "", "leave it out"});
}

}  // namespace

bool ScheduleList::only_files() const {
  return std::all_of(names.begin(), names.end(), is_file);
}

void ScheduleList::refuse_what_nobody_reads() const {
  const bool some_file = std::any_of(names.begin(), names.end(), is_file);
  if (numbers.chunks.value_or(1) != 1 && !some_file && !somebody(names, uses_chunks)) {
    refuse("--vpp", std::to_string(*numbers.chunks));
  }
  if (numbers.replicas && !somebody(names, [](const ScheduleInfo& info) { return info.uses_stage_replicas; })) {
    refuse("--replicas", *numbers.replicas);
  }
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = numbers.request.*number.request;
    if (value && !somebody(names, [&](const ScheduleInfo& info) { return info.reads_number(number); })) {
      refuse(number.flag, std::to_string(*value));
    }
  }
  if (chains && !some_file) {
    throw ConfigError({"--chains", fmt::format("{} is for a schedule in a file", *chains), "",
                       "give --schedule file:PATH, or leave it out"});
  }
}

// A file has the ranks and microbatches that it has. --vpp may be meant for the schedules beside it.
void ScheduleList::require_shape(const std::string& name, const Program& program) const {
  const ScheduleRequest shape = shape_of(program);
  const int ranks = numbers.pipeline_ranks.value_or(shape.pipeline_ranks);
  const int microbatches = numbers.microbatches.value_or(shape.microbatches);
  if (ranks != shape.pipeline_ranks || microbatches != shape.microbatches) {
    throw ConfigError({"--schedule",
                       fmt::format("{} has {}, which cannot be compared with {} and {}", name, shape_text(shape), ranks,
                                   microbatches),
                       "", fmt::format("--pp {} --microbatches {}", shape.pipeline_ranks, shape.microbatches)});
  }
  const bool chunks_are_its = numbers.chunks && !somebody(names, uses_chunks);
  if (chunks_are_its && std::int64_t{*numbers.chunks} * shape.pipeline_ranks != program.stages_per_chain()) {
    throw ConfigError({"--vpp",
                       fmt::format("{} contradicts {}, which has {} stages on {} ranks", *numbers.chunks, name,
                                   program.stages_per_chain(), shape.pipeline_ranks),
                       "", "leave it out"});
  }
}

Program ScheduleList::program(const std::string& name, const TimesOfStages& times) const {
  const auto path = schedule_file_of(name);
  Program program = path ? read_schedule_file(*path, chains) : generate_named_schedule(name, numbers, times);
  require_valid(program);
  if (path) require_shape(name, program);
  return program;
}

ComparedSchedule ScheduleList::compared(const std::string& name, const Program& program, std::optional<int> memory,
                                        const TimesOfProgram& times) const {
  if (is_file(name)) return compare_program(name, program, memory, times);
  return compare_named(name, request_for(name, numbers), memory, times);
}

void require_memory(const std::optional<int>& memory) {
  constexpr int kMostActivations = 1'000'000;
  if (!memory || (*memory >= 1 && *memory <= kMostActivations)) return;
  throw ConfigError({"--at-memory", fmt::format("{} is out of range", *memory), "",
                     fmt::format("expected a whole number of microbatches from 1 to {}", kMostActivations)});
}

void warn_of_unequal_parts(const TimeOptions& times) {
  if (const std::string why = times.unequal_parts(); !why.empty()) warn(why);
}

}  // namespace flopcast
