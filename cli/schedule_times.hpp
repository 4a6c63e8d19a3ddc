#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command_line.hpp"
#include "sim/lower/step_times.hpp"
#include "sim/schedule/program.hpp"

namespace flopcast {

/// Ticks of an abstract schedule: a millionth of the user's unit, so that six decimals are exact.
inline constexpr double kUnitsPerTick = 1e-6;

/// --forward --backward … --p2p: the times of a bare schedule, in the user's own unit.
class TimeOptions {
 public:
  void add_to(CommandLine& command_line);
  bool given() const;
  /// For the stages of `program`, times being those of a whole microbatch: a slice takes its share. Throws ConfigError
  /// when a time that the program needs was not given, when a list does not have one number a stage, and when a number
  /// is no time.
  StepTimes times_for(const Program& program) const;
  /// For drawing schedules side by side, where every rank does the same work whatever its number of chunks: one number
  /// is the time of a rank's whole share of the model and is spread over its chunks, a list still has one number a
  /// stage. What was not given is forward 1, backward 2, input and weight gradient 1.
  StepTimes times_for_comparison(const Program& program) const;

 private:
  StepTimes build(const Program& program) const;
  /// Divides by `parts` the times whose text `spreads` accepts.
  template <class Predicate>
  void spread(StepTimes& times, Ticks parts, const Predicate& spreads) const;

  std::optional<std::string> forward_;
  std::optional<std::string> backward_;
  std::optional<std::string> input_gradient_;
  std::optional<std::string> weight_gradient_;
  std::optional<std::string> fused_;
  std::optional<std::string> p2p_;
  std::vector<std::string> p2p_links_;
};

}  // namespace flopcast
