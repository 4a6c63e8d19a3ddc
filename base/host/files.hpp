#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host/streams.hpp"

namespace flopcast {

/// A file's name that stands for standard input, which is read once and kept.
inline constexpr std::string_view kStandardInput = "-";

/// The file's text. Throws ConfigError when it is missing, a directory or unreadable.
std::string read_file(const std::string& path);

/// Writes beside the target and renames, so that a full disk leaves no half file and nobody ever reads one; pipes and
/// devices are written in place. Why it could not be done, or nothing.
std::optional<std::string> try_write_file(const std::string& path, const std::string& text);
/// The same. Throws EnvironmentError.
void write_file(const std::string& path, const std::string& text);
/// Throws what write_file would throw where the target's folder is missing or may not be written, before hours of work.
void require_writable(const std::string& path);
/// To the file, or to the output stream when there is none; a final newline is added.
void write_output(const Streams& streams, const std::string& path, const std::string& text);

/// What can be written but neither renamed over nor read back, such as /dev/stdout.
bool is_pipe_or_device(const std::string& path);

/// A name for a file of this process that goes with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& what);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace flopcast
