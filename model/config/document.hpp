#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace flopcast {

/// A JSON value for structs whose headers do not include the JSON library. Copies are deep; an empty or moved-from
/// value is null JSON. Constructors and conversions are implicit, as in the JSON library itself.
// NOLINTBEGIN(google-explicit-constructor, hicpp-explicit-conversions)
template <class Json>
class HeldJson {
 public:
  HeldJson();
  HeldJson(std::nullptr_t);
  HeldJson(Json value);
  HeldJson(bool value);
  HeldJson(int value);
  HeldJson(std::int64_t value);
  HeldJson(double value);
  HeldJson(std::string_view value);
  HeldJson(const std::string& value);
  HeldJson(const HeldJson& other);
  HeldJson(HeldJson&& other) noexcept;
  HeldJson& operator=(const HeldJson& other);
  HeldJson& operator=(HeldJson&& other) noexcept;
  ~HeldJson();

  /// An object without members.
  static HeldJson object();

  Json& operator*();
  const Json& operator*() const;
  Json* operator->() { return &**this; }
  const Json* operator->() const { return &**this; }
  operator Json&() { return **this; }
  operator const Json&() const { return **this; }

  /// As in the JSON library: the member, created if absent.
  Json& operator[](std::string_view key);
  /// A member that must exist.
  const Json& operator[](std::string_view key) const { return at(key); }
  const Json& at(std::string_view key) const;
  bool contains(std::string_view key) const;

  friend bool operator==(const HeldJson& one, const Json& other) { return one.equals(other); }
  friend bool operator==(const HeldJson& one, const HeldJson& other) { return one.equals(*other); }

 private:
  bool equals(const Json& other) const;

  std::unique_ptr<Json> value_;  ///< null: null JSON
};
// NOLINTEND(google-explicit-constructor, hicpp-explicit-conversions)
using JsonValue = HeldJson<nlohmann::json>;
using OrderedJsonValue = HeldJson<nlohmann::ordered_json>;

/// Where each value of a configuration came from, so that errors can point at it.
struct Origins {
  std::string file;                                  ///< empty if everything came from flags
  std::map<std::string, std::string> flags;          ///< field ("layout.tp") -> the flag that set it ("--tp")
  std::map<std::string, std::string> section_files;  ///< "model" -> the file that its keys were read from
  std::map<std::string, std::string> places;         ///< field -> its location in another program's file

  /// "--tp", "job.json:/layout/tp", or empty if the location is unknown. A field inside one that a flag set belongs to
  /// that flag.
  std::string where(std::string_view field) const;
};

/// Parses JSON with // and /* */ comments. Rejects duplicate keys, nesting deeper than 64, numbers out of range, and
/// files whose values would need more than 256 MiB once parsed. Throws ConfigError with `file:line:column`.
nlohmann::json parse_json(std::string_view text, std::string_view file);

/// JSON as text. Other programs' files and file names need not be UTF-8; invalid bytes become U+FFFD.
std::string dumped(const nlohmann::json& json, int indent = -1);
std::string dumped(const nlohmann::ordered_json& json, int indent = -1);

/// "layout.tp" -> "/layout/tp".
std::string pointer_of(std::string_view field);

}  // namespace flopcast
