#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "planner/plan/plan.hpp"
#include "planner/plan/read_question.hpp"

namespace flopcast {

/// The flags of `plan` that are no keys of a job: what is searched, what is wanted, what may go wrong.
class PlanFlags {
 public:
  void add_to(CommandLine& command_line);
  /// Refuses --schedules beside --schedule.
  void require_one_list(const std::optional<std::string>& schedule) const;
  /// Narrows or widens the space by --schedules and --wide.
  void apply(SearchSpace& space) const;
  /// Throws ConfigError on flags that contradict each other, or that need tokens or a price the job does not have.
  PlanOptions options(const Job& job) const;
  int threads() const;
  /// The file that --svg names.
  const std::optional<std::string>& svg() const { return svg_; }
  bool has_threads() const { return threads_.has_value(); }

 private:
  std::vector<int> node_counts(const Job& job) const;
  Objective objective() const;
  std::optional<Interruptions> interruptions() const;

  std::optional<std::string> objective_;
  std::optional<std::string> schedules_;
  std::optional<int> top_;
  std::optional<int> max_gpus_;
  std::optional<std::string> deadline_;
  std::optional<std::string> budget_;
  std::optional<std::string> mtbf_;
  std::optional<std::string> checkpoint_;
  std::optional<std::string> restart_;
  std::optional<int> threads_;
  std::optional<std::string> svg_;
  bool min_gpus_ = false;
  bool wide_ = false;
  bool whole_front_ = false;
  bool no_failures_ = false;
};

}  // namespace flopcast
