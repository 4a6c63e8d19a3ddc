#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/host/streams.hpp"

namespace flopcast {

/// How another program ended.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;  ///< that killed it; 0: it ended by itself
};

/// The path of a program of ours, which lies beside this one or in the folder that it is built in. Throws
/// EnvironmentError when it is in neither.
std::string program_beside(const std::string& name);

/// The path of a program by its name, as the shell finds it.
std::optional<std::string> program_on_path(const std::string& name);

/// "unknown" where the system does not tell.
std::string host_name();

/// Runs a program, which prints to the streams, and waits for it; they have to be files of the system. An interrupt
/// from the terminal reaches the program by itself; SIGINT, SIGTERM and SIGHUP of another process are handed on to it,
/// and it gets a SIGTERM when this process is killed. Throws EnvironmentError when it cannot be started.
ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams);

}  // namespace flopcast
