#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host/terminal.hpp"

namespace flopcast {

/// File name that means standard input, which is read once and cached.
inline constexpr std::string_view kStandardInput = "-";

/// Returns the file's text. Throws ConfigError if it is missing, a directory or unreadable.
std::string read_file(const std::string& path);
/// Like read_file, but takes standard input from `streams`.
std::string read_input(const Streams& streams, const std::string& path);

/// Writes a temporary file next to the target and renames it, so that neither a full disk nor a concurrent reader ever
/// sees a partial file. Pipes, devices and descriptors open in this process (/dev/stdout, /dev/fd/3) are written in
/// place. A new file gets mode 0666 minus the umask; an existing file keeps its mode. Through a symbolic link, the file
/// it points to is replaced. Returns the reason for a failure, or nothing.
std::optional<std::string> try_write_file(const std::string& path, const std::string& text);
/// Like try_write_file, but throws EnvironmentError.
void write_file(const std::string& path, const std::string& text);
/// Fails as write_file would if the target's folder is missing or not writable, so that errors appear before hours of
/// work.
void require_writable(const std::string& path);
/// Writes to the file, or to the output stream if the path is empty; appends a final newline if there is none.
void write_output(const Streams& streams, const std::string& path, const std::string& text);

/// A file that is being written. It has no name where the file system supports that, so that a killed process leaves
/// nothing behind; otherwise it has a temporary name.
struct OutputTarget {
  std::string file;       ///< final name
  std::string beside;     ///< temporary name; empty: none yet, or written in place
  bool nameless = false;  ///< it gets its name only when complete
  int descriptor = -1;
};

/// A result too large to be held in memory, written piece by piece with the guarantees of write_file and write_output.
class OutputPieces {
 public:
  /// An empty path or "-" means the output stream. Throws EnvironmentError.
  OutputPieces(const Streams& streams, const std::string& path);
  OutputPieces(const OutputPieces&) = delete;
  OutputPieces& operator=(const OutputPieces&) = delete;
  /// Discards the file unless finish() was called.
  ~OutputPieces();

  /// Returns false once the reader has closed the stream (head, less); the rest need not be computed. Throws
  /// EnvironmentError.
  bool write(std::string_view text);
  /// Completes the file and gives it its final name.
  void finish();

 private:
  void flush();

  Streams streams_;
  std::string path_;
  OutputTarget target_;  ///< no descriptor: output stream
  bool reader_left_ = false;
  std::string buffer_;
};

/// Registers a file that a command reads but that does not appear in its arguments, because a job or table row names
/// it. write_file and OutputPieces refuse to overwrite it (ConfigError) until forget_inputs, which every command calls
/// first.
void note_input(const std::string& path);
void forget_inputs();

/// True if both names refer to the same existing or future regular file; false for pipes and devices.
bool is_one_file(const std::string& a, const std::string& b);

/// True for paths that can be written but neither replaced by rename nor read back, such as /dev/stdout.
bool is_pipe_or_device(const std::string& path);

/// A new private folder below $TMPDIR with an unpredictable name, deleted with its contents by the destructor. Throws
/// EnvironmentError if it cannot be created.
class PrivateFolder {
 public:
  PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  ~PrivateFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace flopcast
