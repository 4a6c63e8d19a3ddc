#include "cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace flopcast {

Progress::Progress(bool shows) : shows_(shows && isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (shows_ && done_ > 0) std::fputs("\n", stderr);
}

void Progress::step() {
  const std::size_t done = ++done_;
  if (!shows_) return;
  constexpr std::size_t kWidth = 40;
  const std::size_t filled = done * kWidth / all_;
  std::fputs(fmt::format("\r[{:<{}}] {}/{}", std::string(filled, '#'), kWidth, done, all_).c_str(), stderr);
}

}  // namespace flopcast
