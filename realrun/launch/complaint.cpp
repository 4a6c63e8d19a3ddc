#include "realrun/launch/complaint.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <new>

#include "model/error/error.hpp"

namespace flopcast::realrun {

Complaint complaint_about(const std::exception& error) {
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return {2, error.what()};
  if (dynamic_cast<const EnvironmentError*>(&error) != nullptr) {
    return {kEnvironmentFailed, fmt::format("error: {}", error.what())};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {kEnvironmentFailed, "error: out of memory"};
  return {1, fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.",
                         error.what())};
}

void complain(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

}  // namespace flopcast::realrun
