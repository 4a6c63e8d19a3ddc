#include "calibrate/device/import/trace_events.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <istream>
#include <utility>
#include <vector>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

[[noreturn]] void fail(const std::string& where, const std::string& problem) {
  throw ConfigError(
      {"", problem, where, "expected a Chrome trace, such as torch.profiler's export_chrome_trace writes"});
}

// Builds one value at a time and hands it over; containers that nobody asked for are only counted.
class Splitter : public Json::json_sax_t {
 public:
  Splitter(const std::string& file, const TraceVisitor& visitor) : file_(file), visitor_(visitor) {}

  bool null() override { return take(nullptr); }
  bool boolean(bool value) override { return take(value); }
  bool number_integer(std::int64_t value) override { return take(value); }
  bool number_unsigned(std::uint64_t value) override { return take(value); }
  bool number_float(double value, const std::string&) override { return take(value); }
  bool string(std::string& value) override { return take(std::move(value)); }
  bool binary(Json::binary_t&) override { return true; }

  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }

  bool start_object(std::size_t) override { return start(Json::object()); }
  bool start_array(std::size_t) override { return start(Json::array()); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }

  bool parse_error(std::size_t position, const std::string&, const Json::exception& error) override {
    std::string text = error.what();
    // "[json.exception.parse_error.101] parse error at line 3, column 5: syntax error …"
    const std::size_t reason = text.find(": ");
    if (reason != std::string::npos) text.erase(0, reason + 2);
    fail(fmt::format("{}, byte {}", file_, position), text);
  }

  bool found_events() const { return found_; }

 private:
  bool take(Json value) {
    if (!building_.empty()) {
      insert(std::move(value));
    } else if (in_events_ && level_ == events_level_) {
      fail(place(), fmt::format("{} is no event", value.dump()));
    } else if (level_ == 0) {
      fail(file_, fmt::format("{} is no trace", value.dump()));
    } else if (level_ == 1 && key_ == "traceEvents") {
      fail(file_ + ":/traceEvents", "is no list");
    } else if (level_ == 1 && visitor_.member) {
      visitor_.member(key_, value);
    }
    return true;
  }

  bool start(Json container) {
    if (!building_.empty()) {
      constexpr std::size_t kDeepest = 16;
      if (building_.size() == kDeepest) fail(place(), "is nested too deeply");
      building_.push_back(insert(std::move(container)));
      return true;
    }
    const bool list = container.is_array();
    if (in_events_ && level_ == events_level_) {
      if (list) fail(place(), "is a list, no event");
      begin(std::move(container));
      return true;
    }
    const bool events = list && (level_ == 0 || (level_ == 1 && key_ == "traceEvents"));
    if (level_ == 1 && key_ == "traceEvents" && !list) fail(file_ + ":/traceEvents", "is no list");
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
    if (in_events_) {
      visitor_.event(value_, place());
      ++index_;
    } else if (visitor_.member) {
      visitor_.member(member_, value_);
    }
    return true;
  }

  void begin(Json container) {
    member_ = key_;
    value_ = std::move(container);
    building_ = {&value_};
  }

  // Pointers into the value stay good: only the last element of a list is ever built on.
  Json* insert(Json value) {
    Json& parent = *building_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    Json& member = parent[key_];
    member = std::move(value);
    return &member;
  }

  std::string place() const { return fmt::format("{}:/traceEvents/{}", file_, index_); }

  const std::string& file_;
  const TraceVisitor& visitor_;
  std::vector<Json*> building_;
  Json value_;
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
  Splitter splitter(file, visitor);
  Json::sax_parse(stream, &splitter);
  if (!splitter.found_events()) fail(file, "holds no traceEvents");
}

}  // namespace flopcast
