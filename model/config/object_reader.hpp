#pragma once

#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config/document.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// How strictly an object is read.
enum class JsonStyle {
  kOwn,      ///< flopcast's own files
  kData,     ///< tables of measurements: null counts as absent, 128.0 as an integer
  kForeign,  ///< other programs' files: "auto" is also absent, "True" a Boolean; errors name keys as in the file
};

/// Reads a JSON object key by key and reports errors with their location. Absent keys return nothing; wrong types and
/// ranges throw ConfigError. flopcast's own files may contain only keys that were asked for: `refuse_unknown_keys`
/// rejects any other and suggests the nearest known one.
class JsonReader {
 public:
  /// `field` is the object's dotted path, empty for the root. Throws if `object` is not a JSON object.
  JsonReader(const nlohmann::json& object, std::string field, const Origins& origins,
             JsonStyle style = JsonStyle::kOwn);
  /// Reader for another program's file; `pointer` is the object's JSON pointer, empty for the root.
  static JsonReader foreign(const nlohmann::json& object, std::string pointer, const std::string& file);

  bool has(std::string_view key) const;
  /// The raw value; null if absent.
  const nlohmann::json* find(std::string_view key);
  std::optional<int> whole(std::string_view key, int smallest, int largest = std::numeric_limits<int>::max());
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  /// A fraction above 0, up to `largest`.
  std::optional<double> fraction(std::string_view key, double largest);
  /// A non-negative number in the unit that the key names.
  std::optional<double> amount(std::string_view key);
  /// A string with a unit, or a bare number for dimensions that need none.
  std::optional<double> quantity(std::string_view key, Dimension dimension);
  std::optional<std::vector<int>> whole_list(std::string_view key, int smallest, int largest);
  /// The index of the value in `names`.
  std::optional<std::size_t> choice(std::string_view key, const std::vector<std::string>& names);
  std::optional<JsonReader> object(std::string_view key);
  /// A reader for each element of a list of objects; none if the key is absent.
  std::vector<JsonReader> objects(std::string_view key);

  /// Applies to flopcast's own files only; others may have any keys.
  void refuse_unknown_keys() const;
  /// The keys that were never asked for, spelled as in the object.
  std::vector<std::string> unread() const;
  const std::vector<std::string>& asked() const { return asked_; }
  const nlohmann::json& values() const { return object_; }

  std::string field_of(std::string_view key) const;
  /// "job.json:/layout/tp", "--tp".
  std::string place(std::string_view key) const;
  /// Location of the object itself.
  std::string place() const;
  /// JSON pointer of a foreign object or dotted path of our own; empty for the root.
  const std::string& pointer() const { return field_; }
  [[noreturn]] void fail(std::string_view key, const std::string& problem, const std::string& help) const;
  /// The error for a required key that is absent; for foreign files it suggests an unread key with a similar name.
  [[noreturn]] void fail_missing(std::string_view key, const std::string& help) const;

 private:
  JsonReader(const nlohmann::json& object, std::string pointer, const std::string& file);

  const nlohmann::json& object_;
  JsonStyle style_ = JsonStyle::kOwn;
  std::string field_;                  // the JSON pointer in a foreign file
  const Origins* origins_ = nullptr;   // own files only
  const std::string* file_ = nullptr;  // foreign files only
  std::vector<std::string> asked_;
};
using ObjectReader = JsonReader;

/// A value as shown in errors: its JSON, truncated if long.
std::string shown_value(const nlohmann::json& value);

}  // namespace flopcast
