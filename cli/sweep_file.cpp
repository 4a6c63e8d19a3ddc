#include "cli/sweep_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/terminal.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

void write_line(std::FILE* stream, const std::string& path, const std::string& line) {
  const std::string text = line + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0;
  if (!written) throw EnvironmentError(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
}

// What append() wrote, not what an editor left.
bool is_row(const Json& line) {
  if (!line.is_object() || !line.contains("index") || !line["index"].is_number_unsigned()) return false;
  const auto row = line.find("row");
  return row != line.end() && row->is_object() && row->contains("values") && row->contains("result");
}

}  // namespace

SweepFile::SweepFile(const std::string& output, const nlohmann::json& question) : path_(output + ".partial") {
  const std::string header = Json{{"question", question}}.dump();
  bool starts = true;
  std::string kept;
  if (std::filesystem::exists(path_)) {
    const std::string text = read_file(path_);
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
      const std::string line = text.substr(begin, end - begin);
      if (begin == 0) {
        if (line != header) {
          throw ConfigError({"--output", fmt::format("{} holds another sweep", path_), "",
                             "finish that one, remove the file, or write elsewhere"});
        }
        starts = false;
        continue;
      }
      const Json row = Json::parse(line, nullptr, false);
      if (is_row(row)) rows_[row["index"].get<std::size_t>()] = row["row"];
    }
    kept = text.substr(0, begin);
  }
  // Without the line that a kill cut short.
  if (!kept.empty()) write_file(path_, kept);
  errno = 0;
  stream_ = std::fopen(path_.c_str(), starts ? "wb" : "ab");
  if (stream_ == nullptr) throw EnvironmentError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  if (starts) write_line(stream_, path_, header);
}

SweepFile::~SweepFile() {
  if (stream_ != nullptr) std::fclose(stream_);
}

void SweepFile::append(std::size_t index, const Json& row) {
  const std::string line = Json{{"index", index}, {"row", row}}.dump();
  const std::lock_guard<std::mutex> lock(mutex_);
  write_line(stream_, path_, line);
}

void SweepFile::remove() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace flopcast
