#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/imported_job.hpp"

namespace flopcast {

/// One JSON object of another program's file, read as tolerantly as that program does: whole numbers may be written
/// 5e8, null and "auto" count as absent. Keys that were never asked for are told at the end as having no effect.
class ForeignObject {
 public:
  /// `pointer` is the object's JSON pointer, empty for the root. Throws when `object` is no object.
  ForeignObject(const nlohmann::json& object, std::string pointer, const std::string& file);

  bool has(std::string_view key) const;
  const nlohmann::json* find(std::string_view key);
  std::optional<int> whole(std::string_view key, int smallest);
  std::optional<double> number(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  std::optional<ForeignObject> object(std::string_view key);

  std::string place(std::string_view key) const;
  [[noreturn]] void fail(std::string_view key, const std::string& problem, const std::string& help) const;
  /// For a required key: names a key of the file that was probably meant.
  [[noreturn]] void fail_missing(std::string_view key, const std::string& help) const;

  /// Tells that a key was read and changes nothing, when it is there.
  void has_no_effect(std::string_view key, const std::string& why, ImportedJob& imported);
  /// One note that names every key that was not asked for.
  void note_unread(ImportedJob& imported) const;
  /// One note that names every key whose value is "auto".
  void note_auto(ImportedJob& imported) const;

 private:
  const nlohmann::json& object_;
  std::string pointer_;
  const std::string& file_;
  std::vector<std::string> asked_;
};

/// A value as complaints show it.
std::string shown_value(const nlohmann::json& value);

}  // namespace flopcast
