#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/command_line.hpp"
#include "sim/program/program.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast {

/// --forward --backward … --p2p: the times of a bare schedule, in the user's own unit. Of the backward pass B and its
/// parts I and W what is missing follows from B = I + W; of B alone, W is half.
class TimeOptions {
 public:
  void add_to(CommandLine& command_line);
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

}  // namespace flopcast
