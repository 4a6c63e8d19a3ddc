#include "planner/shared/crew.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

Division::Division(const std::vector<std::size_t>& missing, int rank, int size) {
  FLOPCAST_CHECK(size > 0 && rank >= 0 && rank < size);
  const auto players = static_cast<std::size_t>(size);
  hands_.resize(players);
  for (std::size_t card = 0; card < missing.size(); ++card) {
    const std::size_t player = card % players;
    hands_[(player + players - static_cast<std::size_t>(rank)) % players].push_back(missing[card]);
  }
  // A process takes its own parts from the front and others' from the end. Reversed, so that both are popped from the
  // end.
  std::reverse(hands_.front().begin(), hands_.front().end());
}

bool Division::left() const {
  return std::any_of(hands_.begin(), hands_.end(), [](const auto& hand) { return !hand.empty(); });
}

std::vector<std::size_t> Division::next(std::size_t most, const std::function<bool(std::size_t)>& is_open) {
  std::vector<std::size_t> parts;
  const auto hand = std::find_if(hands_.begin(), hands_.end(), [](const auto& one) { return !one.empty(); });
  while (hand != hands_.end() && !hand->empty() && parts.size() < most) {
    if (is_open(hand->back())) parts.push_back(hand->back());
    hand->pop_back();
  }
  return parts;
}

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

// One write call, since another process may append to the same file.
void write_line(int descriptor, const fs::path& path, const std::string& line) {
  const std::string text = line + "\n";
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + written, text.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw EnvironmentError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
    written += static_cast<std::size_t>(count);
  }
}

// Reads up to `bytes` bytes; fewer at the end of the file.
std::string read_at(int descriptor, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t count = ::pread(descriptor, text.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

// Cuts a name that leaves no room for the ending, and appends an FNV-1a hash to keep it distinct.
fs::path beside(const fs::path& output, const std::string& ending) {
  constexpr std::size_t kRoom = 255 - 40;  // limit of a file name, less the longest ending
  std::string name = output.filename().string();
  if (name.size() > kRoom) {
    std::uint64_t sum = 0xcbf29ce484222325;
    for (const char letter : name) sum = (sum ^ static_cast<unsigned char>(letter)) * 0x100000001b3;
    name = fmt::format("{}.{:016x}", name.substr(0, kRoom - 17), sum);
  }
  return fs::path(output).replace_filename(name + ending);
}

// Accepts only lines of append(), not ones damaged by an editor.
bool is_row(const Json& line) {
  if (!line.is_object() || !line.contains("index") || !line["index"].is_number_unsigned()) return false;
  const auto row = line.find("row");
  return row != line.end() && row->is_object();
}

}  // namespace

PartialRows::PartialRows(const std::string& output, const nlohmann::json& question, std::optional<int> rank)
    : output_(output),
      own_(beside(output_, rank ? fmt::format(".partial.rank-{}", *rank) : ".partial")),
      writer_(beside(output_, ".partial.writer")),
      header_(nlohmann::json{{"question", question}}.dump()) {}

PartialRows::~PartialRows() {
  for (const Reader& reader : readers_) {
    if (reader.descriptor >= 0) ::close(reader.descriptor);
  }
}

std::vector<fs::path> PartialRows::files() const {
  const std::string alone = beside(output_, ".partial").filename().string();
  const std::string of_rank = alone + ".rank-";
  std::vector<fs::path> found;
  const fs::path folder = output_.has_parent_path() ? output_.parent_path() : fs::path(".");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name == alone || name.rfind(of_rank, 0) == 0) found.push_back(folder / name);
  }
  return found;
}

std::size_t PartialRows::reader_of(const fs::path& file) {
  // All files are in one folder, so file names identify them.
  const auto known = std::find_if(readers_.begin(), readers_.end(),
                                  [&](const Reader& one) { return one.path.filename() == file.filename(); });
  if (known != readers_.end()) return static_cast<std::size_t>(known - readers_.begin());
  // A process can usually have a thousand open files; files of further ranks are opened for each read.
  constexpr std::size_t kMostOpen = 500;
  readers_.push_back({file, readers_.size() < kMostOpen ? ::open(file.c_str(), O_RDONLY | O_CLOEXEC) : -1});
  return readers_.size() - 1;
}

std::string PartialRows::text_at(std::size_t reader, std::uint64_t offset, std::size_t bytes) const {
  const Reader& from = readers_[reader];
  if (from.descriptor >= 0) return read_at(from.descriptor, offset, bytes);
  const int descriptor = ::open(from.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return "";
  std::string text = read_at(descriptor, offset, bytes);
  ::close(descriptor);
  return text;
}

void PartialRows::take_line(std::size_t reader, std::uint64_t offset, const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!is_row(json)) return;
  const auto index = json["index"].get<std::size_t>();
  if (index >= places_.size()) return;
  const std::string row = json["row"].dump();
  if (!is_row_(row)) return;
  places_[index] = {static_cast<std::int32_t>(reader), static_cast<std::uint32_t>(line.size()), offset};
  if (seen_) seen_(index, row);
}

void PartialRows::read(const fs::path& file) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr std::size_t kLongestRow = std::size_t{64} << 20;
  const std::size_t reader = reader_of(file);
  std::uint64_t& done = readers_[reader].done;
  std::string text;
  while (true) {
    const std::string piece = text_at(reader, done + text.size(), kPiece);
    if (piece.empty()) return;  // `text` then holds a truncated line
    text += piece;
    if (text.size() > kLongestRow) return;  // longer than any row: not our file
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      const std::string line = text.substr(begin, end - begin);
      if (done == 0 && begin == 0) {
        if (line == header_) continue;
        throw ConfigError({"--output", fmt::format("{} holds rows of another question", file.string()), "",
                           "finish that command, remove the file, or write to another output"});
      }
      take_line(reader, done + begin, line);
    }
    done += begin;
    text.erase(0, begin);
  }
}

void PartialRows::load(std::size_t parts, std::function<bool(const std::string& row)> is_row,
                       std::function<void(std::size_t index, const std::string& row)> seen, bool clears) {
  places_.resize(parts);
  is_row_ = std::move(is_row);
  seen_ = std::move(seen);
  for (const fs::path& file : files()) read(file);
  std::error_code ignored;
  if (clears) fs::remove(writer_, ignored);
}

void PartialRows::open() {
  const auto fail = [this] {
    throw EnvironmentError(fmt::format("cannot write {}: {}", own_.string(), std::strerror(errno)));
  };
  const int descriptor = ::open(own_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) fail();
  // Another process with the same question may have created the file since load().
  read(own_);
  const std::uint64_t whole = readers_[reader_of(own_)].done;
  own_reader_ = readers_.size();
  readers_.push_back({"", descriptor});
  if (whole == 0) {
    if (::ftruncate(descriptor, 0) != 0) fail();
    write_line(descriptor, own_, header_);
  } else if (static_cast<std::uint64_t>(::lseek(descriptor, 0, SEEK_END)) > whole) {
    // Turns a line that a kill cut short into a line of its own. It is not removed, since another process may be
    // writing it.
    write_line(descriptor, own_, "");
  }
}

void PartialRows::refresh() {
  for (const fs::path& file : files()) {
    if (file.filename() != own_.filename()) read(file);
  }
}

std::optional<std::string> PartialRows::row(std::size_t index) {
  const Place place = places_.at(index);
  if (place.file < 0) return std::nullopt;
  const std::string text = text_at(static_cast<std::size_t>(place.file), place.offset, place.bytes);
  const Json line = Json::parse(text, nullptr, false);
  if (!flopcast::is_row(line) || line["index"].get<std::size_t>() != index) return std::nullopt;
  std::string row = line["row"].dump();
  return is_row_(row) ? std::optional(std::move(row)) : std::nullopt;
}

void PartialRows::append(std::size_t index, const std::string& row) {
  const std::string line = fmt::format(R"({{"index":{},"row":{}}})", index, row);
  const std::lock_guard<std::mutex> lock(mutex_);
  const int descriptor = readers_[own_reader_].descriptor;
  write_line(descriptor, own_, line);
  // The offset is known only afterwards, since others may have appended.
  const off_t end = ::lseek(descriptor, 0, SEEK_CUR);
  places_.at(index) = {static_cast<std::int32_t>(own_reader_), static_cast<std::uint32_t>(line.size()),
                       static_cast<std::uint64_t>(end) - line.size() - 1};
  if (seen_) seen_(index, row);
}

bool PartialRows::is_gone() const {
  std::error_code ignored;
  return !fs::exists(own_, ignored);
}

bool PartialRows::claim() const {
  using namespace std::chrono_literals;
  constexpr auto kPatience = 30s;
  const auto start = std::chrono::steady_clock::now();
  // If the writer has died, time out and write the output again; it comes out the same.
  while (std::chrono::steady_clock::now() - start < kPatience) {
    if (is_gone()) return false;
    const int descriptor = ::open(writer_.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      // The last writer may have finished just before.
      if (!is_gone()) return true;
      std::error_code ignored;
      fs::remove(writer_, ignored);
      return false;
    }
    std::this_thread::sleep_for(20ms);
  }
  return true;
}

void PartialRows::remove() {
  std::error_code ignored;
  for (const fs::path& file : files()) fs::remove(file, ignored);
  fs::remove(writer_, ignored);
}

std::unique_ptr<PartialRows> open_partial_rows(const std::optional<std::string>& output, const nlohmann::json& job,
                                               const std::string& command, const std::vector<std::string>& words,
                                               const Crew& crew) {
  if (!output || output->empty()) {
    if (!crew.shares) return nullptr;
    throw ConfigError({"--output", "is required: processes share their rows in files next to it", "", "give -o FILE"});
  }
  // Keep no rows for terminals and pipes.
  if (!crew.shares && output->rfind("/dev/", 0) == 0) return nullptr;
  const std::optional<int> rank = crew.shares ? std::optional<int>(crew.rank) : std::nullopt;
  return std::make_unique<PartialRows>(*output, nlohmann::json{{"job", job}, {command, words}}, rank);
}

namespace {

// Tracks which parts an answer needs: those up to the first that ends it.
class Answer {
 public:
  explicit Answer(const SharedWork& work) : work_(work), last_(work.parts) {}

  void take(std::size_t index, const std::string& row) {
    if (index < last_ && work_.ends(row)) last_ = index + 1;
  }
  bool needs(std::size_t part, const PartialRows& rows) const { return part < last_ && !rows.has(part); }
  std::size_t parts() const { return last_; }

 private:
  const SharedWork& work_;
  std::size_t last_;
};

std::vector<std::size_t> missing_parts(const Answer& answer, const PartialRows& rows) {
  std::vector<std::size_t> missing;
  for (std::size_t part = 0; part < answer.parts(); ++part) {
    if (answer.needs(part, rows)) missing.push_back(part);
  }
  return missing;
}

}  // namespace

std::optional<std::size_t> answer_together(const SharedWork& work, PartialRows& rows, const Crew& crew,
                                           const ParallelFor& parallel_for, std::size_t threads) {
  const auto answer = std::make_shared<Answer>(work);
  std::function<void(std::size_t, const std::string&)> seen;
  if (work.ends) seen = [answer](std::size_t index, const std::string& row) { answer->take(index, row); };
  rows.load(work.parts, work.is_row, std::move(seen), crew.leads());
  // All processes must read before any writes, so that all agree on what is missing.
  crew.meet();
  rows.open();
  const std::vector<std::size_t> missing = missing_parts(*answer, rows);
  Division division(missing, crew.rank, crew.size);
  const std::size_t own_bite = work.ends ? threads : std::numeric_limits<std::size_t>::max();
  if (work.begins) work.begins(missing.size());
  while (division.left()) {
    const bool own = division.own_left();
    if (crew.shares && (work.ends || !own)) {
      if (rows.is_gone()) return std::nullopt;
      rows.refresh();
    }
    const std::vector<std::size_t> parts =
        division.next(own ? own_bite : threads, [&](std::size_t part) { return answer->needs(part, rows); });
    parallel_for(parts.size(), [&](std::size_t place) { rows.append(parts[place], work.compute(parts[place])); });
  }
  if (crew.shares && !rows.claim()) return std::nullopt;
  return answer->parts();
}

std::string answered_row(const SharedWork& work, PartialRows& rows, std::size_t part) {
  std::optional<std::string> row = rows.row(part);
  return row ? *row : work.compute(part);
}

}  // namespace flopcast
