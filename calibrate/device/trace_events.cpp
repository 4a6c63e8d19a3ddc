#include "calibrate/device/imports.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <istream>
#include <system_error>

#include "base/text/error.hpp"

#ifdef FLOPCAST_HAS_ZLIB
#include <zlib.h>
#endif

namespace flopcast {

namespace {

void require_file(const std::string& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) refuse_at(path, "no such file", "");
  if (std::filesystem::is_directory(path, code)) refuse_at(path, "is a directory", "");
}

}  // namespace

#ifdef FLOPCAST_HAS_ZLIB

struct PackedFile::Source {
  explicit Source(const std::string& path) : file(gzopen(path.c_str(), "rb")) {
    if (file == nullptr) refuse_at(path, "cannot be read", "");
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
      refuse_at(path, "is damaged or truncated: decompression failed before its end", "copy it again");
    }
    return static_cast<std::size_t>(count);
  }

  gzFile file;
};

#else

struct PackedFile::Source {
  explicit Source(const std::string& path) : file(path, std::ios::binary) {
    if (!file) refuse_at(path, "cannot be read", "");
    constexpr int kGzip = 0x1f;
    if (file.peek() == kGzip)
      refuse_at(path, "is gzip, but this program was built without zlib", "decompress it first with gunzip");
  }

  std::size_t read(char* to, std::size_t size, const std::string& path) {
    file.read(to, static_cast<std::streamsize>(size));
    if (file.bad()) refuse_at(path, "could not be read to its end", "");
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

namespace {

[[noreturn]] void refuse_trace(const std::string& where, const std::string& problem) {
  throw ConfigError(
      {"", problem, where, "expected a Chrome trace, such as torch.profiler's export_chrome_trace writes"});
}

// Passes a stream through and rejects values that are too long: a few compressed bytes may expand to any size.
class BoundedValues : public std::streambuf {
 public:
  BoundedValues(std::istream& stream, const std::string& file) : source_(*stream.rdbuf()), file_(file) {}
  /// Marks the end of a value: the next one begins.
  void pass() { taken_ = 0; }

 protected:
  int_type underflow() override {
    constexpr std::size_t kLongestValue = std::size_t{16} << 20;
    const std::streamsize count = source_.sgetn(piece_.data(), static_cast<std::streamsize>(piece_.size()));
    if (count <= 0) return traits_type::eof();
    taken_ += static_cast<std::size_t>(count);
    if (taken_ > kLongestValue + piece_.size()) refuse_trace(file_, "contains a value of more than 16 MiB");
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  std::streambuf& source_;
  const std::string& file_;
  std::size_t taken_ = 0;
  std::array<char, std::size_t{1} << 16> piece_{};
};

// Passes each event, and each top-level member that a visitor may need, to the visitor and drops it from the parsed
// document.
class Splitter {
 public:
  using Json = nlohmann::json;
  using Event = Json::parse_event_t;

  Splitter(const std::string& file, const TraceVisitor& visitor, BoundedValues& values)
      : file_(file), visitor_(visitor), values_(values) {}

  /// Returns true if the value is kept as part of the enclosing one.
  bool take(int depth, Event event, const Json& value) {
    const bool is_list = event == Event::array_start || event == Event::array_end;
    const bool starts = event == Event::object_start || event == Event::array_start;
    if (event == Event::key) {
      if (depth == 1) key_ = value.get<std::string>();
      return true;
    }
    if (depth == 0 && event == Event::value) refuse_trace(file_, fmt::format("{} is not a trace", value.dump()));
    const bool holds_events = is_list && (depth == 0 || (depth == 1 && events_depth_ != 1 && key_ == "traceEvents"));
    if (holds_events) {
      events_depth_ = starts ? depth + 1 : 0;
      found_ = true;
    }
    if (depth == 0 || holds_events) return starts;
    if (events_depth_ > 0) return take_in_event(depth - events_depth_, event, value, starts);
    if (depth == 1 && key_ == "traceEvents") refuse_trace(file_ + ":/traceEvents", "is not a list");
    const bool wanted = key_ == "deviceProperties" || key_ == "distributedInfo";
    if (depth == 1 || !wanted) values_.pass();
    if (depth > 1 || starts) return wanted || starts;
    if (visitor_.member && (wanted || event == Event::value)) visitor_.member(key_, value);
    return false;
  }

  bool found_events() const { return found_; }

 private:
  bool take_in_event(int depth, Event event, const Json& value, bool starts) {
    constexpr int kDeepest = 16;
    if (starts && depth == kDeepest) refuse_trace(place(), "is nested too deeply");
    if (depth > 0) return true;
    values_.pass();
    if (event == Event::value) refuse_trace(place(), fmt::format("{} is not an event", value.dump()));
    if (event == Event::array_start) refuse_trace(place(), "is a list, not an event");
    if (starts) return true;
    visitor_.event(value, place());
    ++index_;
    return false;
  }

  std::string place() const { return fmt::format("{}:/traceEvents/{}", file_, index_); }

  const std::string& file_;
  const TraceVisitor& visitor_;
  BoundedValues& values_;
  std::string key_;       // of the current top-level member
  int events_depth_ = 0;  // depth of the events; 0: outside their list
  bool found_ = false;
  std::size_t index_ = 0;
};

}  // namespace

void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor) {
  BoundedValues values(stream, file);
  std::istream bounded(&values);
  bounded.exceptions(std::ios::badbit);  // lets a ConfigError pass through
  Splitter splitter(file, visitor, values);
  try {
    [[maybe_unused]] const auto rest =
        nlohmann::json::parse(bounded, [&splitter](int depth, Splitter::Event event, const nlohmann::json& value) {
          return splitter.take(depth, event, value);
        });
  } catch (const nlohmann::json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error …"
    const std::string text = error.what();
    const std::size_t reason = text.find(": ");
    const auto* parsing = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    refuse_trace(parsing == nullptr ? file : fmt::format("{}, byte {}", file, parsing->byte),
                 reason == std::string::npos ? text : text.substr(reason + 2));
  }
  if (!splitter.found_events()) refuse_trace(file, "contains no traceEvents");
}

}  // namespace flopcast
