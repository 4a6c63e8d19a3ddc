#include "base/host/files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <random>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

// Reads piece by piece: devices and pipes have no size, and some never end.
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

// Cached, because a command may read its file twice but a pipe delivers its text only once.
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
  if (path.empty()) throw ConfigError({"", "the file's name is empty", "", "give a file name"});
  if (status.type() == std::filesystem::file_type::not_found) {
    throw ConfigError({"", fmt::format("{}: no such file", path), "", ""});
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw ConfigError({"", fmt::format("{} is a directory", path), "", "give a file name"});
  }
  errno = 0;
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw ConfigError({"", fmt::format("{}: {}", path, std::strerror(errno)), "", ""});
  std::string text = read_all(stream, path);
  // Spreadsheets begin text files with a byte order mark, which is not content.
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (std::string_view(text).substr(0, kByteOrderMark.size()) == kByteOrderMark) text.erase(0, kByteOrderMark.size());
  return text;
}

namespace {

// "/dev/stdout" and similar names refer to a descriptor open in this process. Even if it is a regular file, it belongs
// to someone else: it is written from its current position, neither replaced nor truncated.
std::optional<int> descriptor_named_by(std::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    if (!path.starts_with(folder)) continue;
    path.remove_prefix(folder.size());
    int number = -1;
    const auto read = std::from_chars(path.data(), path.data() + path.size(), number);
    if (read.ec == std::errc() && read.ptr == path.data() + path.size() && number >= 0) return number;
  }
  return std::nullopt;
}

// The file that a path resolves to through symbolic links; it need not exist.
std::filesystem::path target_of(const std::string& path) {
  constexpr int kMostLinks = 40;
  std::error_code code;
  std::filesystem::path file = std::filesystem::absolute(path, code);
  for (int link = 0; link < kMostLinks && std::filesystem::is_symlink(file, code); ++link) {
    const std::filesystem::path next = std::filesystem::read_symlink(file, code);
    file = next.is_absolute() ? next : file.parent_path() / next;
  }
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(file, code);
  return code ? file : resolved;
}

// Files that the running command has read because jobs or table rows name them; its arguments do not show them.
struct Inputs {
  std::mutex mutex;
  std::set<std::string> paths;
};
Inputs& inputs() {
  static Inputs all;
  return all;
}

void refuse_to_overwrite_input(const std::string& path) {
  Inputs& all = inputs();
  const std::lock_guard lock(all.mutex);
  for (const std::string& read : all.paths) {
    if (!is_one_file(path, read)) continue;
    throw ConfigError(
        {"", fmt::format("{} is also an input and would be overwritten", path), "", "use a different output file"});
  }
}

}  // namespace

void note_input(const std::string& path) {
  Inputs& all = inputs();
  const std::lock_guard lock(all.mutex);
  all.paths.insert(path);
}

void forget_inputs() {
  Inputs& all = inputs();
  const std::lock_guard lock(all.mutex);
  all.paths.clear();
}

bool is_one_file(const std::string& a, const std::string& b) {
  if (descriptor_named_by(a) || descriptor_named_by(b)) return false;
  std::error_code code;
  const std::filesystem::path file = target_of(a);
  if (file != target_of(b)) return false;
  return !std::filesystem::exists(file, code) || std::filesystem::is_regular_file(file, code);
}

bool is_pipe_or_device(const std::string& path) {
  if (descriptor_named_by(path)) return true;
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  return std::filesystem::exists(status) && !std::filesystem::is_regular_file(status) &&
         !std::filesystem::is_directory(status);
}

namespace {

constexpr mode_t kNewFile = 0666;
constexpr mode_t kAllModes = 07777;

// The umask can only be read by setting it.
mode_t umask_of_process() {
  static const mode_t mask = [] {
    const mode_t found = umask(0);
    umask(found);
    return found;
  }();
  return mask;
}

// Returns the reason if not all of the text could be written, or nothing.
std::optional<std::string> written(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
    if (count < 0 && errno != EINTR) return std::strerror(errno);
  }
  return std::nullopt;
}

std::string folder_of(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string path_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

// O_TMPFILE exists only on Linux, on most file systems, and naming the file later needs /proc.
bool open_without_name(OutputTarget& target) {
#ifdef O_TMPFILE
  target.descriptor = open(folder_of(target.file).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (target.descriptor < 0) return false;
  if (access(path_of_descriptor(target.descriptor).c_str(), F_OK) == 0) {
    target.nameless = true;
    return true;
  }
  close(target.descriptor);
#endif
  return false;
}

// The temporary name is new and unpredictable, so that no symbolic link can be planted under it; its length does not
// depend on the target's.
bool open_temporary(OutputTarget& target) {
  target.beside = (std::filesystem::path(target.file).parent_path() / ".flopcast-XXXXXX").string();
  target.descriptor = mkostemp(target.beside.data(), O_CLOEXEC);
  return target.descriptor >= 0;
}

// Links under a temporary name first: a link cannot replace an existing file, a rename can.
std::optional<std::string> give_name(OutputTarget& target) {
  constexpr int kMostTries = 100;
  std::random_device random;
  for (int time = 0; time < kMostTries; ++time) {
    target.beside = fmt::format("{}/.flopcast-{:08x}{:08x}", folder_of(target.file), random(), random());
    const int linked = linkat(AT_FDCWD, path_of_descriptor(target.descriptor).c_str(), AT_FDCWD, target.beside.c_str(),
                              AT_SYMLINK_FOLLOW);
    if (linked == 0) return std::nullopt;
    if (errno != EEXIST) break;
  }
  target.beside.clear();
  return std::strerror(errno);
}

// Gives the file its name, or removes it if there is a reason not to.
std::optional<std::string> close_target(OutputTarget& target, std::optional<std::string> reason) {
  if (target.nameless && !reason) reason = give_name(target);
  if (close(target.descriptor) != 0 && !reason) reason = std::strerror(errno);
  target.descriptor = -1;
  if (target.beside.empty()) return reason;
  if (!reason && std::rename(target.beside.c_str(), target.file.c_str()) != 0) reason = std::strerror(errno);
  if (reason) std::remove(target.beside.c_str());
  return reason;
}

// How long writing takes. A slow output should have no name until it is complete.
enum class Takes { kAMoment, kLong };

std::optional<std::string> open_target(const std::string& path, Takes takes, OutputTarget& target) {
  std::error_code code;
  if (const std::optional<int> descriptor = descriptor_named_by(path)) {
    target.file = path;
    target.descriptor = fcntl(*descriptor, F_DUPFD_CLOEXEC, 0);
    return target.descriptor < 0 ? std::optional<std::string>(std::strerror(errno)) : std::nullopt;
  }
  // A symbolic link itself is kept; the file it points to is replaced.
  target.file = target_of(path).string();
  const auto status = std::filesystem::status(target.file, code);
  if (status.type() == std::filesystem::file_type::directory) return "it is a directory";
  const bool exists = std::filesystem::exists(status);
  if (exists && access(target.file.c_str(), W_OK) != 0) return std::strerror(errno);
  errno = 0;
  // A rename cannot replace pipes and devices (/dev/stdout, /dev/full).
  if (is_pipe_or_device(target.file)) {
    target.descriptor = open(target.file.c_str(), O_WRONLY | O_CLOEXEC);
    return target.descriptor < 0 ? std::optional<std::string>(std::strerror(errno)) : std::nullopt;
  }
  const bool opened = (takes == Takes::kLong && open_without_name(target)) || open_temporary(target);
  if (!opened) return std::strerror(errno);
  const mode_t mode = exists ? static_cast<mode_t>(status.permissions()) & kAllModes : kNewFile & ~umask_of_process();
  if (fchmod(target.descriptor, mode) == 0) return std::nullopt;
  return close_target(target, "cannot set its mode");
}

[[noreturn]] void fail_to_write(const std::string& path, const std::string& reason) {
  throw EnvironmentError(fmt::format("cannot write {}: {}", path, reason));
}

// Returns false if the reader has closed the stream: a reader that has seen enough (head, less) is not an error.
bool written_to_stream(std::FILE* stream, std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0) return true;
  if (errno == EPIPE) return false;
  throw EnvironmentError(fmt::format("cannot write to standard output: {}", std::strerror(errno)));
}

}  // namespace

std::optional<std::string> try_write_file(const std::string& path, const std::string& text) {
  OutputTarget target;
  if (auto reason = open_target(path, Takes::kAMoment, target)) return reason;
  std::optional<std::string> reason = written(target.descriptor, text);
  // A pipe's reader that has seen enough is not an error.
  if (reason && errno == EPIPE && target.beside.empty()) reason.reset();
  return close_target(target, std::move(reason));
}

void write_file(const std::string& path, const std::string& text) {
  if (path == kStandardInput) {
    throw ConfigError(
        {"", "- is standard output, which already receives the result", "", "give a file name, or /dev/stdout"});
  }
  refuse_to_overwrite_input(path);
  if (const auto reason = try_write_file(path, text)) fail_to_write(path, *reason);
}

void require_writable(const std::string& path) {
  if (path.empty()) throw ConfigError({"", "the file's name is empty", "", "give a file name"});
  const auto fail = [&path](const std::string& reason) {
    throw EnvironmentError(fmt::format("cannot write {}: {}", path, reason));
  };
  if (const std::optional<int> descriptor = descriptor_named_by(path)) {
    const int flags = fcntl(*descriptor, F_GETFL);
    if (flags < 0) fail(std::strerror(errno));
    if ((flags & O_ACCMODE) == O_RDONLY) fail("it is open for reading only");
    return;
  }
  struct stat unused {};
  if (lstat(path.c_str(), &unused) != 0 && errno == ENAMETOOLONG) fail(std::strerror(errno));
  std::error_code code;
  const std::filesystem::path file = target_of(path);
  const bool exists = std::filesystem::exists(file, code);
  if (std::filesystem::is_directory(file, code)) fail("it is a directory");
  const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  if (!std::filesystem::is_directory(folder, code)) fail(fmt::format("folder {} does not exist", folder.string()));
  // Regular files are written under a temporary name and renamed; pipes and devices are written in place.
  const bool in_place = exists && !std::filesystem::is_regular_file(file, code);
  if (!in_place && access(folder.c_str(), W_OK) != 0) fail(std::strerror(errno));
  if (exists && access(file.c_str(), W_OK) != 0) fail(std::strerror(errno));
}

void write_output(const Streams& streams, const std::string& path, const std::string& text) {
  std::string output = text;
  if (!output.empty() && output.back() != '\n') output += '\n';
  // For outputs, the name of standard input ("-") means standard output.
  if (!path.empty() && path != kStandardInput) {
    write_file(path, output);
    return;
  }
  written_to_stream(streams.out, output);
}

OutputPieces::OutputPieces(const Streams& streams, const std::string& path) : streams_(streams), path_(path) {
  if (path.empty() || path == kStandardInput) return;
  refuse_to_overwrite_input(path);
  if (const auto reason = open_target(path, Takes::kLong, target_)) fail_to_write(path, *reason);
}

OutputPieces::~OutputPieces() {
  if (target_.descriptor >= 0) close_target(target_, "not finished");
}

void OutputPieces::flush() {
  const bool in_place = target_.beside.empty() && !target_.nameless;
  if (target_.descriptor < 0) {
    reader_left_ = reader_left_ || !written_to_stream(streams_.out, buffer_);
  } else if (const auto reason = written(target_.descriptor, buffer_)) {
    // Written in place, it may be a pipe whose reader can leave, as with standard output.
    if (!in_place || errno != EPIPE) fail_to_write(path_, *reason);
    reader_left_ = true;
  }
  buffer_.clear();
}

bool OutputPieces::write(std::string_view text) {
  constexpr std::size_t kPiece = std::size_t{1} << 16;
  buffer_ += text;
  if (buffer_.size() >= kPiece && !reader_left_) flush();
  return !reader_left_;
}

void OutputPieces::finish() {
  if (!reader_left_) flush();
  if (target_.descriptor < 0) return;
  if (const auto reason = close_target(target_, std::nullopt)) fail_to_write(path_, *reason);
}

PrivateFolder::PrivateFolder() {
  std::error_code code;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(code);
  if (code) throw EnvironmentError("no folder for temporary files: set TMPDIR to a writable folder");
  path_ = (parent / "flopcast-XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr)
    throw EnvironmentError(fmt::format("cannot create a folder in {}: {}", parent.string(), std::strerror(errno)));
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace flopcast
