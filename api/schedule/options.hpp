#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/question.hpp"
#include "base/host/terminal.hpp"
#include "base/text/table.hpp"
#include "planner/tables/tables.hpp"
#include "sim/cells/cell.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"
#include "sim/schedules/catalogue.hpp"

namespace flopcast {

/// Throws ConfigError with the step x rank grid if the schedule cannot be executed.
void require_valid(const Program& program);

/// Numbers that ScheduleOptions and `timeline` read from the command line; nullopt if not given.
struct ScheduleNumbers {
  std::optional<int> pipeline_ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;
  std::optional<std::string> replicas;  ///< "3,1": one number per stage
  ScheduleRequest request;              ///< schedule_numbers() as given; the other members are not used
};
/// Times of a program's stages as read by a command.
using TimesOfStages = std::function<StepTimes(const Program& stages)>;

/// The schedule that a command works on: FILE.csv (or --schedule file:FILE.csv), or --schedule --pp --microbatches
/// [--vpp --group --accumulation].
class ScheduleOptions {
 public:
  void add_to(Form& form);
  /// Reads the file or generates the schedule. Throws ConfigError if the file is unreadable or the request is refused;
  /// a readable file may contain an invalid schedule.
  Program program(const Streams& streams) const;
  /// Same as program(), with the communications of the file; a generated schedule has none.
  CellProgram cell_program(const Streams& streams) const;
  /// Same as program(); a schedule whose order depends on times is generated for the times that `times` gives its
  /// stages.
  Program program(const TimesOfStages& times, const Streams& streams) const;
  /// True if the schedule is generated and its order depends on times.
  bool uses_times() const;
  /// Path of FILE or of --schedule file:PATH; nullopt if the schedule is generated.
  std::optional<std::string> file() const;
  /// Generates `name` (such as "interleaved:2"); pipeline ranks and microbatches must be given.
  Program generate(const std::string& name, const TimesOfStages& times) const;
  const std::optional<std::string>& schedule() const { return schedule_; }
  /// Request for a generated schedule. Throws like program().
  ScheduleRequest request() const;
  /// Accepts --accumulation together with FILE, which does not contain updates.
  void accept_accumulation_beside_file() { accepts_accumulation_ = true; }
  std::optional<int> accumulation() const { return numbers_.request.accumulation; }

 private:
  void refuse_contradictions() const;
  void refuse_numbers_with_file() const;

  std::optional<std::string> file_;
  std::optional<std::string> schedule_;
  std::optional<std::string> chains_;
  ScheduleNumbers numbers_;
  bool accepts_accumulation_ = false;
};

inline constexpr std::string_view kReplicasHelp =
    "for pipedream: number of replicas per stage, which take its microbatches in turn";

/// Adds --pp, --microbatches, --vpp and schedule_numbers().
void add_number_options(Form& form, ScheduleNumbers& numbers);
/// Throws ConfigError for a number that the schedule would ignore. In a list of schedules, each uses the numbers it
/// supports.
void refuse_unused_numbers(const std::string& name, const ScheduleNumbers& numbers);
/// PATH of "file:PATH"; nullopt for any other name.
std::optional<std::string> schedule_file_of(const std::string& name);
/// The compute actions of the file, with a warning about ignored communications. `chains` is in the format of --chains.
Program read_schedule_file(const std::string& path, const std::optional<std::string>& chains, const Streams& streams);
/// Request for `name` with the numbers that this schedule uses. Throws ConfigError for a number out of range;
/// refuse_request decides whether the schedule accepts the request.
ScheduleRequest request_for(const std::string& name, const ScheduleNumbers& numbers);
Program generate_named_schedule(const std::string& name, const ScheduleNumbers& numbers);
/// Without `times`, a schedule whose order depends on times is generated for equal times.
Program generate_named_schedule(const std::string& name, const ScheduleNumbers& numbers, const TimesOfStages& times);

/// Several schedules, by name or from files, that are compared with the same numbers.
struct ScheduleList {
  std::vector<std::string> names;  ///< "1f1b", "interleaved:2", "file:PATH"
  ScheduleNumbers numbers;
  std::optional<std::string> chains;  ///< for the files

  bool only_files() const;
  /// Throws ConfigError for a number that none of the schedules uses, which would hide a mistake.
  void refuse_unused_numbers_of_all() const;
  /// Throws ConfigError for refused requests, for schedules that cannot be executed, and for files whose ranks,
  /// microbatches or chunks differ from the given ones.
  Program program(const std::string& name, const TimesOfStages& times, const Streams& streams) const;
  /// Row for `program`, which is the schedule `name`. `memory` is the value of --at-memory.
  ComparedSchedule compared(const std::string& name, const Program& program, std::optional<int> memory,
                            const TimesOfProgram& times) const;

 private:
  void require_shape(const std::string& name, const Program& program) const;
};

inline constexpr std::string_view kAtMemoryHelp =
    "number of microbatches that fit if a rank has memory for the activations of N";
/// Throws ConfigError if --at-memory is out of range.
void require_memory(const std::optional<int>& memory);

/// --forward --backward … --p2p: times of a schedule without a job, in any unit. A missing part of the backward pass B
/// and its parts I and W follows from B = I + W; with only B given, W is half of it.
class TimeOptions {
 public:
  void add_to(Form& form);
  bool given() const;
  bool fused_given() const { return fused_.has_value(); }
  /// True if the given times may fit one schedule but not another: times per stage, or for a link between two stages.
  bool names_stages() const;
  /// Throws ConfigError for values that are not times, whatever the schedule.
  void require_readable() const;
  /// Times of the stages of `program`. The given times are those of a whole microbatch; a slice takes a share. Throws
  /// ConfigError if the program needs a time that does not follow from the given ones, or if a list does not have one
  /// number per stage.
  StepTimes times_for(const Program& program) const;
  /// Times for comparing schedules, in which every rank does the same work regardless of how the model is cut: a single
  /// number is the time of a rank's whole share of the model, and a list with one number per rank gives each rank's;
  /// they are spread over the stages. A list may also have one number per stage. Defaults: forward 1, backward 2.
  StepTimes times_for_comparison(const Program& program) const;
  /// Describes the assumption for a part of the backward pass that `program` needs and that was not given; empty if
  /// none.
  std::string assumed_for(const Program& program) const;
  /// Explains why schedules that split the backward pass do different work from those that do not; empty if B = I + W.
  std::string unequal_parts() const;

 private:
  struct Lists;
  Lists read() const;
  StepTimes build(const Program& program, bool in_comparison) const;

  std::optional<std::string> forward_;
  std::optional<std::string> backward_;
  std::optional<std::string> input_gradient_;
  std::optional<std::string> weight_gradient_;
  std::optional<std::string> fused_;
  std::optional<std::string> p2p_;
  std::vector<std::string> p2p_links_;
};

/// True if any forward and backward pass overlap.
bool has_pairs(const Program& program);
/// Throws ConfigError if --fused was given but there are no overlapped pairs.
void refuse_unused_fused(const TimeOptions& times, bool any_pairs, const std::string& schedules);
/// Warns on standard error if schedules that split the backward pass would do different work from the others.
void warn_of_unequal_parts(const TimeOptions& times, const Streams& streams);

/// Weight version of every forward and every backward pass, as printed by `schedule show --versions`. `policy` is the
/// value of --policy: for a schedule from a file, which is flushed by default, and vertical-sync for pipedream.
Answer versions_answer(const ScheduleOptions& schedule, const std::optional<std::string>& policy,
                       const Streams& streams);

/// Every schedule, for `schedule list` and `catalog schedules`. CSV and JSON also contain closed forms, constraints and
/// sources.
Table schedule_table(Format format);

}  // namespace flopcast
