#include "base/host/files.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

bool is_pipe_or_device(const std::string& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

std::optional<std::string> try_write_file(const std::string& path, const std::string& text) {
  std::error_code code;
  // Through a symbolic link the file itself is replaced, not the link.
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, code);
  const std::string file = code ? path : resolved.string();
  const auto status = std::filesystem::status(file, code);
  if (status.type() == std::filesystem::file_type::directory) return "it is a directory";
  const bool exists = std::filesystem::exists(status);
  if (exists && access(file.c_str(), W_OK) != 0) return std::strerror(errno);
  // Pipes and devices (/dev/stdout, /dev/full) cannot be renamed over.
  const bool in_place = is_pipe_or_device(file);
  const std::string target = in_place ? file : fmt::format("{}.{}.tmp", file, getpid());
  errno = 0;
  {
    std::ofstream stream(target, std::ios::binary);
    if (!stream) return std::strerror(errno);
    stream << text;
    stream.flush();
    if (!stream) {
      std::string reason = std::strerror(errno);
      if (!in_place) std::filesystem::remove(target, code);
      return reason;
    }
  }
  if (in_place) return std::nullopt;
  if (exists) std::filesystem::permissions(target, status.permissions(), code);
  std::filesystem::rename(target, file, code);
  if (!code) return std::nullopt;
  std::string reason = code.message();
  std::filesystem::remove(target, code);
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

TemporaryFile::TemporaryFile(const std::string& what)
    : path_((std::filesystem::temp_directory_path() / fmt::format("flopcast-{}-{}.json", what, getpid())).string()) {}

TemporaryFile::~TemporaryFile() {
  std::remove(path_.c_str());
}

}  // namespace flopcast
