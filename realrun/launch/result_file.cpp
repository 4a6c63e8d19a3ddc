#include "realrun/launch/result_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/host/files.hpp"
#include "base/text/error.hpp"

namespace flopcast::realrun {

namespace {

void keep_text(const std::string& path, const std::string& text) {
  if (replace_file(path, text)) throw EnvironmentError(fmt::format("{} cannot be written", path));
}

}  // namespace

ResultFile::ResultFile(std::string path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}

bool ResultFile::replaceable() const {
  return !path_.empty() && !is_pipe_or_device(path_);
}

void ResultFile::keep() {
  constexpr int kAtOnce = 2;  // before the first step, and behind it
  constexpr int kMostOften = 20;
  const Clock::time_point start = Clock::now();
  if (!replaceable() || (kept_ >= kAtOnce && start < next_)) return;
  keep_text(path_, contents_("killed, or still under way"));
  ++kept_;
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(std::chrono::seconds(1), kMostOften * (end - start));
}

void ResultFile::finish(const std::string& failure) {
  const std::string text = contents_(failure);
  if (!path_.empty()) {
    keep_text(path_, text);
    return;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw EnvironmentError("standard output cannot be written");
}

}  // namespace flopcast::realrun
