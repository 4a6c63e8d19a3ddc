#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "planner/bounds/bounds.hpp"
#include "planner/search/search.hpp"

namespace flopcast {

/// Assigns parts of some work to processes. Missing parts are dealt out like cards; a process that has finished its own
/// parts takes those of the others, from their ends, until nothing is missing. So no process waits for one that is slow
/// or lost. A part may be computed twice, with the same result.
class Division {
 public:
  Division(const std::vector<std::size_t>& missing, int rank, int size);

  /// Returns up to `most` open parts, all dealt to the same process, this one's first. May be empty while left() is
  /// true.
  std::vector<std::size_t> next(std::size_t most, const std::function<bool(std::size_t)>& is_open);
  bool left() const;
  /// True if parts dealt to this process remain.
  bool own_left() const { return !hands_.front().empty(); }

 private:
  std::vector<std::vector<std::size_t>> hands_;  ///< own hand first, then those of the following processes
};

/// Rows of unfinished work in files next to the output file: FILE.partial for a single process, FILE.partial.rank-N for
/// each of several. Holds one line for the question and one for each row, each written in one call; a last line cut
/// short by a kill is computed again. Rows stay in the files: in memory a row takes 16 bytes, its location.
class PartialRows {
 public:
  PartialRows(const std::string& output, const nlohmann::json& question, std::optional<int> rank);
  PartialRows(const PartialRows&) = delete;
  PartialRows& operator=(const PartialRows&) = delete;
  PartialRows(PartialRows&&) = delete;
  PartialRows& operator=(PartialRows&&) = delete;
  ~PartialRows();

  /// Reads every process's file for the rows 0 … parts - 1. Rows of another question throw ConfigError. Rows that
  /// `is_row` rejects, such as ones damaged by an editor, count as missing. Calls `seen`, which may be empty, for every
  /// row from here, refresh() and append(). `clears` removes what a killed writer left behind.
  void load(std::size_t parts, std::function<bool(const std::string& row)> is_row,
            std::function<void(std::size_t index, const std::string& row)> seen, bool clears);
  /// Opens the process's own file, after load().
  void open();
  /// Reads the rows that others have appended since.
  void refresh();
  bool has(std::size_t index) const { return places_.at(index).file >= 0; }
  /// Returns a row that is present. Nothing if it cannot be read back because its file has been changed or removed
  /// since.
  std::optional<std::string> row(std::size_t index);
  /// Thread-safe. Throws EnvironmentError.
  void append(std::size_t index, const std::string& row);
  /// True if another process has written the output and removed the files.
  bool is_gone() const;
  /// True if this process is to write the output, false if another has. Waits for a process that is writing it.
  bool claim() const;
  /// Removes the files once all rows are in the output.
  void remove();

 private:
  struct Place {
    std::int32_t file = -1;  ///< index into readers_
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
  };
  /// A file that has been read. It stays open, so that its rows remain available when another process removes it.
  struct Reader {
    std::filesystem::path path;
    int descriptor = -1;
    std::uint64_t done = 0;  ///< bytes of whole lines
  };

  std::vector<std::filesystem::path> files() const;
  std::size_t reader_of(const std::filesystem::path& file);
  std::string text_at(std::size_t reader, std::uint64_t offset, std::size_t bytes) const;
  void read(const std::filesystem::path& file);
  void take_line(std::size_t reader, std::uint64_t offset, const std::string& line);

  std::filesystem::path output_;
  std::filesystem::path own_;
  std::filesystem::path writer_;
  std::string header_;
  std::function<bool(const std::string& row)> is_row_;
  std::function<void(std::size_t index, const std::string& row)> seen_;
  std::vector<Place> places_;
  std::vector<Reader> readers_;
  std::size_t own_reader_ = 0;  ///< reader of the file that open() opened
  std::mutex mutex_;
};

/// The processes that answer a command together. They share only files next to the output.
struct Crew {
  int rank = 0;
  int size = 1;
  bool shares = false;                 ///< started as one of several, even if it is the only one
  std::function<void()> meet = [] {};  ///< barrier: returns when all processes have called it

  bool leads() const { return rank == 0; }
};

/// Rows next to the output file. Null for a single process that has no output file or writes to a device. Several
/// processes require an output file, and throw ConfigError without one. The question is `command` with `words` about
/// the job file.
std::unique_ptr<PartialRows> open_partial_rows(const std::optional<std::string>& output, const nlohmann::json& job,
                                               const std::string& command, const std::vector<std::string>& words,
                                               const Crew& crew);

/// Work whose parts each yield a row, a JSON object on one line.
struct SharedWork {
  std::size_t parts = 0;
  std::function<std::string(std::size_t part)> compute;
  /// True if a row read from a file belongs to this work.
  std::function<bool(const std::string& row)> is_row;
  std::function<void(std::size_t missing)> begins;  ///< may be empty
  /// True if a row makes the parts after it unnecessary. Empty: no row does.
  std::function<bool(const std::string& row)> ends;
};

/// Computes the rows that `rows` lacks: this process's parts first, then any that are still missing. Returns nothing if
/// another process writes the answer; otherwise this process writes it, consisting of the returned number of parts, and
/// calls rows.remove().
std::optional<std::size_t> answer_together(const SharedWork& work, PartialRows& rows, const Crew& crew,
                                           const ParallelFor& parallel_for, std::size_t threads);
/// Returns a row of an answer, computed again if its file has changed since.
std::string answered_row(const SharedWork& work, PartialRows& rows, std::size_t part);

/// Returns a loop over `threads` threads, which live as long as the loop; serial for one thread. 0 means one thread per
/// core.
ParallelFor threaded_for(int threads);

/// Value of --threads, at most `tasks`; 0 if it is not given. Throws ConfigError.
int thread_count(const std::optional<int>& threads, std::size_t tasks);

/// Result of a search as a line that another process reads back exactly. `root` is the job file.
std::string write_part(const nlohmann::json& root, const SearchResult& result);
/// Returns nothing if the line is not such a result.
std::optional<SearchResult> read_part(const nlohmann::json& root, const std::string& line);

}  // namespace flopcast
