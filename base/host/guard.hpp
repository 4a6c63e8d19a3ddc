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

/// How a program ends because of an exception, and what it says about it: 1 our bug, 2 the input is wrong, 3 the answer
/// is no, 4 the environment failed.
struct Complaint {
  int exit_code = 0;
  std::string text;
};
Complaint complaint_about(const std::exception& error);
/// On standard error.
void complain(const std::string& text);

/// Runs a command and turns what it throws into a complaint on the error stream and an exit code; 0: done. Of several
/// processes that read the same arguments one `tells` what is wrong with them.
int exit_code_of(const std::function<int()>& command, bool tells, const Streams& streams);

/// A process as the system lists it: numbers are given out again, and a number with its beginning is not.
struct ProcessName {
  pid_t number = 0;
  unsigned long long beginning = 0;  ///< in ticks since the machine started; proc(5), starttime

  friend bool operator==(const ProcessName& a, const ProcessName& b) {
    return a.number == b.number && a.beginning == b.beginning;
  }
};

/// As /proc has it: 'R' runs, 'S' and 'D' wait, 'T' is stopped by a signal, 'Z' has ended and nobody has asked how;
/// 'X' where there is no such process.
char state_of_process(pid_t process);
/// Its beginning is 0 where there is no such process.
ProcessName name_of_process(pid_t process);
/// What a process has started, and these again, as far as they live; none where the system does not list them.
std::vector<pid_t> descendants_of(pid_t process);
/// Whether it does (CONFIG_PROC_CHILDREN of Linux).
bool lists_descendants();
/// Of these the ones that run a program of that name, of at most 15 letters.
std::vector<pid_t> with_program(const std::string& name, const std::vector<pid_t>& processes);
/// Whether all of these are stopped; false of none.
bool are_stopped(const std::vector<pid_t>& processes);

/// A process beside this one that clears up when this one is killed and can no longer do it: it removes a folder, and
/// ends a child, with all that this has started, which has not ended by itself two seconds later. It belongs to no
/// terminal, and what is sent to the group of this process does not reach it. Where the system has no further process,
/// nobody clears up.
class Guard {
 public:
  explicit Guard(const std::string& folder);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  /// From now on this process clears up itself.
  ~Guard();

  /// 0: of nobody any more.
  void take_charge_of(pid_t child) const;

 private:
  int pipe_ = -1;
  pid_t process_ = -1;
};

}  // namespace flopcast
