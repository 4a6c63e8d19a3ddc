#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace flopcast {

/// The rows of unfinished work beside its output file: FILE.partial of a process alone, FILE.partial.rank-N of each of
/// several. A line for the question and one for each row, written whole and at once; a last line cut short by a kill
/// is computed again.
class PartialRows {
 public:
  PartialRows(const std::string& output, const nlohmann::json& question, std::optional<int> rank);
  PartialRows(const PartialRows&) = delete;
  PartialRows& operator=(const PartialRows&) = delete;
  PartialRows(PartialRows&&) = delete;
  PartialRows& operator=(PartialRows&&) = delete;
  ~PartialRows();

  /// Reads every process's file. Those of another question throw ConfigError. `clears` removes what a writer that was
  /// killed has left.
  void load(bool clears);
  /// Forgets rows that make no answer, as an editor leaves them: they are computed again.
  void keep(const std::function<bool(const nlohmann::ordered_json& row)>& is_whole);
  /// Opens the process's own file, after load().
  void open();
  /// Reads what others have appended since.
  void refresh();
  const std::map<std::size_t, nlohmann::ordered_json>& rows() const { return rows_; }
  /// For several threads at once. Throws EnvironmentError.
  void append(std::size_t index, const nlohmann::ordered_json& row);
  /// Whether another process has written the output and removed the files.
  bool is_gone() const;
  /// Whether this process is to write the output; false when another has. Waits for one that is at it.
  bool claim() const;
  /// All rows are in the output now.
  void remove();

 private:
  std::vector<std::filesystem::path> files() const;
  void read(const std::filesystem::path& file);

  std::filesystem::path output_;
  std::filesystem::path own_;
  std::filesystem::path writer_;
  std::string header_;
  std::map<std::size_t, nlohmann::ordered_json> rows_;
  std::map<std::filesystem::path, std::uint64_t> read_;  // bytes of whole lines
  std::FILE* stream_ = nullptr;
  std::mutex mutex_;
};

}  // namespace flopcast
