#pragma once

#include <exception>
#include <string>

namespace flopcast::realrun {

inline constexpr int kEnvironmentFailed = 4;

/// How a program ends, and what it says about it.
struct Complaint {
  int exit_code = 0;
  std::string text;
};

Complaint complaint_about(const std::exception& error);
/// On standard error.
void complain(const std::string& text);

}  // namespace flopcast::realrun
