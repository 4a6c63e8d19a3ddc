#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <memory>
#include <nlohmann/json_fwd.hpp>
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

/// What a Chrome trace is made of, in the order of the file. `place` is "run.json:/traceEvents/17".
struct TraceVisitor {
  std::function<void(const nlohmann::json& event, const std::string& place)> event;
  /// A member of the file beside its events, such as "deviceProperties".
  std::function<void(const std::string& key, const nlohmann::json& value)> member;
};

/// Reads the JSON object format (events in "traceEvents") or the array format of Chrome traces, one event at a time: a
/// file of gigabytes takes the memory of its largest event. Throws ConfigError: what is no JSON, with its place; events
/// that are no objects or are nested deeper than 16; a file without events.
void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor);

}  // namespace flopcast
