#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/command_line.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

/// --jitter, --straggler, --samples, --seed and --sequence-lengths of `simulate`.
class VariationOptions {
 public:
  void add_to(CommandLine& command_line);
  /// Nothing when neither jitter nor a straggler is asked for. Throws ConfigError on values that make no sense, and on
  /// --samples or --seed without anything to draw.
  std::optional<Variation> variation() const;

  /// --sequence-lengths alone, as `memory` has it.
  void add_lengths_to(CommandLine& command_line);
  /// Of the file, in its order: whole numbers, each with *COUNT where it stands for several; or of a distribution, cut
  /// to `longest`.
  std::optional<std::vector<int>> sequence_lengths(int longest) const;

 private:
  std::optional<std::string> jitter_;
  std::vector<std::string> stragglers_;
  std::optional<int> samples_;
  std::optional<std::string> seed_;
  std::optional<std::string> lengths_;
};

}  // namespace flopcast
