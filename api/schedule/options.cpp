#include "api/schedule/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "model/job/user_spelling.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/validate.hpp"

namespace flopcast {

void require_valid(const Program& program) {
  const auto fault = find_fault(program);
  if (!fault) return;
  const auto hint = hint_two_chains(program);
  throw ConfigError({"schedule", fmt::format("{}\n\n{}", render_fault(*fault), render_fault_grid(program, *fault)),
                     program.schedule,
                     hint ? "valid as a bidirectional schedule of two chains: --chains " + *hint : ""});
}

namespace {

constexpr int kMostPipelineRanks = 65'535;

int required(const std::optional<int>& number, const std::string& flag, int largest) {
  if (!number) throw ConfigError({flag, "is required", "", fmt::format("give {} N", flag)});
  if (*number < 1 || *number > largest) {
    throw ConfigError({flag, fmt::format("{} is out of range", *number), "",
                       fmt::format("give a whole number from 1 to {}", largest)});
  }
  return *number;
}

std::optional<int> optional_number(const std::optional<int>& number, const std::string& flag, int largest) {
  return number ? std::optional<int>(required(number, flag, largest)) : std::nullopt;
}

std::vector<int> parse_replicas(const std::string& text) {
  std::vector<int> replicas;
  for (const std::string& part : split(text)) {
    const std::optional<int> number = parse_digits(part, 0, 99'999);
    if (!number) {
      throw ConfigError({"--replicas", fmt::format("\"{}\" contains \"{}\", which is not a whole number", text, part),
                         "", "give one whole number per stage, such as 3,1"});
    }
    replicas.push_back(*number);
  }
  return replicas;
}

}  // namespace

void add_number_options(Form& form, ScheduleNumbers& numbers) {
  form.add_option("--pp", numbers.pipeline_ranks, "N", "number of pipeline ranks");
  form.add_option("--microbatches,-m,--mb", numbers.microbatches, "N", "number of microbatches");
  form.add_option("--vpp,--chunks", numbers.chunks, "N", "stages per rank");
  for (const ScheduleNumber& number : schedule_numbers()) {
    form.add_option(std::string(number.flag), numbers.request.*number.request, "N", std::string(number.help));
  }
}

void refuse_unused_numbers(const std::string& name, const ScheduleNumbers& numbers) {
  const ScheduleInfo& info = *parse_schedule_name(name).info;
  const auto refuse = [&name](const std::string& flag, int value) {
    throw ConfigError({flag, fmt::format("{} has no effect on schedule {}", value, name), "", "leave it out"});
  };
  if (numbers.chunks.value_or(1) != 1 && !info.uses_chunks) refuse("--vpp", *numbers.chunks);
  if (numbers.replicas && !info.uses_stage_replicas) {
    throw ConfigError({"--replicas", fmt::format("{} has no effect on schedule {}", *numbers.replicas, name), "",
                       "leave it out, or give --schedule pipedream"});
  }
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = numbers.request.*number.request;
    if (value && !info.reads_number(number)) refuse(std::string(number.flag), *value);
  }
}

ScheduleRequest request_for(const std::string& name, const ScheduleNumbers& numbers) {
  const ScheduleName parsed = parse_schedule_name(name);
  constexpr int kMostMicrobatches = static_cast<int>(kMaxMicrobatches);
  ScheduleRequest request;
  request.pipeline_ranks = required(numbers.pipeline_ranks, "--pp", kMostPipelineRanks);
  request.microbatches = required(numbers.microbatches, "--microbatches", kMostMicrobatches);
  const auto chunks = optional_number(numbers.chunks, "--vpp", kMostPipelineRanks);
  if (chunks && parsed.chunks && *chunks != *parsed.chunks) {
    throw ConfigError(
        {"--vpp", fmt::format("{} conflicts with --schedule {}", *chunks, name), "", "give only one of them"});
  }
  // In a list, --vpp applies only to schedules with chunks.
  const int default_chunks = parsed.info->uses_chunks ? chunks.value_or(parsed.info->default_chunks) : 1;
  request.chunks = parsed.chunks.value_or(default_chunks);
  for (const ScheduleNumber& number : schedule_numbers()) {
    if (!parsed.info->reads_number(number)) continue;
    request.*number.request =
        optional_number(numbers.request.*number.request, std::string(number.flag), kMostMicrobatches);
  }
  request.variant = parsed.variant;
  if (numbers.replicas && parsed.info->uses_stage_replicas) request.stage_replicas = parse_replicas(*numbers.replicas);
  return request;
}

Program generate_named_schedule(const std::string& name, const ScheduleNumbers& numbers, const TimesOfStages& times) {
  const ScheduleInfo& info = *parse_schedule_name(name).info;
  const ScheduleRequest request = request_for(name, numbers);
  return times ? generate_schedule(info, request, times) : generate_schedule(info, request);
}

void ScheduleOptions::add_to(Form& form) {
  form.add_positional("FILE", file_, "schedule as CSV: one line per rank, cells such as 2F0");
  form.begin_group("Schedule");
  form.add_option("--schedule", schedule_, "NAME[:V]", "schedule to generate (see: flopcast schedule list)");
  add_number_options(form, numbers_);
  form.add_option("--replicas", numbers_.replicas, "N,N,…", std::string(kReplicasHelp));
  form.add_option("--chains", chains_, "A-B,C-D", "stage ranges of a bidirectional schedule in FILE");
}

ScheduleRequest ScheduleOptions::request() const {
  return request_for(*schedule_, numbers_);
}

Program ScheduleOptions::generate(const std::string& name, const TimesOfStages& times) const {
  refuse_unused_numbers(name, numbers_);
  return generate_named_schedule(name, numbers_, times);
}

std::optional<std::string> ScheduleOptions::file() const {
  return file_ || !schedule_ ? file_ : schedule_file_of(*schedule_);
}

bool ScheduleOptions::uses_times() const {
  return !file() && schedule_ && parse_schedule_name(*schedule_).info->uses_times;
}

void ScheduleOptions::refuse_numbers_with_file() const {
  const auto refuse = [this](std::string_view flag, const std::optional<int>& number) {
    if (!number) return;
    throw ConfigError({std::string(flag),
                       fmt::format("{} applies only to generated schedules; {} determines it", *number, *file()), "",
                       "leave it out"});
  };
  refuse("--pp", numbers_.pipeline_ranks);
  refuse("--microbatches", numbers_.microbatches);
  refuse("--vpp", numbers_.chunks);
  for (const ScheduleNumber& number : schedule_numbers()) {
    if (accepts_accumulation_ && number.request == &ScheduleRequest::accumulation) continue;
    refuse(number.flag, numbers_.request.*number.request);
  }
  if (numbers_.replicas) {
    throw ConfigError(
        {"--replicas",
         fmt::format("{} applies only to generated schedules; {} determines it", *numbers_.replicas, *file()), "",
         "leave it out"});
  }
}

namespace {

CellProgram read_cell_file(const std::string& path, const std::optional<std::string>& chains, const Streams& streams) {
  return parse_cell_csv(read_input(streams, path), path, chains ? parse_chains(*chains) : std::vector<Chain>());
}

}  // namespace

std::optional<std::string> schedule_file_of(const std::string& name) {
  constexpr std::string_view kFilePrefix = "file:";
  if (name.rfind(kFilePrefix, 0) != 0) return std::nullopt;
  return name.substr(kFilePrefix.size());
}

Program read_schedule_file(const std::string& path, const std::optional<std::string>& chains, const Streams& streams) {
  const CellProgram written = read_cell_file(path, chains, streams);
  if (const std::size_t communications = written.communication_count(); communications > 0) {
    warn(streams, fmt::format("{}: {} communications are ignored; transfers follow from the order of the actions", path,
                              communications));
  }
  return compute_of(written);
}

CellProgram ScheduleOptions::cell_program(const Streams& streams) const {
  refuse_contradictions();
  return file() ? read_cell_file(*file(), chains_, streams) : as_cells(generate(*schedule_, {}));
}

Program ScheduleOptions::program(const Streams& streams) const {
  return program({}, streams);
}

Program ScheduleOptions::program(const TimesOfStages& times, const Streams& streams) const {
  refuse_contradictions();
  return file() ? read_schedule_file(*file(), chains_, streams) : generate(*schedule_, times);
}

void ScheduleOptions::refuse_contradictions() const {
  if (file_ && schedule_)
    throw ConfigError({"--schedule", fmt::format("conflicts with the schedule file: {} and {}", *schedule_, *file_), "",
                       "give only one of them"});
  if (file_ && files_on_disk().kind_of(*file_) == Files::Kind::kNone &&
      find_schedule(typed_schedules(*file_)) != nullptr) {
    throw ConfigError({"", fmt::format("{} is not a file", *file_), "",
                       fmt::format("did you mean --schedule {}?", typed_schedules(*file_))});
  }
  if (file()) refuse_numbers_with_file();
  if (file()) return;
  if (chains_) throw ConfigError({"--chains", "needs a schedule given as a file", "", "give FILE.csv"});
  if (!schedule_)
    throw ConfigError({"", "no schedule is given", "", "give FILE.csv, or --schedule NAME --pp P --microbatches M"});
}

namespace {

bool names_file(const std::string& name) {
  return schedule_file_of(name).has_value();
}

template <class Reads>
bool any_uses(const std::vector<std::string>& names, const Reads& reads) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return !names_file(name) && reads(*parse_schedule_name(name).info);
  });
}

bool uses_chunks(const ScheduleInfo& info) {
  return info.uses_chunks;
}

[[noreturn]] void refuse(std::string_view flag, const std::string& value) {
  throw ConfigError(
      {std::string(flag), fmt::format("{} has no effect on any of the schedules", value), "", "leave it out"});
}

}  // namespace

bool ScheduleList::only_files() const {
  return std::all_of(names.begin(), names.end(), names_file);
}

void ScheduleList::refuse_unused_numbers_of_all() const {
  const bool some_file = std::any_of(names.begin(), names.end(), names_file);
  if (numbers.chunks.value_or(1) != 1 && !some_file && !any_uses(names, uses_chunks)) {
    refuse("--vpp", std::to_string(*numbers.chunks));
  }
  if (numbers.replicas && !any_uses(names, [](const ScheduleInfo& info) { return info.uses_stage_replicas; })) {
    refuse("--replicas", *numbers.replicas);
  }
  for (const ScheduleNumber& number : schedule_numbers()) {
    const std::optional<int>& value = numbers.request.*number.request;
    if (value && !any_uses(names, [&](const ScheduleInfo& info) { return info.reads_number(number); })) {
      refuse(number.flag, std::to_string(*value));
    }
  }
  if (chains && !some_file) {
    throw ConfigError({"--chains", fmt::format("{} needs a schedule given as a file", *chains), "",
                       "give --schedule file:PATH, or leave it out"});
  }
}

// A file has fixed ranks and microbatches. --vpp may apply to the other schedules of the list.
void ScheduleList::require_shape(const std::string& name, const Program& program) const {
  const ScheduleRequest shape = shape_of(program);
  const int ranks = numbers.pipeline_ranks.value_or(shape.pipeline_ranks);
  const int microbatches = numbers.microbatches.value_or(shape.microbatches);
  if (ranks != shape.pipeline_ranks || microbatches != shape.microbatches) {
    throw ConfigError({"--schedule",
                       fmt::format("{} has {}, which cannot be compared with {} and {}", name, shape_text(shape), ranks,
                                   microbatches),
                       "", fmt::format("use --pp {} --microbatches {}", shape.pipeline_ranks, shape.microbatches)});
  }
  const bool chunks_are_its = numbers.chunks && !any_uses(names, uses_chunks);
  if (chunks_are_its && std::int64_t{*numbers.chunks} * shape.pipeline_ranks != program.stages_per_chain()) {
    throw ConfigError({"--vpp",
                       fmt::format("{} conflicts with {}, which has {} stages on {} ranks", *numbers.chunks, name,
                                   program.stages_per_chain(), shape.pipeline_ranks),
                       "", "leave it out"});
  }
}

Program ScheduleList::program(const std::string& name, const TimesOfStages& times, const Streams& streams) const {
  const auto path = schedule_file_of(name);
  Program program = path ? read_schedule_file(*path, chains, streams) : generate_named_schedule(name, numbers, times);
  require_valid(program);
  if (path) require_shape(name, program);
  return program;
}

ComparedSchedule ScheduleList::compared(const std::string& name, const Program& program, std::optional<int> memory,
                                        const TimesOfProgram& times) const {
  if (names_file(name)) return compare_program(name, program, memory, times);
  return compare_named(name, request_for(name, numbers), memory, times);
}

void require_memory(const std::optional<int>& memory) {
  constexpr int kMostActivations = 1'000'000;
  if (!memory || (*memory >= 1 && *memory <= kMostActivations)) return;
  throw ConfigError({"--at-memory", fmt::format("{} is out of range", *memory), "",
                     fmt::format("give a whole number of microbatches from 1 to {}", kMostActivations)});
}

void warn_of_unequal_parts(const TimeOptions& times, const Streams& streams) {
  if (const std::string why = times.unequal_parts(); !why.empty()) warn(streams, why);
}

}  // namespace flopcast
