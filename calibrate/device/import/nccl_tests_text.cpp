#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <set>
#include <sstream>

#include "calibrate/device/import/nccl_tests.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Tokens = std::vector<std::string>;

Tokens tokens_of(std::string line) {
  // mpirun --tag-output glues its tag to what follows.
  for (const char* tag : {"<stdout>:", "<stderr>:", "<stdout>", "<stderr>"}) {
    const std::size_t place = line.find(tag);
    if (place != std::string::npos) line.replace(place, std::string(tag).size(), " ");
  }
  std::istringstream words(line);
  Tokens tokens;
  for (std::string word; words >> word;) tokens.push_back(word);
  return tokens;
}

bool is_whole(const std::string& text) {
  constexpr std::size_t kMostDigits = 18;
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_type(const std::string& text) {
  static const std::set<std::string> types = {"int8",   "uint8",  "int32",    "uint32",   "int64",
                                              "uint64", "half",   "float",    "double",   "bfloat16",
                                              "f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2", "char"};
  return types.count(text) > 0;
}

struct Number {
  std::optional<double> value;  // absent: N/A
  double precision = 0.0;       // half a unit of the last digit
};

Number number_of(const std::string& text, const std::string& column, const std::string& where) {
  if (text == "N/A" || text == "n/a" || text == "-") return {};
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value)) {
    throw ConfigError({"", fmt::format("\"{}\" in column {} is not a number", text, column), where,
                       "expected a row of nccl-tests; was the line cut or mixed with another?"});
  }
  // "12.34" is known to 0.005, "1.2e+06" to 0.05e6.
  const std::size_t exponent = text.find_first_of("eE");
  const std::string mantissa = text.substr(0, exponent);
  const std::size_t point = mantissa.find('.');
  const double digits = point == std::string::npos ? 0.0 : static_cast<double>(mantissa.size() - point - 1);
  const double power = exponent == std::string::npos ? 0.0 : std::strtod(text.c_str() + exponent + 1, nullptr);
  return {value, 0.5 * std::pow(10.0, power - digits)};
}

// The columns that a version of nccl-tests prints, as its own header names them.
class Columns {
 public:
  static std::optional<Columns> of_header(const Tokens& tokens) {
    const auto size = std::find(tokens.begin(), tokens.end(), "size");
    const bool header = size != tokens.end() && std::find(size, tokens.end(), "count") != tokens.end() &&
                        std::find(size, tokens.end(), "busbw") != tokens.end();
    if (!header) return std::nullopt;
    Columns columns;
    columns.names_.assign(size, tokens.end());
    return columns;
  }
  // Of rows without a header, such as those that grep found: today's layout.
  static Columns usual() {
    Columns columns;
    columns.names_ = {"size",  "count",  "type", "redop", "root",  "time",  "algbw",
                      "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"};
    return columns;
  }

  std::size_t count() const { return names_.size(); }
  // The nth column of that name.
  std::optional<std::size_t> find(const std::string& name, int nth) const {
    for (std::size_t index = 0; index < names_.size(); ++index) {
      if (names_[index] == name && nth-- == 0) return index;
    }
    return std::nullopt;
  }

 private:
  Tokens names_;
};

class TextReader {
 public:
  TextReader(const std::string& file, bool in_place) : file_(file), in_place_(in_place) {}

  void read_line(const std::string& line, int number) {
    where_ = fmt::format("{}:{}", file_, number);
    const Tokens tokens = tokens_of(line);
    const std::optional<SampleKind> kind = kind_of_program(line);
    if (kind && *kind != kind_.value_or(SampleKind::kGemm)) {
      finish();
      kind_ = kind;
    }
    if (const auto columns = Columns::of_header(tokens)) {
      finish_rows();
      columns_ = *columns;
      return;
    }
    if (const auto start = start_of_row(tokens)) {
      read_row(Tokens(tokens.begin() + static_cast<std::ptrdiff_t>(*start), tokens.end()));
      return;
    }
    read_device(line, tokens);
  }

  std::vector<NcclTestsRun> finished() {
    finish_rows();
    return std::move(runs_);
  }

 private:
  static std::optional<std::size_t> start_of_row(const Tokens& tokens) {
    for (std::size_t index = 0; index + 2 < tokens.size(); ++index) {
      if (is_whole(tokens[index]) && is_whole(tokens[index + 1]) && is_type(tokens[index + 2])) return index;
    }
    return std::nullopt;
  }

  void read_row(const Tokens& tokens) {
    if (tokens.size() < columns_.count()) {
      throw ConfigError({"", fmt::format("the row has {} columns, its header {}", tokens.size(), columns_.count()),
                         where_, "was the log cut? remove the row, or measure again"});
    }
    const int nth = in_place_ ? 1 : 0;
    const auto read = [&](const std::string& name) {
      const auto column = columns_.find(name, nth);
      return column ? number_of(tokens[*column], name, where_) : Number{};
    };
    NcclTestsRow row;
    row.where = where_;
    row.bytes = number_of(tokens[0], "size", where_).value.value_or(0.0);
    row.dtype = tokens[2];
    const Number time = read("time");
    const Number busbw = read("busbw");
    row.time_us = time.value;
    row.time_precision = time.precision;
    row.algbw = read("algbw").value;
    row.busbw = busbw.value;
    row.busbw_precision = busbw.precision;
    row.wrong = read("#wrong").value.value_or(0.0);
    if (run_.rows.empty()) run_.where = where_;
    run_.rows.push_back(std::move(row));
  }

  // "#  Rank  0 Group  0 Pid 43 on HOST device  0 [0x0f] NVIDIA A100-SXM4-40GB"
  void read_device(const std::string& line, const Tokens& tokens) {
    const auto rank = std::find(tokens.begin(), tokens.end(), "Rank");
    const auto on = std::find(rank, tokens.end(), "on");
    if (rank == tokens.end() || on == tokens.end() || on + 2 >= tokens.end() || *(on + 2) != "device") return;
    if (!is_whole(*(rank + 1))) return;
    if (!run_.rows.empty()) finish();
    ranks_.insert(*(rank + 1));
    hosts_.insert(*(on + 1));
    const std::size_t bracket = line.find(']', line.find("device"));
    if (bracket == std::string::npos || !device_.empty()) return;
    device_ = line.substr(bracket + 1);
    device_.erase(0, device_.find_first_not_of(" \t"));
    device_.erase(device_.find_last_not_of(" \t\r") + 1);
  }

  void finish_rows() {
    if (!run_.rows.empty()) {
      run_.kind = kind_;
      run_.ranks = static_cast<int>(ranks_.size());
      run_.nodes = static_cast<int>(hosts_.size());
      run_.device = device_;
      runs_.push_back(std::move(run_));
    }
    run_ = {};
  }

  // A new program starts: its devices are listed anew.
  void finish() {
    const bool had_rows = !run_.rows.empty();
    finish_rows();
    if (!had_rows) return;
    ranks_.clear();
    hosts_.clear();
    columns_ = Columns::usual();
  }

  std::string file_;
  bool in_place_;
  std::string where_;
  Columns columns_ = Columns::usual();
  std::optional<SampleKind> kind_;
  std::set<std::string> ranks_;
  std::set<std::string> hosts_;
  std::string device_;
  NcclTestsRun run_;
  std::vector<NcclTestsRun> runs_;
};

}  // namespace

std::vector<NcclTestsRun> read_nccl_tests_text(std::string_view text, const std::string& file, bool in_place) {
  TextReader reader(file, in_place);
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) reader.read_line(line, ++number);
  return reader.finished();
}

}  // namespace flopcast
