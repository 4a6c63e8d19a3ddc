#include "import/foreign_object.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr const char* kAuto = "auto";
// YAML leaves them a text when they are quoted.
constexpr std::array<const char*, 2> kTrue = {"true", "True"};
constexpr std::array<const char*, 2> kFalse = {"false", "False"};
constexpr std::size_t kLongestShownValue = 80;

bool is_absent(const nlohmann::json& value) {
  return value.is_null() || value == kAuto;
}

}  // namespace

std::string shown_value(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  if (text.size() > kLongestShownValue) text = text.substr(0, kLongestShownValue) + "…";
  return text;
}

ForeignObject::ForeignObject(const nlohmann::json& object, std::string pointer, const std::string& file)
    : object_(object), pointer_(std::move(pointer)), file_(file) {
  if (object.is_object()) return;
  throw ConfigError({pointer_.empty() ? "" : pointer_.substr(1),
                     fmt::format("{} is not an object", shown_value(object)), fmt::format("{}:{}", file, pointer_),
                     "expected { \"key\": value, … }"});
}

std::string ForeignObject::place(std::string_view key) const {
  return fmt::format("{}:{}/{}", file_, pointer_, key);
}

void ForeignObject::fail(std::string_view key, const std::string& problem, const std::string& help) const {
  throw ConfigError({std::string(key), problem, place(key), help});
}

void ForeignObject::fail_missing(std::string_view key, const std::string& help) const {
  std::vector<std::string> unread;
  for (const auto& item : object_.items()) {
    if (std::find(asked_.begin(), asked_.end(), item.key()) == asked_.end()) unread.push_back(item.key());
  }
  const std::vector<std::string> near = nearest_choices(key, unread);
  if (!near.empty()) {
    throw ConfigError({std::string(key), "is required", place(near.front()),
                       fmt::format("the file has \"{}\"; is \"{}\" meant?", near.front(), key)});
  }
  throw ConfigError({std::string(key), "is required", pointer_.empty() ? file_ : file_ + ":" + pointer_, help});
}

bool ForeignObject::has(std::string_view key) const {
  const auto entry = object_.find(std::string(key));
  return entry != object_.end() && !is_absent(*entry);
}

const nlohmann::json* ForeignObject::find(std::string_view key) {
  asked_.emplace_back(key);
  const auto entry = object_.find(std::string(key));
  return entry == object_.end() || is_absent(*entry) ? nullptr : &*entry;
}

std::optional<double> ForeignObject::number(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) fail(key, fmt::format("{} is not a number", shown_value(*value)), "");
  return value->get<double>();
}

std::optional<int> ForeignObject::whole(std::string_view key, int smallest) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  constexpr int kLargest = std::numeric_limits<int>::max();
  const std::string range = fmt::format("expected a whole number from {} to {}", smallest, kLargest);
  const bool whole = value->is_number() && std::floor(value->get<double>()) == value->get<double>();
  if (!whole) fail(key, fmt::format("{} is not a whole number", shown_value(*value)), range);
  const double number = value->get<double>();
  if (number < smallest || number > kLargest) fail(key, fmt::format("{} is out of range", shown_value(*value)), range);
  return static_cast<int>(number);
}

std::optional<bool> ForeignObject::boolean(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  for (const bool choice : {true, false}) {
    for (const char* written : choice ? kTrue : kFalse) {
      if (*value == written) return choice;
    }
  }
  if (!value->is_boolean()) {
    fail(key, fmt::format("{} is neither true nor false", shown_value(*value)), "valid: true, false");
  }
  return value->get<bool>();
}

std::optional<std::string> ForeignObject::text(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, fmt::format("{} is not a text", shown_value(*value)), "expected a text in quotes");
  return value->get<std::string>();
}

std::optional<ForeignObject> ForeignObject::object(std::string_view key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  return ForeignObject(*value, fmt::format("{}/{}", pointer_, key), file_);
}

void ForeignObject::has_no_effect(std::string_view key, const std::string& why, ImportedJob& imported) {
  if (find(key) == nullptr) return;
  imported.notes.push_back(fmt::format("{}: no effect: {}", place(key), why));
}

void ForeignObject::note_unread(ImportedJob& imported) const {
  std::vector<std::string> unread;
  for (const auto& item : object_.items()) {
    const bool asked = std::find(asked_.begin(), asked_.end(), item.key()) != asked_.end();
    if (!asked) unread.push_back(item.key());
    // A slip of the pen in an optional key must not go by as one of many without effect.
    const std::vector<std::string> near = asked ? std::vector<std::string>() : nearest_choices(item.key(), asked_);
    const auto slip = std::find_if(near.begin(), near.end(), [this, &item](const std::string& name) {
      const std::size_t longer = std::max(name.size(), item.key().size());
      const std::size_t shorter = std::min(name.size(), item.key().size());
      constexpr std::size_t kLongestSlip = 2;
      constexpr std::size_t kSameStart = 2;
      return longer - shorter <= kLongestSlip && name.substr(0, kSameStart) == item.key().substr(0, kSameStart) &&
             !object_.contains(name);
    });
    if (slip != near.end()) {
      imported.warnings.push_back(fmt::format("{}: unknown key; is \"{}\" meant?", place(item.key()), *slip));
    }
  }
  if (unread.empty()) return;
  const std::string where = pointer_.empty() ? file_ : fmt::format("{}:{}", file_, pointer_);
  imported.notes.push_back(fmt::format("{}: no effect on the forecast: {}", where, fmt::join(unread, ", ")));
}

void ForeignObject::note_auto(ImportedJob& imported) const {
  std::vector<std::string> keys;
  for (const auto& item : object_.items()) {
    if (item.value() == kAuto) keys.push_back(item.key());
  }
  if (keys.empty()) return;
  const std::string where = pointer_.empty() ? file_ : fmt::format("{}:{}", file_, pointer_);
  imported.notes.push_back(fmt::format("{}: \"auto\" counts as not set: {}", where, fmt::join(keys, ", ")));
}

}  // namespace flopcast
