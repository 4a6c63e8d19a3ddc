#include "realrun/launch/result_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

// Pipes and devices (/dev/stdout) cannot be renamed over.
bool is_pipe_or_device(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  return fs::exists(status) && !fs::is_regular_file(status);
}

}  // namespace

void write_whole_file(const std::string& path, const std::string& text) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status status = fs::status(path, code);
  const bool in_place = is_pipe_or_device(path);
  const std::string target = in_place ? path : fmt::format("{}.{}.partial", path, getpid());
  std::FILE* file = fs::is_directory(status) ? nullptr : std::fopen(target.c_str(), "wb");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (written && closed && (in_place || std::rename(target.c_str(), path.c_str()) == 0)) return;
  if (!in_place) std::remove(target.c_str());
  throw EnvironmentError(fmt::format("{} cannot be written", path));
}

ResultFile::ResultFile(std::string path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}

bool ResultFile::replaceable() const {
  return !path_.empty() && !is_pipe_or_device(path_);
}

void ResultFile::keep() {
  constexpr int kAtOnce = 2;  // before the first step, and behind it
  constexpr int kMostOften = 20;
  const Clock::time_point start = Clock::now();
  if (!replaceable() || (kept_ >= kAtOnce && start < next_)) return;
  write_whole_file(path_, contents_("killed, or still under way"));
  ++kept_;
  const Clock::time_point end = Clock::now();
  next_ = end + std::max<Clock::duration>(std::chrono::seconds(1), kMostOften * (end - start));
}

void ResultFile::finish(const std::string& failure) {
  const std::string text = contents_(failure);
  if (!path_.empty()) {
    write_whole_file(path_, text);
    return;
  }
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) throw EnvironmentError("standard output cannot be written");
}

}  // namespace flopcast::realrun
