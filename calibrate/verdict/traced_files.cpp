#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/verdict/verdict.hpp"

#ifdef FLOPCAST_HAS_SQLITE
#include <sqlite3.h>
#endif

namespace flopcast {

#ifdef FLOPCAST_HAS_SQLITE

namespace {

constexpr double kNanoseconds = 1e-9;

class Database {
 public:
  explicit Database(const std::string& path) : path_(path) {
    // Immutable: SQLite neither looks for nor creates journal files next to it.
    std::string uri = path.compare(0, 1, "/") == 0 ? "file://" : "file:";  // a second slash would begin a host name
    for (const char letter : path) {
      if (letter == '?' || letter == '#' || letter == '%') {
        uri += fmt::format("%{:02x}", static_cast<unsigned>(letter));
      } else {
        uri += letter;
      }
    }
    sqlite3* opened = nullptr;
    const int code =
        sqlite3_open_v2((uri + "?immutable=1").c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
    handle_.reset(opened);
    if (code != SQLITE_OK) fail();
    // Only tables are read: a view may be a query that never ends.
    sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
    sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    constexpr int kLongestText = 1 << 24;
    sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, kLongestText);
    // A row takes at least this many bytes; a damaged file may refer to the same rows many times.
    constexpr std::uintmax_t kLeastOfRow = 4;
    std::error_code ignored;
    most_rows_ = std::filesystem::file_size(path, ignored) / kLeastOfRow;
  }

  /// Calls `row` for each row of one table. `query` must not contain text from the file.
  template <class Row>
  void each(const std::string& query, const Row& row) const {
    sqlite3_stmt* prepared = nullptr;
    const int code = sqlite3_prepare_v2(handle_.get(), query.c_str(), -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement(prepared, &sqlite3_finalize);
    if (code != SQLITE_OK) fail();
    int stepped = sqlite3_step(prepared);
    std::uintmax_t rows = 0;
    for (; stepped == SQLITE_ROW; stepped = sqlite3_step(prepared)) {
      if (++rows > most_rows_) refuse_at(path_, "has a table with more rows than fit into the file", "");
      row(prepared);
    }
    if (stepped != SQLITE_DONE) fail();
  }

  std::set<std::string> columns(const std::string& table) const {
    std::set<std::string> names;
    each("PRAGMA table_info(" + table + ")", [&](sqlite3_stmt* row) { names.insert(text(row, 1)); });
    return names;
  }

  static std::string text(sqlite3_stmt* row, int column) {
    const unsigned char* found = sqlite3_column_text(row, column);
    return found == nullptr ? "" : std::string(reinterpret_cast<const char*>(found));
  }
  static std::int64_t whole(sqlite3_stmt* row, int column) { return sqlite3_column_int64(row, column); }
  static TracedSpan span(sqlite3_stmt* row, int column) {
    return {static_cast<double>(whole(row, column)) * kNanoseconds,
            static_cast<double>(whole(row, column + 1)) * kNanoseconds};
  }

  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail() const {
    refuse_at(path_, fmt::format("cannot be read as an SQLite database: {}", sqlite3_errmsg(handle_.get())),
              "export one with nsys export --type sqlite");
  }

  std::string path_;
  std::uintmax_t most_rows_ = 0;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_{nullptr, &sqlite3_close};
};

// "t.column" for the first of these columns that the table has, otherwise `absent`.
std::string column_of(const std::set<std::string>& columns, const std::vector<const char*>& names, const char* absent) {
  for (const char* name : names) {
    if (columns.count(name) != 0) return fmt::format("t.\"{}\"", name);
  }
  return absent;
}

using Marks = std::vector<std::pair<std::string, TracedSpan>>;

struct HostRange {
  std::string_view name;
  TracedSpan span;
};

// Leading word of "ProfilerStep#3", "iteration 12", "step_7" or "Step: 4" if it is a word for a step; otherwise empty.
std::string step_word(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const std::string_view word :
       {"profilerstep", "train_step", "training_step", "global_step", "iteration", "step", "iter"}) {
    if (lower.compare(0, word.size(), word) != 0) continue;
    const std::size_t number = lower.find_first_not_of(" _#:=-", word.size());
    const bool counts = number != std::string::npos && lower.find_first_not_of("0123456789", number) == lower.npos;
    return counts ? std::string(word) : std::string();
  }
  return {};
}

// The marks of the word and thread whose ranges last longest in total, because a step may consist of other ranges.
Marks named_marks(const std::vector<HostRange>& ranges) {
  std::map<std::string, std::pair<double, Marks>> by_word;
  for (const HostRange& range : ranges) {
    const std::string word = step_word(range.name);
    if (word.empty()) continue;
    auto& [seconds, marks] = by_word[word];
    seconds += range.span.end - range.span.start;
    marks.emplace_back(range.name, range.span);
  }
  const auto longest = std::max_element(by_word.begin(), by_word.end(),
                                        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
  return longest == by_word.end() ? Marks() : longest->second.second;
}

double marks_length(const Marks& marks) {
  double seconds = 0.0;
  for (const auto& [name, span] : marks) seconds += span.end - span.start;
  return seconds;
}

// Activities that a rank of flopcast-run reports: realrun/rendezvous/meeting.cpp.
constexpr std::string_view kOwnEnd = "the end of the step";
constexpr std::string_view kOwnSetUp = "its set-up";

bool is_of_own_run(const std::vector<HostRange>& ranges) {
  return std::any_of(ranges.begin(), ranges.end(), [](const HostRange& range) { return range.name == kOwnEnd; });
}

// Steps of the run itself, if calibrations before and after it have a set-up of their own.
Marks own_marks(std::vector<HostRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const HostRange& a, const HostRange& b) { return a.span.start < b.span.start; });
  std::vector<Marks> parts(1);
  std::optional<double> begin;
  for (const HostRange& range : ranges) {
    if (range.name == kOwnSetUp) {
      begin.reset();
      parts.emplace_back();
    } else if (!begin) {
      begin = range.span.start;
    }
    if (range.name != kOwnEnd) continue;
    auto& marks = parts.back();
    marks.emplace_back(fmt::format("step {}", marks.size()), TracedSpan{*begin, range.span.end});
    begin.reset();
  }
  parts.erase(std::remove_if(parts.begin(), parts.end(), [](const auto& part) { return part.empty(); }), parts.end());
  return parts.size() > 2 ? parts[1] : parts.front();
}

// Reads the trace of one profiled machine.
class NsightReader {
 public:
  explicit NsightReader(const std::string& path) : database_(path) {}

  std::vector<TracedRank> ranks(double step_s) {
    refuse_whole_graphs();
    read_texts();
    read_ranges();
    read_calls();
    read_work("CUPTI_ACTIVITY_KIND_KERNEL", {"demangledName", "shortName", "name"}, "kernel");
    read_work("CUPTI_ACTIVITY_KIND_MEMCPY", {}, "memcpy");
    read_work("CUPTI_ACTIVITY_KIND_MEMSET", {}, "memset");
    if (found_.empty())
      refuse_at(database_.path(), "contains no device kernels", "profile with nsys --trace=cuda,nvtx");
    const std::string device = device_name();
    std::vector<TracedRank> all;
    for (auto& [place, events] : found_) {
      const auto& [process, number, thread] = place;
      events.rank.file = database_.path();
      if (found_.size() > 1) events.rank.file += fmt::format(", rank {} of the file", all.size());
      events.rank.device = device;
      add_host(process, thread, events);
      all.push_back(cut_into_steps(std::move(events), step_s));
    }
    return all;
  }

 private:
  using Place = std::tuple<std::int64_t, std::int64_t, std::int64_t>;  // process, device, thread if threads are ranks
  struct Call {
    std::int64_t thread = 0;
    TracedSpan span;
    std::string_view name;
  };

  // Nsight's global thread ids have the thread in their lowest 24 bits.
  static std::int64_t process_of(std::int64_t thread) { return thread & ~std::int64_t{0xffffff}; }

  void refuse_whole_graphs() const {
    if (database_.columns("CUPTI_ACTIVITY_KIND_GRAPH_TRACE").empty()) return;
    database_.each("SELECT 1 FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE LIMIT 1", [&](sqlite3_stmt*) {
      refuse_at(database_.path(), "contains CUDA graphs as a whole, not their kernels",
                "profile with nsys --cuda-graph-trace=node");
    });
  }

  // Stores each text once, however many events use it.
  std::string_view kept(std::string text) { return *names_.insert(std::move(text)).first; }

  void read_texts() {
    if (database_.columns("StringIds").empty()) return;
    database_.each(fmt::format("SELECT id, substr(value, 1, {}) FROM StringIds", kLongestName), [&](sqlite3_stmt* row) {
      const std::int64_t id = Database::whole(row, 0);
      if (texts_.count(id) == 0) texts_.emplace(id, kept(Database::text(row, 1)));
    });
  }

  // The text whose id is in the column.
  std::string_view text_of(sqlite3_stmt* row, int column) const {
    if (sqlite3_column_type(row, column) == SQLITE_NULL) return {};
    const auto found = texts_.find(Database::whole(row, column));
    return found == texts_.end() ? std::string_view() : found->second;
  }

  void read_ranges() {
    const std::set<std::string> columns = database_.columns("NVTX_EVENTS");
    if (columns.empty()) return;
    std::string query =
        fmt::format("SELECT t.start, t.\"end\", {}, substr({}, 1, {}), {} FROM NVTX_EVENTS t WHERE t.\"end\" > t.start",
                    column_of(columns, {"globalTid"}, "0"), column_of(columns, {"text"}, "NULL"), kLongestName,
                    column_of(columns, {"textId"}, "NULL"));
    // Event types of ranges: push/pop and start/end.
    if (columns.count("eventType") != 0) query += " AND t.eventType IN (59, 60)";
    database_.each(query, [&](sqlite3_stmt* row) {
      const bool by_id = sqlite3_column_type(row, 3) == SQLITE_NULL;
      const std::string_view name = by_id ? text_of(row, 4) : kept(Database::text(row, 3));
      ranges_[Database::whole(row, 2)].push_back({name, Database::span(row, 0)});
    });
    std::map<std::int64_t, int> own;  // number of threads of each process that are ranks
    for (const auto& [thread, ranges] : ranges_) own[process_of(thread)] += is_of_own_run(ranges) ? 1 : 0;
    for (const auto& [process, ranks] : own) {
      if (ranks > 1) threaded_.insert(process);
    }
  }

  void read_calls() {
    const std::set<std::string> columns = database_.columns("CUPTI_ACTIVITY_KIND_RUNTIME");
    if (columns.empty()) return;
    database_.each(
        fmt::format("SELECT t.start, t.\"end\", {}, {}, {} FROM CUPTI_ACTIVITY_KIND_RUNTIME t",
                    column_of(columns, {"globalTid"}, "0"), column_of(columns, {"correlationId"}, "NULL"),
                    column_of(columns, {"nameId"}, "NULL")),
        [&](sqlite3_stmt* row) {
          const std::int64_t thread = Database::whole(row, 2);
          calls_[{process_of(thread), Database::whole(row, 3)}] = {thread, Database::span(row, 0), text_of(row, 4)};
        });
  }

  void read_work(const std::string& table, const std::vector<const char*>& names, const std::string& what) {
    const std::set<std::string> columns = database_.columns(table);
    if (columns.empty()) return;
    const bool copies = names.empty();
    database_.each(fmt::format("SELECT t.start, t.\"end\", {}, {}, {}, {} FROM {} t",
                               column_of(columns, {"globalPid"}, "0"), column_of(columns, {"deviceId"}, "0"),
                               column_of(columns, {"correlationId"}, "NULL"), column_of(columns, names, "NULL"), table),
                   [&](sqlite3_stmt* row) {
                     const TracedSpan span = Database::span(row, 0);
                     if (span.end < span.start) refuse_at(database_.path(), "a " + what + " ends before it starts", "");
                     const std::int64_t process = Database::whole(row, 2);
                     const std::int64_t id = Database::whole(row, 4);
                     const auto call = calls_.find({process, id});
                     Place place = {process, Database::whole(row, 3), 0};
                     if (call != calls_.end() && threaded_.count(process) != 0)
                       std::get<2>(place) = call->second.thread;
                     TracedEvents& events = found_[place];
                     const std::string name(text_of(row, 5));
                     events.add_kernel(name.empty() ? what : name, copies, span,
                                       call == calls_.end() ? std::nullopt : std::optional(id), "", 0);
                     if (call != calls_.end()) events.launches.emplace(id, call->second.span.start);
                   });
  }

  // Adds host activity of the process, or only of the thread if that is the rank.
  void add_host(std::int64_t process, std::int64_t rank_thread, TracedEvents& events) const {
    const auto belongs = [&](std::int64_t thread) {
      return rank_thread != 0 ? thread == rank_thread : process_of(thread) == process || process == 0;
    };
    bool own = false;
    for (const auto& [thread, ranges] : ranges_) {
      if (!belongs(thread)) continue;
      for (const HostRange& range : ranges) events.add_host(std::string(range.name), range.span, false);
      if (own) continue;
      own = is_of_own_run(ranges);
      Marks marks = own ? own_marks(ranges) : named_marks(ranges);
      if (own || marks_length(marks) > marks_length(events.marks)) events.marks = std::move(marks);
    }
    for (const auto& [id, call] : calls_) {
      if (belongs(call.thread)) events.add_host(std::string(call.name), call.span, false);
    }
  }

  std::string device_name() const {
    std::string name;
    if (database_.columns("TARGET_INFO_GPU").count("name") == 0) return name;
    database_.each(fmt::format("SELECT substr(name, 1, {}) FROM TARGET_INFO_GPU LIMIT 1", kLongestName),
                   [&](sqlite3_stmt* row) { name = Database::text(row, 0); });
    return name;
  }

  static constexpr int kLongestName = 256;

  Database database_;
  std::unordered_set<std::string> names_;
  std::unordered_map<std::int64_t, std::string_view> texts_;     // of StringIds, by id
  std::map<std::int64_t, std::vector<HostRange>> ranges_;        // by thread
  std::map<std::pair<std::int64_t, std::int64_t>, Call> calls_;  // by process and correlation
  std::set<std::int64_t> threaded_;                              // processes whose threads are ranks
  std::map<Place, TracedEvents> found_;
};

}  // namespace

std::vector<TracedRank> read_nsight_steps(const std::string& path, double step_s) {
  return NsightReader(path).ranks(step_s);
}

#else

std::vector<TracedRank> read_nsight_steps(const std::string& path, double /*step_s*/) {
  refuse_at(path, "is an SQLite database, but this program was built without SQLite",
            "rebuild with libsqlite3-dev installed, or trace with torch.profiler");
}

#endif

namespace {

// Reads a file that is parsed as a whole; limited, because a few compressed bytes may expand to any size.
std::string whole_text(std::istream& stream, const std::string& path) {
  constexpr std::size_t kLongest = std::size_t{256} << 20U;
  std::string text;
  std::string piece(std::size_t{1} << 20U, '\0');
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())).gcount() > 0) {
    text.append(piece, 0, static_cast<std::size_t>(stream.gcount()));
    if (text.size() > kLongest)
      refuse_at(path, "contains more than 256 MiB", "repeat the run with fewer --repetitions");
  }
  return text;
}

// A length, the key of the first field of a message, and its length: text never begins with such bytes.
bool begins_as_message(std::string_view head) {
  constexpr std::size_t kMostBytes = 4;  // of a length
  constexpr char kVersion = 0x0a;
  constexpr char kAttribute = 0x12;
  std::size_t key = 0;
  while (key < head.size() && (static_cast<unsigned char>(head[key]) & 0x80U) != 0) ++key;
  ++key;
  if (key > kMostBytes || key + 1 >= head.size()) return false;
  const char next = head[key + 1];
  if (head[key] == kAttribute) return next != 0;
  return head[key] == kVersion && next > 0 && next < ' ' && next != '\n' && next != '\t' && next != '\r';
}

}  // namespace

TraceFormat trace_format_of(const std::string& path) {
  std::string head(4096, '\0');
  PackedFile file(path);
  std::istream stream(&file);
  stream.exceptions(std::ios::badbit);  // lets a ConfigError pass through
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<std::size_t>(stream.gcount()));
  const auto has = [&head](std::string_view text) { return head.find(text) != std::string::npos; };
  constexpr std::string_view kDatabase = "SQLite format 3";
  if (head.compare(0, kDatabase.size(), kDatabase) == 0) return TraceFormat::kNsight;
  if (has("\"flopcast.measurement/1\"")) return TraceFormat::kOwnRun;
  if (has("\"tool\":\"flopcast")) return TraceFormat::kOwnTrace;
  return begins_as_message(head) ? TraceFormat::kChakra : TraceFormat::kKineto;
}

std::vector<TracedRank> read_traced_file(const std::string& path, double step_s) {
  const TraceFormat format = trace_format_of(path);
  if (format == TraceFormat::kNsight) return read_nsight_steps(path, step_s);
  PackedFile file(path);
  std::istream stream(&file);
  stream.exceptions(std::ios::badbit);
  switch (format) {
    case TraceFormat::kOwnRun:
      return read_user_run(whole_text(stream, path), path, step_s);
    case TraceFormat::kOwnTrace:
      return read_own_trace(stream, path, step_s);
    case TraceFormat::kChakra:
      return {read_chakra_steps(stream, path, step_s)};
    default:
      return {read_traced_rank(stream, path, step_s)};
  }
}

}  // namespace flopcast
