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
  kOwn,      ///< as flopcast's files are written
  kData,     ///< tables of measurements: null counts as absent, 128.0 is whole
  kForeign,  ///< other programs' files: also "auto" is absent, "True" a boolean; complaints name keys as written there
};

/// Reads one JSON object key by key, with located errors. Absent keys give nothing; wrong types and ranges throw
/// ConfigError. Our own files must have every key asked for: `refuse_unknown_keys` complains about the rest and offers
/// the nearest known one.
class JsonReader {
 public:
  /// `field` is the object's dotted path, empty for the root. Throws when `object` is no JSON object.
  JsonReader(const nlohmann::json& object, std::string field, const Origins& origins,
             JsonStyle style = JsonStyle::kOwn);
  /// Of another program's file; `pointer` is the object's JSON pointer, empty for the root.
  static JsonReader foreign(const nlohmann::json& object, std::string pointer, const std::string& file);

  bool has(std::string_view key) const;
  /// The raw value; null when absent.
  const nlohmann::json* find(std::string_view key);
  std::optional<int> whole(std::string_view key, int smallest, int largest = std::numeric_limits<int>::max());
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  /// A share between 0 (excluded) and 1, or up to `largest`.
  std::optional<double> fraction(std::string_view key, double largest);
  /// A number of 0 or more, in the unit that the key names.
  std::optional<double> amount(std::string_view key);
  /// A string with a unit, or a bare number for dimensions that need none.
  std::optional<double> quantity(std::string_view key, Dimension dimension);
  std::optional<std::vector<int>> whole_list(std::string_view key, int smallest, int largest);
  /// The index of the value in `names`.
  std::optional<std::size_t> choice(std::string_view key, const std::vector<std::string>& names);
  std::optional<JsonReader> object(std::string_view key);
  /// Of each element of a list of objects; none where the key is absent.
  std::vector<JsonReader> objects(std::string_view key);

  /// Of our own files; others may have any.
  void refuse_unknown_keys() const;
  /// The keys that were never asked for, as the object has them.
  std::vector<std::string> unread() const;
  const std::vector<std::string>& asked() const { return asked_; }
  const nlohmann::json& values() const { return object_; }

  std::string field_of(std::string_view key) const;
  /// "job.json:/layout/tp", "--tp".
  std::string place(std::string_view key) const;
  /// Of the object itself.
  std::string place() const;
  /// Of a foreign object its pointer in the file, of our own its dotted path; empty for the root.
  const std::string& pointer() const { return field_; }
  [[noreturn]] void fail(std::string_view key, const std::string& problem, const std::string& help) const;
  /// The error for a required key that is absent; of a foreign file it names a key that was probably meant.
  [[noreturn]] void fail_missing(std::string_view key, const std::string& help) const;

 private:
  JsonReader(const nlohmann::json& object, std::string pointer, const std::string& file);

  const nlohmann::json& object_;
  JsonStyle style_ = JsonStyle::kOwn;
  std::string field_;                  // of a foreign file the pointer
  const Origins* origins_ = nullptr;   // of our own
  const std::string* file_ = nullptr;  // a foreign one
  std::vector<std::string> asked_;
};
using ObjectReader = JsonReader;

/// A value as complaints show it: its JSON, the beginning of a long one.
std::string shown_value(const nlohmann::json& value);

}  // namespace flopcast
