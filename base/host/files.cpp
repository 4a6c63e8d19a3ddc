#include "base/host/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <system_error>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

// Read piece by piece: devices and pipes have no size, and some never end.
std::string read_all(std::istream& stream, const std::string& path) {
  constexpr std::size_t kLargestFile = std::size_t{1} << 30;
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())) || stream.gcount() > 0) {
    text.append(piece.data(), static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kLargestFile) throw ConfigError({"", fmt::format("{} is larger than 1 GiB", path), "", ""});
  }
  if (!stream.eof()) throw ConfigError({"", fmt::format("{}: {}", path, std::strerror(errno)), "", ""});
  return text;
}

// A command may read its file twice, and a pipe gives its text once.
const std::string& standard_input() {
  static const std::string text = read_all(std::cin, "standard input");
  return text;
}

}  // namespace

std::string read_input(const Streams& streams, const std::string& path) {
  return streams.in != nullptr && path == kStandardInput ? *streams.in : read_file(path);
}

std::string read_file(const std::string& path) {
  if (path == kStandardInput) return standard_input();
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (path.empty()) throw ConfigError({"", "the file's name is empty", "", "give a file"});
  if (status.type() == std::filesystem::file_type::not_found) {
    throw ConfigError({"", fmt::format("{}: no such file", path), "", ""});
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw ConfigError({"", fmt::format("{} is a directory", path), "", "give a file"});
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw ConfigError({"", fmt::format("{}: {}", path, std::strerror(errno)), "", ""});
  return read_all(stream, path);
}

bool is_one_file(const std::string& a, const std::string& b) {
  std::error_code code;
  const auto resolved = [&code](const std::string& path) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(path, code), code);
  };
  const std::filesystem::path file = resolved(a);
  if (file != resolved(b)) return false;
  return !std::filesystem::exists(file, code) || std::filesystem::is_regular_file(file, code);
}

bool is_pipe_or_device(const std::string& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

namespace {

constexpr mode_t kNewFile = 0666;
constexpr mode_t kAllModes = 07777;

// It can only be asked by setting it.
mode_t umask_of_process() {
  static const mode_t mask = [] {
    const mode_t found = umask(0);
    umask(found);
    return found;
  }();
  return mask;
}

// Why not all of it could be written, or nothing.
std::optional<std::string> written_and_closed(int descriptor, std::string_view text) {
  std::optional<std::string> reason;
  while (!text.empty() && !reason) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR) reason = std::strerror(errno);
  }
  if (close(descriptor) != 0 && !reason) reason = std::strerror(errno);
  return reason;
}

}  // namespace

std::optional<std::string> try_write_file(const std::string& path, const std::string& text) {
  std::error_code code;
  // Through a symbolic link the file itself is replaced, not the link.
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, code);
  const std::string file = code ? path : resolved.string();
  const auto status = std::filesystem::status(file, code);
  if (status.type() == std::filesystem::file_type::directory) return "it is a directory";
  const bool exists = std::filesystem::exists(status);
  if (exists && access(file.c_str(), W_OK) != 0) return std::strerror(errno);
  errno = 0;
  // Pipes and devices (/dev/stdout, /dev/full) cannot be renamed over.
  if (is_pipe_or_device(file)) {
    const int in_place = open(file.c_str(), O_WRONLY | O_CLOEXEC);
    return in_place < 0 ? std::optional<std::string>(std::strerror(errno)) : written_and_closed(in_place, text);
  }
  // The name is new and nobody's guess, so that no link waits under it; it is short whatever the file is called.
  std::string beside = (std::filesystem::path(file).parent_path() / ".flopcast-XXXXXX").string();
  const int descriptor = mkostemp(beside.data(), O_CLOEXEC);
  if (descriptor < 0) return std::strerror(errno);
  const mode_t mode = exists ? static_cast<mode_t>(status.permissions()) & kAllModes : kNewFile & ~umask_of_process();
  const bool has_mode = fchmod(descriptor, mode) == 0;
  std::optional<std::string> reason = written_and_closed(descriptor, text);
  if (!reason && !has_mode) reason = "its mode cannot be set";
  if (!reason && std::rename(beside.c_str(), file.c_str()) != 0) reason = std::strerror(errno);
  if (reason) std::remove(beside.c_str());
  return reason;
}

void write_file(const std::string& path, const std::string& text) {
  if (path == kStandardInput) {
    throw ConfigError({"", "- is standard output, where the answer goes", "", "give a file, or /dev/stdout"});
  }
  if (const auto reason = try_write_file(path, text)) {
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, *reason));
  }
}

void require_writable(const std::string& path) {
  if (path.empty()) throw ConfigError({"", "the file's name is empty", "", "give a file"});
  std::error_code code;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, code);
  const std::filesystem::path file = code ? std::filesystem::path(path) : resolved;
  const bool exists = std::filesystem::exists(file, code);
  const auto fail = [&path](const std::string& reason) {
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, reason));
  };
  if (std::filesystem::is_directory(file, code)) fail("it is a directory");
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, code)) fail(fmt::format("there is no folder {}", folder.string()));
  // A file is written beside its target and renamed; pipes and devices are written in place.
  const bool in_place = exists && !std::filesystem::is_regular_file(file, code);
  if (!in_place && access(folder.c_str(), W_OK) != 0) fail(std::strerror(errno));
  if (exists && access(file.c_str(), W_OK) != 0) fail(std::strerror(errno));
}

void write_output(const Streams& streams, const std::string& path, const std::string& text) {
  std::string output = text;
  if (!output.empty() && output.back() != '\n') output += '\n';
  // The name of standard input is that of standard output where something is written.
  if (!path.empty() && path != kStandardInput) {
    write_file(path, output);
    return;
  }
  errno = 0;
  const bool written =
      std::fwrite(output.data(), 1, output.size(), streams.out) == output.size() && std::fflush(streams.out) == 0;
  // A reader that has seen enough (head, less) is no failure of ours.
  if (!written && errno != EPIPE)
    throw EnvironmentError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

PrivateFolder::PrivateFolder() {
  std::error_code code;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(code);
  if (code) throw EnvironmentError("there is no folder for temporary files: set TMPDIR to one that can be written");
  path_ = (parent / "flopcast-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr)
    throw EnvironmentError(fmt::format("no folder can be made in {}: {}", parent.string(), std::strerror(errno)));
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace flopcast
