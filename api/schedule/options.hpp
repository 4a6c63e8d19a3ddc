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

/// Throws ConfigError with the step x rank grid when the schedule cannot be executed.
void require_valid(const Program& program);

/// What ScheduleOptions and `timeline` read from the command line, absent where it says nothing.
struct ScheduleNumbers {
  std::optional<int> pipeline_ranks;
  std::optional<int> microbatches;
  std::optional<int> chunks;
  std::optional<std::string> replicas;  ///< "3,1": one number a stage
  ScheduleRequest request;              ///< its schedule_numbers() as given; the rest is not read
};
/// The times of a program's stages, as a command reads them.
using TimesOfStages = std::function<StepTimes(const Program& stages)>;

/// FILE.csv (or --schedule file:FILE.csv), or --schedule --pp --microbatches [--vpp --group --accumulation]: the
/// schedule a command works on.
class ScheduleOptions {
 public:
  void add_to(Form& form);
  /// From the file or generated. Throws ConfigError for what cannot be read or is refused; a readable file may still
  /// hold an invalid schedule.
  Program program(const Streams& streams) const;
  /// The same with the communications of the file; a generated schedule has none.
  CellProgram cell_program(const Streams& streams) const;
  /// The same; of a schedule whose order depends on times, the one for what `times` gives its stages.
  Program program(const TimesOfStages& times, const Streams& streams) const;
  /// Whether the schedule is generated and its order depends on times.
  bool uses_times() const;
  /// The path of FILE or of --schedule file:PATH; nothing when the schedule is generated.
  std::optional<std::string> file() const;
  /// The request behind `name` (such as "interleaved:2"); pipeline ranks and microbatches must have been given.
  Program generate(const std::string& name, const TimesOfStages& times) const;
  const std::optional<std::string>& schedule() const { return schedule_; }
  /// What a generated schedule was asked for. Throws like program().
  ScheduleRequest request() const;
  /// Lets --accumulation stand beside FILE, which says nothing about updates.
  void accept_accumulation_beside_file() { accepts_accumulation_ = true; }
  std::optional<int> accumulation() const { return numbers_.request.accumulation; }

 private:
  void refuse_contradictions() const;
  void refuse_numbers_beside_file() const;

  std::optional<std::string> file_;
  std::optional<std::string> schedule_;
  std::optional<std::string> chains_;
  ScheduleNumbers numbers_;
  bool accepts_accumulation_ = false;
};

inline constexpr std::string_view kReplicasHelp =
    "of pipedream: ranks that share each stage's microbatches in turn, one number a stage";

/// --pp, --microbatches, --vpp and schedule_numbers().
void add_number_options(Form& form, ScheduleNumbers& numbers);
/// Throws ConfigError for a number that the schedule would ignore. In a list of schedules each takes what it knows.
void refuse_unused_numbers(const std::string& name, const ScheduleNumbers& numbers);
/// PATH of "file:PATH"; nothing for any other name.
std::optional<std::string> schedule_file_of(const std::string& name);
/// The compute actions of the file, with a warning that names what is left out. `chains` as --chains gives them.
Program read_schedule_file(const std::string& path, const std::optional<std::string>& chains, const Streams& streams);
/// What `name` and the numbers ask for; each schedule takes the numbers it reads. Throws ConfigError for a number out
/// of range; whether the schedule accepts the request is refuse_request's to say.
ScheduleRequest request_for(const std::string& name, const ScheduleNumbers& numbers);
Program generate_named_schedule(const std::string& name, const ScheduleNumbers& numbers);
/// `times` may be empty: equal times for a schedule whose order depends on them.
Program generate_named_schedule(const std::string& name, const ScheduleNumbers& numbers, const TimesOfStages& times);

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
  Program program(const std::string& name, const TimesOfStages& times, const Streams& streams) const;
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

/// --forward --backward … --p2p: the times of a bare schedule, in the user's own unit. Of the backward pass B and its
/// parts I and W what is missing follows from B = I + W; of B alone, W is half.
class TimeOptions {
 public:
  void add_to(Form& form);
  bool given() const;
  bool fused_given() const { return fused_.has_value(); }
  /// Whether what was given may fit one schedule and not another: a number a stage, or a link between two stages.
  bool names_stages() const;
  /// Throws ConfigError for what is no time, whatever the schedule.
  void require_readable() const;
  /// For the stages of `program`, times being those of a whole microbatch: a slice takes its share. Throws ConfigError
  /// when a time that the program needs does not follow from what was given, and when a list does not have one number a
  /// stage.
  StepTimes times_for(const Program& program) const;
  /// For schedules side by side, where every rank does the same work however the model is cut: one number is the time
  /// of a rank's whole share of the model, and one a rank is that rank's; they are spread over the stages. A list may
  /// still have one number a stage. What was not given is forward 1, backward 2.
  StepTimes times_for_comparison(const Program& program) const;
  /// What times_for() took for a part of the backward pass that `program` needs and nobody gave; empty: nothing.
  std::string assumed_for(const Program& program) const;
  /// Why schedules that split the backward pass do other work than those that do not; empty when B = I + W.
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

/// Whether a forward and a backward overlap somewhere.
bool has_pairs(const Program& program);
/// Throws ConfigError when --fused was given and there is no pair in what it was given for.
void refuse_unused_fused(const TimeOptions& times, bool any_pairs, const std::string& schedules);
/// On standard error, where schedules that split the backward pass would do other work than the others.
void warn_of_unequal_parts(const TimeOptions& times, const Streams& streams);

/// Which weight version every forward and every backward uses, as `schedule show --versions` prints it. `policy` is
/// what --policy says: of a schedule from a file, which would flush without it, and vertical-sync of pipedream.
Answer versions_answer(const ScheduleOptions& schedule, const std::optional<std::string>& policy,
                       const Streams& streams);

/// Every schedule, for `schedule list` and `catalog schedules`. CSV and JSON hold closed forms, constraints and sources
/// too.
Table schedule_table(Format format);

}  // namespace flopcast
