#pragma once

#include <cstddef>
#include <cstdio>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

namespace flopcast {

/// The rows of an unfinished sweep beside its output file: FILE.partial, a line for the question and one for each row.
/// A row is written whole and at once; a last line cut short by a kill is computed again.
class SweepFile {
 public:
  /// Opens FILE.partial. Rows of the same question that it holds are kept; another question's throw ConfigError.
  SweepFile(const std::string& output, const nlohmann::json& question);
  SweepFile(const SweepFile&) = delete;
  SweepFile& operator=(const SweepFile&) = delete;
  SweepFile(SweepFile&&) = delete;
  SweepFile& operator=(SweepFile&&) = delete;
  ~SweepFile();

  const std::map<std::size_t, nlohmann::ordered_json>& rows() const { return rows_; }
  /// For several threads at once. Throws EnvironmentError.
  void append(std::size_t index, const nlohmann::ordered_json& row);
  /// All rows are in the output now.
  void remove();

 private:
  std::string path_;
  std::map<std::size_t, nlohmann::ordered_json> rows_;
  std::FILE* stream_ = nullptr;
  std::mutex mutex_;
};

}  // namespace flopcast
