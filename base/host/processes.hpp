#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/host/guard.hpp"
#include "base/host/streams.hpp"

namespace flopcast {

/// How another program ended.
struct ChildEnd {
  int exit_code = 0;
  int signal = 0;     ///< that killed it; 0: it ended by itself
  int handed_on = 0;  ///< a signal that this process got and handed on; 0: none
  /// It was stopped for longer than allowed, and has been killed for that.
  bool was_stopped = false;
  /// A launcher went on for too long when all that it had started was gone, or had complained; it has been killed.
  bool was_left = false;
  /// A line on its error stream began with "error:" or "internal error:"; known of a launcher only.
  bool told_error = false;
  bool told_bug = false;
};

/// What is to happen to a program while it runs.
struct ChildRules {
  /// The program that it starts to do the work, as mpirun does; empty: it works itself. Signals go to the processes of
  /// that program on this machine, which have more to say about it, and three seconds later to the launcher; from the
  /// terminal it gets none, nor input. Of equal complaints on its error stream the first is shown.
  std::string launches = {};
  /// How long it, or everybody that it has started, may be stopped (SIGSTOP) before all are killed; a launcher that
  /// has nobody left may go on for five seconds more.
  std::optional<std::chrono::milliseconds> longest_stop = std::nullopt;
  const Guard* guard = nullptr;  ///< who ends it when this process is killed; null: a SIGTERM has to do
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
ChildEnd run_child(const std::vector<std::string>& words, const Streams& streams, const ChildRules& rules = {});

}  // namespace flopcast
