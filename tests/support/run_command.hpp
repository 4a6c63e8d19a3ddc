#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace flopcast {

struct CommandOptions {
  std::chrono::milliseconds timeout{60'000};
  std::map<std::string, std::string> environment;          ///< added to the caller's environment
  std::vector<std::string> unset;                          ///< variables removed from the caller's environment
  std::optional<std::filesystem::path> working_directory;  ///< if absent, the caller's
  std::string standard_input;                              ///< input of the program, followed by end of file
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + N if signal N ended the program, as in shells
  bool timed_out = false;
  std::string standard_output;
  std::string standard_error;
};

/// Runs a program without a shell and waits for it; argument 0 is its path or a name to find in PATH. After the
/// timeout, the program and everything it started are killed. Throws std::runtime_error if it cannot be started.
CommandResult run_command(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// run_command with this build's flopcast program in front of the arguments, for features that only a process has: an
/// environment, an input, signals, children. Other tests call commands in process: run_flopcast.hpp.
CommandResult start_flopcast(std::vector<std::string> arguments, const CommandOptions& options = {});

}  // namespace flopcast
