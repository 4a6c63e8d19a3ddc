#include "model/config/object_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

constexpr const char* kAuto = "auto";
// In YAML, quoted Booleans are texts.
constexpr std::array<const char*, 2> kTrue = {"true", "True"};
constexpr std::array<const char*, 2> kFalse = {"false", "False"};

bool is_absent(const nlohmann::json& value, JsonStyle style) {
  return style != JsonStyle::kOwn && (value.is_null() || (style == JsonStyle::kForeign && value == kAuto));
}

std::string example_of(Dimension dimension) {
  switch (dimension) {
    case Dimension::kBytes:
      return "a size such as \"80GiB\"";
    case Dimension::kBandwidth:
      return "a rate such as \"450GB/s\"";
    case Dimension::kTime:
      return "a time such as \"5us\"";
    case Dimension::kFlopRate:
      return "a rate such as \"312TFLOP/s\"";
    case Dimension::kCount:
      return "a count such as \"300B\"";
    case Dimension::kMoney:
      return "an amount such as \"2.5\"";
    case Dimension::kPower:
      return "a power such as \"400W\"";
    case Dimension::kFrequency:
      return "a clock such as \"1410MHz\"";
  }
  return "";
}

}  // namespace

std::string shown_value(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

JsonReader::JsonReader(const nlohmann::json& object, std::string field, const Origins& origins, JsonStyle style)
    : object_(object), style_(style), field_(std::move(field)), origins_(&origins) {
  if (object.is_object()) return;
  const std::string what = fmt::format("{} is not an object", shown_value(object));
  throw ConfigError({field_, what, place(), "expected { \"key\": value, … }"});
}

JsonReader::JsonReader(const nlohmann::json& object, std::string pointer, const std::string& file)
    : object_(object), style_(JsonStyle::kForeign), field_(std::move(pointer)), file_(&file) {
  if (object.is_object()) return;
  throw ConfigError({field_.empty() ? "" : field_.substr(1), fmt::format("{} is not an object", shown_value(object)),
                     fmt::format("{}:{}", file, field_), "expected { \"key\": value, … }"});
}

JsonReader JsonReader::foreign(const nlohmann::json& object, std::string pointer, const std::string& file) {
  return {object, std::move(pointer), file};
}

std::string JsonReader::field_of(std::string_view key) const {
  if (file_ != nullptr || field_.empty()) return std::string(key);
  return field_ + "." + std::string(key);
}

std::string JsonReader::place(std::string_view key) const {
  return file_ != nullptr ? fmt::format("{}:{}/{}", *file_, field_, key) : origins_->where(field_of(key));
}

std::string JsonReader::place() const {
  if (file_ == nullptr) return origins_->where(field_);
  return field_.empty() ? *file_ : fmt::format("{}:{}", *file_, field_);
}

void JsonReader::fail(std::string_view key, const std::string& problem, const std::string& help) const {
  throw ConfigError({field_of(key), problem, place(key), help});
}

void JsonReader::fail_missing(std::string_view key, const std::string& help) const {
  if (file_ == nullptr) throw ConfigError({field_of(key), "is required", origins_->file, help});
  const std::vector<std::string> near = nearest_choices(key, unread());
  if (near.empty()) throw ConfigError({std::string(key), "is required", place(), help});
  throw ConfigError({std::string(key), "is required", place(near.front()),
                     fmt::format("the file has \"{}\"; did you mean \"{}\"?", near.front(), key)});
}

bool JsonReader::has(std::string_view key) const {
  const auto entry = object_.find(std::string(key));
  return entry != object_.end() && !is_absent(*entry, style_);
}

const nlohmann::json* JsonReader::find(std::string_view key) {
  asked_.emplace_back(key);
  const auto entry = object_.find(std::string(key));
  return entry == object_.end() || is_absent(*entry, style_) ? nullptr : &*entry;
}

std::vector<std::string> JsonReader::unread() const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), item.key()) == asked_.end()) keys.push_back(item.key());
  }
  return keys;
}

std::optional<int> JsonReader::whole(std::string_view key, int smallest, int largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string range = fmt::format("expected a whole number from {} to {}", smallest, largest);
  const double number = value->is_number() ? value->get<double>() : 0.0;
  const bool is_whole =
      style_ == JsonStyle::kOwn ? value->is_number_integer() : value->is_number() && std::floor(number) == number;
  if (!is_whole) fail(key, fmt::format("{} is not a whole number", shown_value(*value)), range);
  if (number < smallest || number > largest) fail(key, fmt::format("{} is out of range", shown_value(*value)), range);
  return static_cast<int>(number);
}

std::optional<double> JsonReader::number(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(key, fmt::format("{} is not a number", shown_value(*value)), "");
  return value->get<double>();
}

std::optional<bool> JsonReader::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (style_ == JsonStyle::kForeign) {
    if (std::find(kTrue.begin(), kTrue.end(), *value) != kTrue.end()) return true;
    if (std::find(kFalse.begin(), kFalse.end(), *value) != kFalse.end()) return false;
  }
  if (!value->is_boolean())
    fail(key, fmt::format("{} is neither true nor false", shown_value(*value)), "valid: true, false");
  return value->get<bool>();
}

std::optional<std::string> JsonReader::text(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string())
    fail(key, fmt::format("{} is not a string", shown_value(*value)), "expected a string in quotes");
  if (value->get_ref<const std::string&>().find('\0') != std::string::npos)
    fail(key, "contains a NUL character", "expected a string without \\u0000");
  return value->get<std::string>();
}

std::optional<double> JsonReader::fraction(std::string_view key, double largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool valid = value->is_number() && value->get<double>() > 0 && value->get<double>() <= largest;
  if (!valid)
    fail(key, fmt::format("{} is {}", shown_value(*value), largest > 1.0 ? "out of range" : "not a valid fraction"),
         fmt::format("expected a number above 0, at most {}", largest));
  return value->get<double>();
}

std::optional<double> JsonReader::amount(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string expected = "expected a number of at least 0, in the unit named by the key";
  if (!value->is_number()) fail(key, fmt::format("{} is not a number", value->dump()), expected);
  const double number = value->get<double>();
  if (!std::isfinite(number) || number < 0) fail(key, fmt::format("{} is out of range", number), expected);
  return number;
}

std::optional<double> JsonReader::quantity(std::string_view key, Dimension dimension) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool needs_no_unit = dimension == Dimension::kCount || dimension == Dimension::kMoney;
  std::string help = "expected " + example_of(dimension);
  if (!needs_no_unit) help += "; units: " + accepted_units(dimension);
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number < 0) fail(key, fmt::format("{} is negative", shown_value(*value)), help);
    if (number != 0 && !needs_no_unit) fail(key, fmt::format("{} has no unit", shown_value(*value)), help);
    return number;
  }
  if (!value->is_string()) fail(key, fmt::format("{} is not a quantity", shown_value(*value)), help);
  const ParsedQuantity parsed = parse_quantity(value->get<std::string>(), dimension);
  if (!parsed.value) fail(key, fmt::format("{} {}", shown_value(*value), parsed.problem), help);
  return parsed.value;
}

std::optional<std::vector<int>> JsonReader::whole_list(std::string_view key, int smallest, int largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string help =
      fmt::format("expected a list of whole numbers from {} to {}, such as [3, 4, 4, 3]", smallest, largest);
  if (!value->is_array()) fail(key, fmt::format("{} is not a list", shown_value(*value)), help);
  std::vector<int> numbers;
  for (const nlohmann::json& element : *value) {
    const bool valid = element.is_number_integer() && element >= smallest && element <= largest;
    if (!valid) fail(key, fmt::format("{} is not a valid element", shown_value(element)), help);
    numbers.push_back(element.get<int>());
  }
  return numbers;
}

std::optional<std::size_t> JsonReader::choice(std::string_view key, const std::vector<std::string>& names) {
  const std::optional<std::string> word = text(key);
  if (!word) return std::nullopt;
  const auto match = std::find(names.begin(), names.end(), *word);
  if (match == names.end()) fail(key, fmt::format("unknown value {}", shown_value(*word)), choices_help(*word, names));
  return static_cast<std::size_t>(match - names.begin());
}

std::optional<JsonReader> JsonReader::object(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (file_ != nullptr) return foreign(*value, fmt::format("{}/{}", field_, key), *file_);
  return JsonReader(*value, field_of(key), *origins_, style_);
}

std::vector<JsonReader> JsonReader::objects(std::string_view key) {
  std::vector<JsonReader> readers;
  const nlohmann::json* list = find(key);
  if (list == nullptr) return readers;
  if (!list->is_array()) fail(key, fmt::format("{} is not a list", shown_value(*list)), "expected [{ … }, …]");
  for (std::size_t index = 0; index < list->size(); ++index) {
    if (file_ != nullptr) {
      readers.push_back(foreign((*list)[index], fmt::format("{}/{}/{}", field_, key, index), *file_));
    } else {
      readers.push_back(JsonReader((*list)[index], fmt::format("{}.{}", field_of(key), index), *origins_, style_));
    }
  }
  return readers;
}

void JsonReader::refuse_unknown_keys() const {
  if (style_ != JsonStyle::kOwn) return;
  const std::vector<std::string> unknown = unread();
  if (unknown.empty()) return;
  std::vector<std::string> known = asked_;
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  fail(unknown.front(), "unknown key", choices_help(unknown.front(), known));
}

}  // namespace flopcast
