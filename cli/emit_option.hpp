#pragma once

#include <optional>
#include <string>

#include "cli/command_line.hpp"
#include "model/config/writers/launch.hpp"

namespace flopcast {

/// --emit PROGRAM: what another program needs to train a job as it is laid out, instead of our own answer.
class EmitOption {
 public:
  void add_to(CommandLine& command_line);
  /// Nothing when --emit is not given. Throws ConfigError on an unknown program.
  std::optional<LaunchProgram> program() const;
  /// To a file or standard output; what has to be given elsewhere as notes on standard error.
  static void write(const LaunchFile& file, const std::optional<std::string>& path);

 private:
  std::optional<std::string> program_;
};

}  // namespace flopcast
