#include "sim/schedule/csv_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "model/error/error.hpp"
#include "sim/schedule/action.hpp"
#include "sim/schedule/text.hpp"

namespace flopcast {

namespace {

constexpr std::string_view kDigits = "0123456789";

// Takes the next cell off `line`, without blanks and quotes, and the comma after it.
std::string_view take_cell(std::string_view& line, const CsvPlace& place) {
  const std::size_t begin = std::min(line.find_first_not_of(" \t\r"), line.size());
  if (begin == line.size() || line[begin] != '"') {
    const std::size_t comma = std::min(line.find(','), line.size());
    const std::string_view cell = trim(line.substr(0, comma));
    line.remove_prefix(std::min(comma + 1, line.size()));
    return cell;
  }
  const std::size_t end = line.find('"', begin + 1);
  if (end == std::string_view::npos) {
    fail_at(place, fmt::format("cell {} has no closing quote", quote(trim(line))), "quote whole cells or none");
  }
  const std::size_t comma = std::min(line.find(',', end), line.size());
  if (!trim(line.substr(end + 1, comma - end - 1)).empty()) fail_at_cell(place, trim(line.substr(0, comma)));
  const std::string_view cell = trim(line.substr(begin + 1, end - begin - 1));
  line.remove_prefix(std::min(comma + 1, line.size()));
  return cell;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.substr(0, kMark.size()) == kMark) text.remove_prefix(kMark.size());
  return text;
}

void visit_line(std::string_view line, CsvPlace place,
                const std::function<void(std::string_view, const CsvPlace&)>& visit) {
  while (!line.empty()) {
    const CsvPlace here = place;
    visit(take_cell(line, here), here);
    ++place.cell;
  }
}

// What stands between the numbers of `cell`; empty when it is not number, letters, number.
std::string_view word_of(std::string_view cell) {
  const std::size_t begin = std::min(cell.find_first_not_of(kDigits), cell.size());
  const std::size_t end = std::min(cell.find_first_of(kDigits, begin), cell.size());
  const bool well_formed =
      begin > 0 && end < cell.size() && cell.find_first_not_of(kDigits, end) == std::string_view::npos;
  return well_formed ? cell.substr(begin, end - begin) : std::string_view();
}

std::string help_for(std::string_view cell) {
  if (word_of(cell) == "BW") {
    return "BW is what zero-bubble papers and old PyTorch dumps call the whole backward pass, and B its input-gradient "
           "part: rename B to I, then BW to B";
  }
  const std::size_t separator = cell.find_first_of("; \t");
  const bool separated = cell.find('(') == std::string_view::npos && separator != std::string_view::npos &&
                         parse_action(cell.substr(0, separator)).has_value();
  if (separated) return "separate cells with commas: one line a rank, cells such as 2F0";
  return "<stage><F|B|I|W><microbatch> such as 2F0, a pair (3F1;0B0)OVERLAP_F_B, or an empty cell; one line a rank, "
         "no header";
}

}  // namespace

std::size_t for_each_cell(std::string_view text, std::string_view file_name,
                          const std::function<void(std::string_view, const CsvPlace&)>& visit) {
  text = without_byte_order_mark(text);
  const std::size_t last = text.find_last_not_of(" \t\r\n");
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  std::size_t lines = 0;
  while (!text.empty()) {
    const CsvPlace place{.file = file_name, .line = lines + 1, .cell = 1};
    if (lines == kMaxStages) {
      fail_at(place, "the file has too many lines", fmt::format("one line a rank, at most {}", kMaxStages));
    }
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit_line(text.substr(0, end), place, visit);
    ++lines;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void fail_at(const CsvPlace& place, std::string problem, std::string help) {
  throw ConfigError(Diagnostic{.field = "schedule",
                               .problem = std::move(problem),
                               .where = fmt::format("{}:{}:{}", place.file, place.line, place.cell),
                               .help = std::move(help)});
}

void fail_at_cell(const CsvPlace& place, std::string_view cell) {
  const std::string_view word = word_of(cell);
  constexpr std::array<std::string_view, 8> kWords = {"F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  if (std::find(kWords.begin(), kWords.end(), word) != kWords.end()) {
    fail_at(place, fmt::format("cell {} has too large a number", quote(cell)),
            fmt::format("stages below {}, microbatches below {}", kMaxStages, kMaxMicrobatches));
  }
  fail_at(place, fmt::format("cell {} is no action", quote(cell)), help_for(cell));
}

}  // namespace flopcast
