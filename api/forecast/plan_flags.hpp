#pragma once

#include <optional>
#include <string>
#include <vector>

#include "api/options/job_options.hpp"
#include "base/text/words.hpp"
#include "planner/plan/plan.hpp"

namespace flopcast {

/// Flags of `plan` that are not keys of a job: search space, objective and limits, interruptions.
class PlanFlags {
 public:
  void add_to(Form& form);
  /// Throws ConfigError if both --schedules and --schedule are given.
  void require_one_list(const std::optional<std::string>& schedule) const;
  /// Narrows or widens the space according to --schedules and --wide.
  void apply(SearchSpace& space) const;
  bool chooses_schedules() const { return schedules_.has_value(); }
  /// True if also schedules that no program supports are searched.
  bool is_research() const { return schedules_ && lower_case(*schedules_) == "all"; }
  /// Fraction of the memory that layouts may use; nullopt without --headroom.
  std::optional<double> memory_limit() const;
  bool verbose() const { return verbose_; }
  bool methods() const { return methods_; }
  /// The given flags that --methods does not support, because it fixes the GPUs and shows only the best layouts.
  std::vector<std::string> unsupported_by_methods(const Context& context) const;
  /// Throws ConfigError on flags that conflict, or that need tokens or a price that the job does not have.
  PlanOptions options(const Job& job, const JobOptions& asked) const;
  int threads() const;
  bool has_threads() const { return threads_.has_value(); }

 private:
  std::vector<int> node_counts(const Job& job) const;
  Objective objective() const;
  std::optional<Interruptions> interruptions(const Job& job) const;

  std::optional<std::string> objective_;
  std::optional<std::string> schedules_;
  std::optional<int> top_;
  std::optional<int> max_gpus_;
  std::optional<std::string> deadline_;
  std::optional<std::string> budget_;
  std::optional<int> threads_;
  std::optional<std::string> headroom_;
  bool verbose_ = false;
  bool min_gpus_ = false;
  bool wide_ = false;
  bool methods_ = false;
  bool whole_front_ = false;
  bool no_failures_ = false;
};

}  // namespace flopcast
