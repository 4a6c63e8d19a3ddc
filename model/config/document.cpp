#include "model/config/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

template <class Json>
HeldJson<Json>::HeldJson() = default;
template <class Json>
HeldJson<Json>::HeldJson(std::nullptr_t) {}
template <class Json>
HeldJson<Json>::HeldJson(Json value) : value_(std::make_unique<Json>(std::move(value))) {}
template <class Json>
HeldJson<Json>::HeldJson(bool value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(int value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(std::int64_t value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(double value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(std::string_view value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(const std::string& value) : HeldJson(Json(value)) {}
template <class Json>
HeldJson<Json>::HeldJson(const HeldJson& other)
    : value_(other.value_ == nullptr ? nullptr : std::make_unique<Json>(*other.value_)) {}
template <class Json>
HeldJson<Json>::HeldJson(HeldJson&& other) noexcept = default;
template <class Json>
HeldJson<Json>& HeldJson<Json>::operator=(const HeldJson& other) {
  return *this = HeldJson(other);
}
template <class Json>
HeldJson<Json>& HeldJson<Json>::operator=(HeldJson&& other) noexcept = default;
template <class Json>
HeldJson<Json>::~HeldJson() = default;

template <class Json>
HeldJson<Json> HeldJson<Json>::object() {
  return Json::object();
}

template <class Json>
Json& HeldJson<Json>::operator*() {
  if (value_ == nullptr) value_ = std::make_unique<Json>();
  return *value_;
}
template <class Json>
const Json& HeldJson<Json>::operator*() const {
  static const Json none;
  return value_ == nullptr ? none : *value_;
}

template <class Json>
Json& HeldJson<Json>::operator[](std::string_view key) {
  return (**this)[std::string(key)];
}
template <class Json>
const Json& HeldJson<Json>::at(std::string_view key) const {
  return (**this).at(std::string(key));
}
template <class Json>
bool HeldJson<Json>::contains(std::string_view key) const {
  return (**this).contains(key);
}

template <class Json>
bool HeldJson<Json>::equals(const Json& other) const {
  return **this == other;
}

template class HeldJson<nlohmann::json>;
template class HeldJson<nlohmann::ordered_json>;

namespace {

constexpr int kDeepestNesting = 64;
constexpr std::size_t kMostTreeBytes = std::size_t{256} << 20;  // some readers hold them twice

struct Position {
  std::size_t line = 1;
  std::size_t column = 1;
};

Position position_of(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  Position position;
  position.line = 1 + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t line_start = before.rfind('\n');
  position.column = line_start == std::string_view::npos ? before.size() + 1 : before.size() - line_start;
  return position;
}

// The parser's message without its exception number and position.
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  // In "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while …" only the last part
  // matters.
  std::size_t begin = text.find("] ");
  begin = begin == std::string::npos ? 0 : begin + 2;
  const std::size_t colon = text.find(": ", begin);
  if (text.compare(begin, 11, "parse error") == 0 && colon != std::string::npos) begin = colon + 2;
  std::string reason = text.substr(begin);
  // The parser quotes its input; control characters and broken UTF-8 must not reach a terminal.
  for (char& character : reason) {
    const unsigned char byte = static_cast<unsigned char>(character);
    if (byte < ' ' || byte > '~') character = '?';
  }
  constexpr std::size_t kLongestReason = 200;
  if (reason.size() > kLongestReason) reason = reason.substr(0, kLongestReason) + "…";
  return reason;
}

// Rejects what JSON itself allows: duplicate keys, unlimited nesting, and small files that become large trees (a list
// of digits needs 26 times its size). This is a separate pass, because the parser's callback interface rescans the
// whole list at the end of each object in it. Syntax errors are left to the parser.
class Watcher final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Watcher(std::string_view file) : file_(file) {}

  bool null() override { return hold(kValue); }
  bool boolean(bool /*value*/) override { return hold(kValue); }
  bool number_integer(number_integer_t /*value*/) override { return hold(kValue); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return hold(kValue); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return hold(kValue); }
  bool string(string_t& value) override { return hold(kValue + kText + value.size()); }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*count*/) override {
    enter(kObject);
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    hold(kMember + name.size());
    if (keys_.back().insert(name).second) return true;
    throw ConfigError({name, "is given twice in the same object", file_, "keep one of the two"});
  }
  bool end_object() override {
    --depth_;
    keys_.pop_back();
    return true;
  }
  bool start_array(std::size_t /*count*/) override {
    enter(kList);
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/,
                   const nlohmann::json::exception& /*error*/) override {
    return false;
  }

 private:
  // Heap bytes of the parsed values: a value (with the spare capacity of growing lists), the extra bytes of a text,
  // list and object, and a member of an object.
  static constexpr std::size_t kValue = 32;
  static constexpr std::size_t kText = 64;
  static constexpr std::size_t kList = 32;
  static constexpr std::size_t kObject = 64;
  static constexpr std::size_t kMember = 96;

  bool hold(std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ <= kMostTreeBytes) return true;
    throw ConfigError({"", fmt::format("the values in {} need more than {} MiB of memory", file_, kMostTreeBytes >> 20),
                       file_, "use a smaller part of it"});
  }

  void enter(std::size_t bytes) {
    hold(kValue + bytes);
    if (++depth_ <= kDeepestNesting) return;
    throw ConfigError({"", fmt::format("{} is nested deeper than {} levels", file_, kDeepestNesting), file_, ""});
  }

  std::string file_;
  int depth_ = 0;
  std::size_t bytes_ = 0;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

std::string dumped(const nlohmann::json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}
std::string dumped(const nlohmann::ordered_json& json, int indent) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string pointer_of(std::string_view field) {
  std::string pointer = "/" + std::string(field);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return field.empty() ? "" : pointer;
}

std::string Origins::where(std::string_view field) const {
  for (std::string_view name = field; !name.empty();) {
    const auto flag = flags.find(std::string(name));
    const auto section = section_files.find(std::string(name));
    if (section != section_files.end()) {
      const std::string_view inside = name.size() < field.size() ? field.substr(name.size() + 1) : std::string_view();
      return section->second + ":" + pointer_of(inside);
    }
    if (flag != flags.end()) return flag->second;
    const auto place = places.find(std::string(name));
    if (place != places.end()) return place->second;
    const std::size_t dot = name.rfind('.');
    name = dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
  }
  return file.empty() ? "" : file + ":" + pointer_of(field);
}

nlohmann::json parse_json(std::string_view text, std::string_view file) {
  const std::string name(file);
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw ConfigError({"", fmt::format("{} is empty", name), name, "expected a JSON object"});
  }
  Watcher watcher(file);
  nlohmann::json::sax_parse(text, &watcher, nlohmann::json::input_format_t::json, true, true);
  try {
    return nlohmann::json::parse(text, nullptr, true, true);
  } catch (const nlohmann::json::parse_error& error) {
    const Position position = position_of(text, error.byte > 0 ? error.byte - 1 : 0);
    throw ConfigError({"", fmt::format("{} is not valid JSON: {}", name, reason_of(error)),
                       fmt::format("{}:{}:{}", name, position.line, position.column), ""});
  } catch (const nlohmann::json::out_of_range& error) {
    throw ConfigError(
        {"", fmt::format("{} contains a number that is out of range: {}", name, reason_of(error)), name, ""});
  }
}

}  // namespace flopcast
