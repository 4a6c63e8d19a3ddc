#include "cli/partial_rows.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "model/error/error.hpp"

namespace flopcast {

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
    if (is_row(row)) rows_[row["index"].get<std::size_t>()] = row["row"];
  }
  done += begin;
}

void PartialRows::load(bool clears) {
  for (const fs::path& file : files()) read(file);
  std::error_code ignored;
  if (clears) fs::remove(writer_, ignored);
}

void PartialRows::keep(const std::function<bool(const Json& row)>& is_whole) {
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

void PartialRows::append(std::size_t index, const Json& row) {
  const std::string line = Json{{"index", index}, {"row", row}}.dump();
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

}  // namespace flopcast
