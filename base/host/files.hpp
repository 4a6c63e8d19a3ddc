#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/host/terminal.hpp"

namespace flopcast {

/// A file's name that stands for standard input, which is read once and kept.
inline constexpr std::string_view kStandardInput = "-";

/// The file's text. Throws ConfigError when it is missing, a directory or unreadable.
std::string read_file(const std::string& path);
/// The same; standard input is that of `streams`.
std::string read_input(const Streams& streams, const std::string& path);

/// Writes beside the target and renames, so that a full disk leaves no half file and nobody ever reads one; pipes,
/// devices and what this process has open (/dev/stdout, /dev/fd/3) are written in place. A new file has the mode that
/// the umask leaves of 0666, one that was there keeps its own. Through a symbolic link the file is replaced that it
/// names. Why it could not be done, or nothing.
std::optional<std::string> try_write_file(const std::string& path, const std::string& text);
/// The same. Throws EnvironmentError.
void write_file(const std::string& path, const std::string& text);
/// Throws what write_file would throw where the target's folder is missing or may not be written, before hours of work.
void require_writable(const std::string& path);
/// To the file, or to the output stream when there is none; a final newline is added.
void write_output(const Streams& streams, const std::string& path, const std::string& text);

/// A file that is being written, without a name where the file system can, so that whoever is killed leaves nothing;
/// else under a name of its own.
struct OutputTarget {
  std::string file;       ///< the name it is to have
  std::string beside;     ///< the name it has; empty: none yet, or it is written in place
  bool nameless = false;  ///< it gets a name when it is whole
  int descriptor = -1;
};

/// An answer that is written piece by piece, since it is too large to be held; with the promises of write_file and
/// write_output.
class OutputPieces {
 public:
  /// An empty path, or "-", is the output stream. Throws EnvironmentError.
  OutputPieces(const Streams& streams, const std::string& path);
  OutputPieces(const OutputPieces&) = delete;
  OutputPieces& operator=(const OutputPieces&) = delete;
  /// Without finish() nothing is left of a file.
  ~OutputPieces();

  /// False when nobody reads on (head, less): the rest need not be computed. Throws EnvironmentError.
  bool write(std::string_view text);
  /// The file has its name now.
  void finish();

 private:
  void flush();

  Streams streams_;
  std::string path_;
  OutputTarget target_;  ///< without a descriptor: the output stream
  bool reader_left_ = false;
  std::string buffer_;
};

/// A file that a command reads and its words do not tell, one that a job or a row names: write_file and OutputPieces
/// refuse to write it (ConfigError) until forget_inputs, with which every command begins.
void note_input(const std::string& path);
void forget_inputs();

/// Two names of one file, that is or is to be; never of a pipe or a device.
bool is_one_file(const std::string& a, const std::string& b);

/// What can be written but neither renamed over nor read back, such as /dev/stdout.
bool is_pipe_or_device(const std::string& path);

/// A new folder of this user alone below $TMPDIR, under a name that nobody can tell beforehand; it goes with the object
/// and all it holds. Throws EnvironmentError where there is no room for one.
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
