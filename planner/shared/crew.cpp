#include "planner/shared/crew.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

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
  // A process takes its own from the front, others' from the end: both are taken off the end here.
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

void write_line(std::FILE* stream, const fs::path& path, const std::string& line) {
  const std::string text = line + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
  if (!written) throw EnvironmentError(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
}

fs::path beside(const fs::path& output, const std::string& ending) {
  fs::path path = output;
  path += ending;
  return path;
}

// What append() wrote, not what an editor left.
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
  if (stream_ != nullptr) std::fclose(stream_);
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

void PartialRows::read(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return;
  std::uint64_t& done = read_[file.filename()];
  stream.seekg(static_cast<std::streamoff>(done));
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    if (done == 0 && begin == 0) {
      if (line == header_) continue;
      throw ConfigError({"--output", fmt::format("{} holds another question", file.string()), "",
                         "finish that one, remove the file, or write elsewhere"});
    }
    const Json row = Json::parse(line, nullptr, false);
    if (is_row(row)) rows_[row["index"].get<std::size_t>()] = row["row"].dump();
  }
  done += begin;
}

void PartialRows::load(bool clears) {
  for (const fs::path& file : files()) read(file);
  std::error_code ignored;
  if (clears) fs::remove(writer_, ignored);
}

void PartialRows::keep(const std::function<bool(const std::string& row)>& is_whole) {
  for (auto row = rows_.begin(); row != rows_.end();) row = is_whole(row->second) ? std::next(row) : rows_.erase(row);
}

void PartialRows::open() {
  const std::uint64_t whole = read_[own_.filename()];
  std::error_code ignored;
  // Without the line that a kill cut short.
  if (whole > 0) fs::resize_file(own_, whole, ignored);
  errno = 0;
  stream_ = std::fopen(own_.c_str(), whole > 0 ? "ab" : "wb");
  if (stream_ == nullptr) {
    throw EnvironmentError(fmt::format("cannot write {}: {}", own_.string(), std::strerror(errno)));
  }
  if (whole == 0) write_line(stream_, own_, header_);
}

void PartialRows::refresh() {
  for (const fs::path& file : files()) {
    if (file.filename() != own_.filename()) read(file);
  }
}

void PartialRows::append(std::size_t index, const std::string& row) {
  const std::string line = fmt::format(R"({{"index":{},"row":{}}})", index, row);
  const std::lock_guard<std::mutex> lock(mutex_);
  write_line(stream_, own_, line);
  rows_[index] = row;
}

bool PartialRows::is_gone() const {
  std::error_code ignored;
  return !fs::exists(own_, ignored);
}

bool PartialRows::claim() const {
  using namespace std::chrono_literals;
  constexpr auto kPatience = 30s;
  const auto start = std::chrono::steady_clock::now();
  // A writer that is lost is waited for in vain; its output is written again, which changes nothing.
  while (std::chrono::steady_clock::now() - start < kPatience) {
    if (is_gone()) return false;
    const int descriptor = ::open(writer_.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (descriptor >= 0) {
      ::close(descriptor);
      // The last writer may have been done just before.
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

std::unique_ptr<PartialRows> rows_beside(const std::optional<std::string>& output, const nlohmann::json& job,
                                         const std::string& command, const std::vector<std::string>& words,
                                         const Crew& crew) {
  if (!output || output->empty()) {
    if (!crew.shares) return nullptr;
    throw ConfigError({"--output", "is required: processes share their rows beside it", "", "give -o FILE"});
  }
  const std::optional<int> rank = crew.shares ? std::optional<int>(crew.rank) : std::nullopt;
  return std::make_unique<PartialRows>(*output, nlohmann::json{{"job", job}, {command, words}}, rank);
}

namespace {

class Answer {
 public:
  Answer(const SharedWork& work, PartialRows& rows) : work_(work), rows_(rows) { look_for_end(); }

  // The first row that ends the work bounds what is needed.
  void look_for_end() {
    last_ = work_.parts;
    if (!work_.ends) return;
    for (const auto& [index, row] : rows_.rows()) {
      if (index < last_ && work_.ends(row)) last_ = index + 1;
    }
  }
  bool needs(std::size_t part) const { return part < last_ && rows_.rows().count(part) == 0; }

  std::vector<std::string> take() const {
    std::vector<std::string> all;
    for (std::size_t part = 0; part < last_; ++part) all.push_back(rows_.rows().at(part));
    return all;
  }

 private:
  const SharedWork& work_;
  PartialRows& rows_;
  std::size_t last_ = 0;
};

}  // namespace

std::optional<std::vector<std::string>> answer_together(const SharedWork& work, PartialRows& rows, const Crew& crew,
                                                        const ParallelFor& parallel_for, std::size_t threads) {
  rows.load(crew.leads());
  rows.keep(work.is_row);
  // Nobody may write before everybody has read: what is missing has to be the same for all.
  crew.meet();
  rows.open();
  Answer answer(work, rows);
  std::vector<std::size_t> missing;
  for (std::size_t part = 0; part < work.parts; ++part) {
    if (answer.needs(part)) missing.push_back(part);
  }
  Division division(missing, crew.rank, crew.size);
  const std::size_t own_bite = work.ends ? threads : std::numeric_limits<std::size_t>::max();
  if (work.begins) work.begins(missing.size());
  while (division.left()) {
    const bool own = division.own_left();
    if (crew.shares && (work.ends || !own)) {
      if (rows.is_gone()) return std::nullopt;
      rows.refresh();
      answer.look_for_end();
    }
    const std::vector<std::size_t> parts =
        division.next(own ? own_bite : threads, [&](std::size_t part) { return answer.needs(part); });
    parallel_for(parts.size(), [&](std::size_t place) { rows.append(parts[place], work.compute(parts[place])); });
    answer.look_for_end();
  }
  if (crew.shares && !rows.claim()) return std::nullopt;
  return answer.take();
}

}  // namespace flopcast
