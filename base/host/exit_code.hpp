#pragma once

#include <exception>
#include <functional>
#include <string>

#include "base/host/streams.hpp"

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

}  // namespace flopcast
