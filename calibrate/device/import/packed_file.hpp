#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <streambuf>
#include <string>

namespace flopcast {

/// Reads a file piece by piece, unpacking it where it is gzip; others are read as they are. Throws ConfigError when the
/// file is missing, damaged or cut off, or is gzip where the program was built without zlib.
class PackedFile : public std::streambuf {
 public:
  explicit PackedFile(const std::string& path);
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;
  PackedFile(PackedFile&&) = delete;
  PackedFile& operator=(PackedFile&&) = delete;
  ~PackedFile() override;

 protected:
  int_type underflow() override;

 private:
  struct Source;
  static constexpr std::size_t kPiece = 1 << 16;

  std::string path_;
  std::unique_ptr<Source> source_;
  std::array<char, kPiece> piece_{};
};

}  // namespace flopcast
