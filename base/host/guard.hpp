#pragma once

#include <sys/types.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "base/host/terminal.hpp"

namespace flopcast {

inline constexpr int kBadInput = 2;
inline constexpr int kEnvironmentFailed = 4;

/// Exit code and message for an exception: 1 internal bug, 2 invalid input, 3 negative answer, 4 environment failure.
struct ErrorReport {
  int exit_code = 0;
  std::string text;
};
ErrorReport error_report(const std::exception& error);
/// Prints on standard error.
void print_error(const std::string& text);

/// Runs a command and converts exceptions into an error message on the error stream and an exit code; 0: success. Of
/// several processes that read the same arguments, only one reports input errors: the one with the Boolean set.
int exit_code_of(const std::function<int()>& command, bool tells, const Streams& streams);

/// A process as the system lists it. Process numbers are reused; a number together with its start time is unique.
struct ProcessName {
  pid_t number = 0;
  unsigned long long beginning = 0;  ///< start time in ticks since boot; proc(5), starttime

  friend bool operator==(const ProcessName& a, const ProcessName& b) {
    return a.number == b.number && a.beginning == b.beginning;
  }
};

/// State as in /proc: 'R' running, 'S' and 'D' waiting, 'T' stopped by a signal, 'Z' ended but not yet reaped; 'X' if
/// the process does not exist.
char state_of_process(pid_t process);
/// `beginning` is 0 if the process does not exist.
ProcessName name_of_process(pid_t process);
/// Living children of a process and their descendants; empty where the system does not list them.
std::vector<pid_t> descendants_of(pid_t process);
/// True if the system lists them (CONFIG_PROC_CHILDREN of Linux).
bool lists_descendants();
/// Selects the processes that run a program of that name (at most 15 letters).
std::vector<pid_t> with_program(const std::string& name, const std::vector<pid_t>& processes);
/// True if all of the processes are stopped; false for an empty list.
bool are_stopped(const std::vector<pid_t>& processes);

/// A process that cleans up if this process is killed: it removes a folder and kills a child with all its descendants
/// if they have not exited two seconds later. It has no terminal, and signals to this process group do not reach it. If
/// the system cannot create a process, nobody cleans up.
class Guard {
 public:
  explicit Guard(const std::string& folder);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// From here on, this process cleans up itself.
  ~Guard();

  /// Sets the child to watch; 0: none.
  void take_charge_of(pid_t child) const;

 private:
  int pipe_ = -1;
  pid_t process_ = -1;
};

}  // namespace flopcast
