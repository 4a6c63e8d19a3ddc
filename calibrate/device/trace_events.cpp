#include "calibrate/device/imports.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <istream>
#include <system_error>
#include <utility>
#include <vector>

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
      refuse_at(path, "is damaged or cut off: it does not unpack to its end", "copy it again");
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
    if (file.peek() == kGzip) refuse_at(path, "is packed, and this program was built without zlib", "gunzip it first");
  }

  std::size_t read(char* to, std::size_t size, const std::string& path) {
    file.read(to, static_cast<std::streamsize>(size));
    if (file.bad()) refuse_at(path, "cannot be read to its end", "");
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

// Hands a stream on, and refuses a value that takes too much of it: a few packed bytes may unpack to anything.
class BoundedValues : public std::streambuf {
 public:
  BoundedValues(std::istream& stream, const std::string& file) : source_(*stream.rdbuf()), file_(file) {}
  /// A value is complete: the next one begins.
  void pass() { taken_ = 0; }

 protected:
  int_type underflow() override {
    constexpr std::size_t kLongestValue = std::size_t{16} << 20;
    const std::streamsize count = source_.sgetn(piece_.data(), static_cast<std::streamsize>(piece_.size()));
    if (count <= 0) return traits_type::eof();
    taken_ += static_cast<std::size_t>(count);
    if (taken_ > kLongestValue + piece_.size()) refuse_trace(file_, "holds a value of more than 16 MiB");
    setg(piece_.data(), piece_.data(), piece_.data() + count);
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  std::streambuf& source_;
  const std::string& file_;
  std::size_t taken_ = 0;
  std::array<char, std::size_t{1} << 16> piece_{};
};

// Builds one value at a time and hands it over; containers that nobody asked for are only counted.
class Splitter : public nlohmann::json::json_sax_t {
 public:
  Splitter(const std::string& file, const TraceVisitor& visitor, BoundedValues& values)
      : file_(file), visitor_(visitor), values_(values) {}

  bool null() override { return take(nullptr); }
  bool boolean(bool value) override { return take(value); }
  bool number_integer(std::int64_t value) override { return take(value); }
  bool number_unsigned(std::uint64_t value) override { return take(value); }
  bool number_float(double value, const std::string&) override { return take(value); }
  bool string(std::string& value) override { return take(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return true; }

  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override { return start(nlohmann::json::object()); }
  bool start_array(std::size_t) override { return start(nlohmann::json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& error) override {
    std::string text = error.what();
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error …"
    const std::size_t reason = text.find(": ");
    if (reason != std::string::npos) text.erase(0, reason + 2);
    refuse_trace(fmt::format("{}, byte {}", file_, position), text);
  }

  bool found_events() const { return found_; }

 private:
  bool take(nlohmann::json value) {
    if (building_.empty()) values_.pass();
    if (!building_.empty()) {
      insert(std::move(value));
    } else if (in_events_ && level_ == events_level_) {
      refuse_trace(place(), fmt::format("{} is no event", value.dump()));
    } else if (level_ == 0) {
      refuse_trace(file_, fmt::format("{} is no trace", value.dump()));
    } else if (level_ == 1 && key_ == "traceEvents") {
      refuse_trace(file_ + ":/traceEvents", "is no list");
    } else if (level_ == 1 && visitor_.member) {
      visitor_.member(key_, value);
    }
    return true;
  }

  bool start(nlohmann::json container) {
    if (building_.empty()) values_.pass();
    if (!building_.empty()) {
      constexpr std::size_t kDeepest = 16;
      if (building_.size() == kDeepest) refuse_trace(place(), "is nested too deeply");
      building_.push_back(insert(std::move(container)));
      return true;
    }
    const bool list = container.is_array();
    if (in_events_ && level_ == events_level_) {
      if (list) refuse_trace(place(), "is a list, no event");
      begin(std::move(container));
      return true;
    }
    const bool events = list && (level_ == 0 || (level_ == 1 && key_ == "traceEvents"));
    if (level_ == 1 && key_ == "traceEvents" && !list) refuse_trace(file_ + ":/traceEvents", "is no list");
    if (level_ == 1 && !events && (key_ == "deviceProperties" || key_ == "distributedInfo")) {
      begin(std::move(container));
      return true;
    }
    ++level_;
    if (!events) return true;
    in_events_ = found_ = true;
    events_level_ = level_;
    return true;
  }

  bool end() {
    if (building_.empty()) {
      if (in_events_ && level_ == events_level_) in_events_ = false;
      --level_;
      return true;
    }
    building_.pop_back();
    if (!building_.empty()) return true;
    values_.pass();
    if (in_events_) {
      visitor_.event(value_, place());
      ++index_;
    } else if (visitor_.member) {
      visitor_.member(member_, value_);
    }
    return true;
  }

  void begin(nlohmann::json container) {
    member_ = key_;
    value_ = std::move(container);
    building_ = {&value_};
  }

  // Pointers into the value stay good: only the last element of a list is ever built on.
  nlohmann::json* insert(nlohmann::json value) {
    nlohmann::json& parent = *building_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    nlohmann::json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  std::string place() const { return fmt::format("{}:/traceEvents/{}", file_, index_); }

  const std::string& file_;
  const TraceVisitor& visitor_;
  BoundedValues& values_;
  std::vector<nlohmann::json*> building_;
  nlohmann::json value_;
  std::string key_;
  std::string member_;
  int level_ = 0;
  int events_level_ = 0;
  bool in_events_ = false;
  bool found_ = false;
  std::size_t index_ = 0;
};

}  // namespace

void read_trace_events(std::istream& stream, const std::string& file, const TraceVisitor& visitor) {
  BoundedValues values(stream, file);
  std::istream bounded(&values);
  bounded.exceptions(std::ios::badbit);  // a refusal passes through
  Splitter splitter(file, visitor, values);
  nlohmann::json::sax_parse(bounded, &splitter);
  if (!splitter.found_events()) refuse_trace(file, "holds no traceEvents");
}

}  // namespace flopcast
