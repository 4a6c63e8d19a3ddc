#include "model/config/object_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr std::size_t kLongestShownValue = 80;

std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongestShownValue) text = text.substr(0, kLongestShownValue) + "…";
  return text;
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
  }
  return "";
}

}  // namespace

ObjectReader::ObjectReader(const nlohmann::json& object, std::string field, const Origins& origins)
    : object_(object), field_(std::move(field)), origins_(origins) {
  if (object.is_object()) return;
  const std::string what = fmt::format("{} is not an object", shown(object));
  throw ConfigError({field_, what, origins.where(field_), "expected { \"key\": value, … }"});
}

std::string ObjectReader::field_of(std::string_view key) const {
  return field_.empty() ? std::string(key) : field_ + "." + std::string(key);
}

void ObjectReader::fail(std::string_view key, const std::string& problem, const std::string& help) const {
  const std::string field = field_of(key);
  throw ConfigError({field, problem, origins_.where(field), help});
}

void ObjectReader::fail_missing(std::string_view key, const std::string& help) const {
  throw ConfigError({field_of(key), "is required", origins_.file, help});
}

bool ObjectReader::has(std::string_view key) const {
  return object_.contains(std::string(key));
}

const nlohmann::json* ObjectReader::find(std::string_view key) {
  asked_.emplace_back(key);
  const auto entry = object_.find(std::string(key));
  return entry == object_.end() ? nullptr : &*entry;
}

std::optional<int> ObjectReader::whole(std::string_view key, int smallest, int largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string range = fmt::format("expected a whole number from {} to {}", smallest, largest);
  if (!value->is_number_integer()) fail(key, fmt::format("{} is not a whole number", shown(*value)), range);
  const bool fits = value->is_number_unsigned() ? value->get<std::uint64_t>() <= static_cast<std::uint64_t>(largest)
                                                : value->get<std::int64_t>() <= largest;
  if (!fits || value->get<std::int64_t>() < smallest)
    fail(key, fmt::format("{} is out of range", shown(*value)), range);
  return value->get<int>();
}

std::optional<bool> ObjectReader::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) fail(key, fmt::format("{} is neither true nor false", shown(*value)), "valid: true, false");
  return value->get<bool>();
}

std::optional<std::string> ObjectReader::text(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, fmt::format("{} is not a text", shown(*value)), "expected a text in quotes");
  return value->get<std::string>();
}

std::optional<double> ObjectReader::fraction(std::string_view key, double largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool valid = value->is_number() && value->get<double>() > 0 && value->get<double>() <= largest;
  if (!valid)
    fail(key, fmt::format("{} is no share", shown(*value)),
         fmt::format("expected a number above 0, at most {}", largest));
  return value->get<double>();
}

std::optional<double> ObjectReader::quantity(std::string_view key, Dimension dimension) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool needs_no_unit = dimension == Dimension::kCount || dimension == Dimension::kMoney;
  std::string help = "expected " + example_of(dimension);
  if (!needs_no_unit) help += "; units: " + accepted_units(dimension);
  if (value->is_number()) {
    const double number = value->get<double>();
    if (number < 0) fail(key, fmt::format("{} is negative", shown(*value)), help);
    if (number != 0 && !needs_no_unit) fail(key, fmt::format("{} has no unit", shown(*value)), help);
    return number;
  }
  if (!value->is_string()) fail(key, fmt::format("{} is no quantity", shown(*value)), help);
  const ParsedQuantity parsed = parse_quantity(value->get<std::string>(), dimension);
  if (!parsed.value) fail(key, fmt::format("{} {}", shown(*value), parsed.problem), help);
  return parsed.value;
}

std::optional<std::vector<int>> ObjectReader::whole_list(std::string_view key, int smallest, int largest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const std::string help =
      fmt::format("expected a list of whole numbers from {} to {}, such as [3, 4, 4, 3]", smallest, largest);
  if (!value->is_array()) fail(key, fmt::format("{} is not a list", shown(*value)), help);
  std::vector<int> numbers;
  for (const nlohmann::json& element : *value) {
    const bool valid = element.is_number_integer() && element >= smallest && element <= largest;
    if (!valid) fail(key, fmt::format("{} is not a valid element", shown(element)), help);
    numbers.push_back(element.get<int>());
  }
  return numbers;
}

std::optional<std::size_t> ObjectReader::choice(std::string_view key, const std::vector<std::string>& names) {
  const std::optional<std::string> word = text(key);
  if (!word) return std::nullopt;
  const auto match = std::find(names.begin(), names.end(), *word);
  if (match == names.end()) fail(key, fmt::format("unknown value {}", shown(*word)), choices_help(*word, names));
  return static_cast<std::size_t>(match - names.begin());
}

std::optional<ObjectReader> ObjectReader::object(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return ObjectReader(*value, field_of(key), origins_);
}

void ObjectReader::refuse_unknown_keys() const {
  for (const auto& item : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), item.key()) != asked_.end()) continue;
    std::vector<std::string> known = asked_;
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    fail(item.key(), "unknown key", choices_help(item.key(), known));
  }
}

}  // namespace flopcast
