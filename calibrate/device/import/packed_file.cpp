#include "calibrate/device/import/packed_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <system_error>

#ifdef FLOPCAST_HAS_ZLIB
#include <zlib.h>
#endif

#include "model/error/error.hpp"

namespace flopcast {

namespace {

[[noreturn]] void fail(const std::string& path, const std::string& problem, const std::string& help) {
  throw ConfigError({"", problem, path, help});
}

void require_file(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) fail(path, "no such file", "");
  if (std::filesystem::is_directory(path, code)) fail(path, "is a directory", "");
}

}  // namespace

#ifdef FLOPCAST_HAS_ZLIB

struct PackedFile::Source {
  explicit Source(const std::string& path) : file(gzopen(path.c_str(), "rb")) {
    if (file == nullptr) fail(path, "cannot be read", "");
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  Source(Source&&) = delete;
  Source& operator=(Source&&) = delete;
  ~Source() { gzclose_r(file); }

  std::size_t read(char* to, std::size_t size, const std::string& path) const {
    const int count = gzread(file, to, static_cast<unsigned>(size));
    int code = Z_OK;
    gzerror(file, &code);
    // Z_BUF_ERROR: the file ends inside a block.
    if (count < 0 || code == Z_BUF_ERROR) {
      fail(path, "is damaged or cut off: it does not unpack to its end", "copy it again");
    }
    return static_cast<std::size_t>(count);
  }

  gzFile file;
};

#else

struct PackedFile::Source {
  explicit Source(const std::string& path) : file(path, std::ios::binary) {
    if (!file) fail(path, "cannot be read", "");
    constexpr int kGzip = 0x1f;
    if (file.peek() == kGzip) fail(path, "is packed, and this program was built without zlib", "gunzip it first");
  }

  std::size_t read(char* to, std::size_t size, const std::string& path) {
    file.read(to, static_cast<std::streamsize>(size));
    if (file.bad()) fail(path, "cannot be read to its end", "");
    return static_cast<std::size_t>(file.gcount());
  }

  std::ifstream file;
};

#endif

PackedFile::PackedFile(const std::string& path) : path_(path) {
  require_file(path);
  source_ = std::make_unique<Source>(path);
}

PackedFile::~PackedFile() = default;

PackedFile::int_type PackedFile::underflow() {
  const std::size_t count = source_->read(piece_.data(), piece_.size(), path_);
  if (count == 0) return traits_type::eof();
  setg(piece_.data(), piece_.data(), piece_.data() + count);
  return traits_type::to_int_type(piece_[0]);
}

}  // namespace flopcast
