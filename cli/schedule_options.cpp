#include "cli/schedule_options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/terminal.hpp"
#include "model/error/error.hpp"
#include "sim/cells/csv.hpp"

namespace flopcast {

namespace {

constexpr int kMostPipelineRanks = 65'535;

int required(const std::optional<int>& number, const std::string& flag, int largest) {
  if (!number) throw ConfigError({flag, "is required", "", fmt::format("give {} N", flag)});
  if (*number < 1 || *number > largest) {
    throw ConfigError({flag, fmt::format("{} is out of range", *number), "",
                       fmt::format("expected a whole number from 1 to {}", largest)});
  }
  return *number;
}

std::optional<int> optional_number(const std::optional<int>& number, const std::string& flag, int largest) {
  return number ? std::optional<int>(required(number, flag, largest)) : std::nullopt;
}

std::vector<int> parse_replicas(const std::string& text) {
  std::vector<int> replicas;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, comma - begin);
    const bool is_number =
        !part.empty() && part.size() <= 5 && part.find_first_not_of("0123456789") == std::string::npos;
    if (!is_number) {
      throw ConfigError({"--replicas", fmt::format("\"{}\" has \"{}\" among its numbers", text, part), "",
                         "one whole number a stage, such as 3,1"});
    }
    replicas.push_back(std::stoi(part));
    begin = comma + 1;
  }
  return replicas;
}

}  // namespace

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> names;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    names.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return names;
}

void add_number_options(CommandLine& command_line, ScheduleNumbers& numbers) {
  command_line.add_option("--pp", numbers.pipeline_ranks, "N", "pipeline ranks");
  command_line.add_option("--microbatches,-m", numbers.microbatches, "N", "microbatches");
  command_line.add_option("--vpp,--chunks", numbers.chunks, "N", "stages per rank");
  for (const ScheduleNumber& number : schedule_numbers()) {
    command_line.add_option(std::string(number.flag), numbers.request.*number.request, "N", std::string(number.help));
  }
}

void refuse_unused_numbers(const std::string& name, const ScheduleNumbers& numbers) {
  const ScheduleInfo& info = *parse_schedule_name(name).info;
  const auto refuse = [&name](const std::string& flag, int value) {
    throw ConfigError({flag, fmt::format("{} means nothing to schedule {}", value, name), "", "leave it out"});
  };
  if (numbers.chunks.value_or(1) != 1 && !info.uses_chunks) refuse("--vpp", *numbers.chunks);
  if (numbers.replicas && !info.uses_stage_replicas) {
    throw ConfigError({"--replicas", fmt::format("{} means nothing to schedule {}", *numbers.replicas, name), "",
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
    throw ConfigError({"--vpp", fmt::format("{} contradicts --schedule {}", *chunks, name), "", "give one of the two"});
  }
  // In a list, --vpp is meant for the schedules that know chunks.
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

void ScheduleOptions::add_to(CommandLine& command_line) {
  command_line.add_positional("FILE", file_, "schedule as CSV: one line a rank, cells such as 2F0");
  command_line.begin_group("Schedule");
  command_line.add_option("--schedule", schedule_, "NAME[:V]", "generate this one (see: flopcast schedule list)");
  add_number_options(command_line, numbers_);
  command_line.add_option("--replicas", numbers_.replicas, "N,N,…", std::string(kReplicasHelp));
  command_line.add_option("--chains", chains_, "A-B,C-D", "stage ranges of a bidirectional schedule in FILE");
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

void ScheduleOptions::refuse_numbers_beside_file() const {
  const auto refuse = [this](std::string_view flag, const std::optional<int>& number) {
    if (!number) return;
    throw ConfigError({std::string(flag),
                       fmt::format("{} is for a generated schedule, {} says itself", *number, *file()), "",
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
    throw ConfigError({"--replicas",
                       fmt::format("{} is for a generated schedule, {} says itself", *numbers_.replicas, *file()), "",
                       "leave it out"});
  }
}

namespace {

CellProgram read_lowered_file(const std::string& path, const std::optional<std::string>& chains) {
  return parse_lowered_csv(read_file(path), path, chains ? parse_chains(*chains) : std::vector<Chain>());
}

}  // namespace

std::optional<std::string> schedule_file_of(const std::string& name) {
  constexpr std::string_view kFilePrefix = "file:";
  if (name.rfind(kFilePrefix, 0) != 0) return std::nullopt;
  return name.substr(kFilePrefix.size());
}

Program read_schedule_file(const std::string& path, const std::optional<std::string>& chains) {
  const CellProgram lowered = read_lowered_file(path, chains);
  if (const std::size_t communications = lowered.communication_count(); communications > 0) {
    warn(fmt::format("{}: {} communications are left out; transfers follow from the order of the actions", path,
                     communications));
  }
  return compute_of(lowered);
}

CellProgram ScheduleOptions::cell_program() const {
  refuse_contradictions();
  return file() ? read_lowered_file(*file(), chains_) : as_cells(generate(*schedule_, {}));
}

Program ScheduleOptions::program() const {
  return program({});
}

Program ScheduleOptions::program(const TimesOfStages& times) const {
  refuse_contradictions();
  return file() ? read_schedule_file(*file(), chains_) : generate(*schedule_, times);
}

void ScheduleOptions::refuse_contradictions() const {
  if (file_ && schedule_)
    throw ConfigError({"--schedule", fmt::format("{} and the file {} are two schedules", *schedule_, *file_), "",
                       "give one of the two"});
  if (file()) refuse_numbers_beside_file();
  if (file()) return;
  if (chains_) throw ConfigError({"--chains", "is for a schedule in a file", "", "give FILE.csv"});
  if (!schedule_)
    throw ConfigError({"", "no schedule given", "", "give FILE.csv, or --schedule NAME --pp P --microbatches M"});
}

}  // namespace flopcast
