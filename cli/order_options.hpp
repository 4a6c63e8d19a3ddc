#pragma once

#include <string>

#include "cli/command_line.hpp"
#include "reports/table.hpp"
#include "sim/program/program.hpp"

namespace flopcast {

/// How commands print the order of every rank's actions: --with-comm and the flags that belong to it.
class OrderOptions {
 public:
  void add_to(CommandLine& command_line);
  /// Throws ConfigError for flags that contradict each other, and where communications are asked of a schedule that
  /// cannot be executed.
  std::string listing(const Program& program, Format format) const;
  /// Whether any flag was given.
  bool given() const { return with_communication_ || defer_receives_ || no_sharding_ || merge_backward_; }

 private:
  bool with_communication_ = false;
  bool defer_receives_ = false;
  bool no_sharding_ = false;
  bool merge_backward_ = false;
};

}  // namespace flopcast
