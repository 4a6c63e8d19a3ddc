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
  std::map<std::string, std::string> environment;          ///< set on top of the caller's
  std::vector<std::string> unset;                          ///< variables taken out of the caller's environment
  std::optional<std::filesystem::path> working_directory;  ///< the caller's when absent
  std::string standard_input;                              ///< what the program reads, then end of file
};

struct CommandResult {
  int exit_code = 0;  ///< 128 + N when signal N ended the program, as shells report it
  bool timed_out = false;
  std::string standard_output;
  std::string standard_error;
};

/// Runs a program without a shell and waits for it; argument 0 is its path or a name looked up in PATH. When the time
/// is up, the program and everything it started are killed. Throws std::runtime_error when it cannot be started.
CommandResult run_command(const std::vector<std::string>& arguments, const CommandOptions& options = {});

/// run_command with the flopcast program of this build in front of the arguments, for what only a process has: an
/// environment, an input, signals, children. Other tests call commands in process: run_flopcast.hpp.
CommandResult start_flopcast(std::vector<std::string> arguments, const CommandOptions& options = {});

}  // namespace flopcast
