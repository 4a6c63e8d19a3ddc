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

/// Which parts of some work a process does. Missing parts are dealt out like cards; a process whose own are done takes
/// those of the others from their ends, until nothing is missing. So nobody waits for a slow process, nor for one that
/// is lost; a part may be done twice, which changes nothing.
class Division {
 public:
  Division(const std::vector<std::size_t>& missing, int rank, int size);

  /// The next parts of this process that are still open, at most `most`, all of one process's; may be empty while some
  /// are left().
  std::vector<std::size_t> next(std::size_t most, const std::function<bool(std::size_t)>& is_open);
  bool left() const;
  /// Whether parts that were dealt to this process are left.
  bool own_left() const { return !hands_.front().empty(); }

 private:
  std::vector<std::vector<std::size_t>> hands_;  ///< its own first, then those of the following processes
};

/// The rows of unfinished work beside its output file: FILE.partial of a process alone, FILE.partial.rank-N of each of
/// several. A line for the question and one for each row, written whole and at once; a last line cut short by a kill
/// is computed again. Rows stay in the files: of each this holds 16 bytes, where it lies.
class PartialRows {
 public:
  PartialRows(const std::string& output, const nlohmann::json& question, std::optional<int> rank);
  PartialRows(const PartialRows&) = delete;
  PartialRows& operator=(const PartialRows&) = delete;
  PartialRows(PartialRows&&) = delete;
  PartialRows& operator=(PartialRows&&) = delete;
  ~PartialRows();

  /// Reads every process's file for the rows 0 … parts - 1. Those of another question throw ConfigError. What `is_row`
  /// denies, as an editor leaves it, counts as missing. `seen` is told every row that comes, from here, from refresh()
  /// and from append(); it may be empty. `clears` removes what a writer that was killed has left.
  void load(std::size_t parts, std::function<bool(const std::string& row)> is_row,
            std::function<void(std::size_t index, const std::string& row)> seen, bool clears);
  /// Opens the process's own file, after load().
  void open();
  /// Reads what others have appended since.
  void refresh();
  bool has(std::size_t index) const { return places_.at(index).file >= 0; }
  /// A row that has come. Nothing when it cannot be read back: somebody has changed or removed its file since.
  std::optional<std::string> row(std::size_t index);
  /// For several threads at once. Throws EnvironmentError.
  void append(std::size_t index, const std::string& row);
  /// Whether another process has written the output and removed the files.
  bool is_gone() const;
  /// Whether this process is to write the output; false when another has. Waits for one that is at it.
  bool claim() const;
  /// All rows are in the output now.
  void remove();

 private:
  struct Place {
    std::int32_t file = -1;  ///< in readers_
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
  };
  /// A file that was read: it stays open, so that its rows stay when another process removes it.
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
  std::size_t own_reader_ = 0;  ///< of the file that open() opened
  std::mutex mutex_;
};

/// The processes that answer a command together. They share nothing but files beside the output.
struct Crew {
  int rank = 0;
  int size = 1;
  bool shares = false;                 ///< started as one of several, even if as the only one
  std::function<void()> meet = [] {};  ///< returns when all have called it

  bool leads() const { return rank == 0; }
};

/// The rows beside the output file; null for a process alone without one, or that writes to a device. Several need one,
/// and throw ConfigError. The question is that of `command` with `words` about the job file.
std::unique_ptr<PartialRows> rows_beside(const std::optional<std::string>& output, const nlohmann::json& job,
                                         const std::string& command, const std::vector<std::string>& words,
                                         const Crew& crew);

/// A row, a JSON object on one line, for each part of some work.
struct SharedWork {
  std::size_t parts = 0;
  std::function<std::string(std::size_t part)> compute;
  /// Whether a row read from a file is one of this work.
  std::function<bool(const std::string& row)> is_row;
  std::function<void(std::size_t missing)> begins;  ///< may be empty
  /// Whether a row makes the parts after it needless; empty: none does.
  std::function<bool(const std::string& row)> ends;
};

/// Computes the rows that `rows` lacks, this process's part of them and then what is missing whoever's it was. Nothing
/// when another process writes the answer; else this one writes it, of so many parts, and calls rows.remove().
std::optional<std::size_t> answer_together(const SharedWork& work, PartialRows& rows, const Crew& crew,
                                           const ParallelFor& parallel_for, std::size_t threads);
/// A row of an answer; computed again where its file was changed since.
std::string answered_row(const SharedWork& work, PartialRows& rows, std::size_t part);

/// A loop over `threads` threads, which live until the loop is gone; serial for one. 0: one for each core.
ParallelFor threaded_for(int threads);

/// What --threads says, no more than `tasks` need; 0 where it is not given. Throws ConfigError.
int thread_count(const std::optional<int>& threads, std::size_t tasks);

/// What a search has found, as a line that another process reads back to the bit. `root` is the job file.
std::string write_part(const nlohmann::json& root, const SearchResult& result);
/// Nothing where the line is none.
std::optional<SearchResult> read_part(const nlohmann::json& root, const std::string& line);

}  // namespace flopcast
