#include "base/host/exit_code.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <new>
#include <system_error>

#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

Complaint complaint_about(const std::exception& error) {
  constexpr int kBug = 1;
  constexpr int kAnswerIsNo = 3;
  if (dynamic_cast<const ConfigError*>(&error) != nullptr) return {kBadInput, error.what()};
  if (dynamic_cast<const NegativeAnswer*>(&error) != nullptr) return {kAnswerIsNo, error.what()};
  if (dynamic_cast<const EnvironmentError*>(&error) != nullptr) {
    return {kEnvironmentFailed, fmt::format("error: {}", error.what())};
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return {kEnvironmentFailed, "error: out of memory"};
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again)
    return {kEnvironmentFailed, fmt::format("error: no further thread or process: {}", system->code().message())};
  return {kBug, fmt::format("internal error: {}\nThis is a bug of flopcast; please report it with the command.",
                            error.what())};
}

void complain(const std::string& text) {
  std::fputs((printable(text) + "\n").c_str(), stderr);
}

int exit_code_of(const std::function<int()>& command, bool tells, const Streams& streams) {
  try {
    return command();
  } catch (const std::exception& error) {
    const Complaint complaint = complaint_about(error);
    if (tells || complaint.exit_code != kBadInput)
      std::fputs((colored_complaint(streams, printable(complaint.text)) + "\n").c_str(), streams.err);
    return complaint.exit_code;
  }
}

}  // namespace flopcast
