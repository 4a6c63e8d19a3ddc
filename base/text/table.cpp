#include "base/text/table.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {
namespace {

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::size_t skip_digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

/// The number grammar of RFC 8259: no leading zero or '+', a digit on both sides of the point.
bool is_json_number(std::string_view text) {
  std::size_t at = !text.empty() && text.front() == '-' ? 1 : 0;
  const std::size_t integer_end = skip_digits(text, at);
  if (integer_end == at || (text[at] == '0' && integer_end > at + 1)) return false;
  at = integer_end;
  if (at < text.size() && text[at] == '.') {
    const std::size_t end = skip_digits(text, at + 1);
    if (end == at + 1) return false;
    at = end;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    const std::size_t end = skip_digits(text, at);
    if (end == at) return false;
    at = end;
  }
  return at == text.size();
}

std::string key_of(const Column& column) {
  if (!column.key.empty()) return column.key;
  std::string key;
  for (const char c : column.name) {
    if (is_digit(c) || (c >= 'a' && c <= 'z')) {
      key += c;
    } else if (c >= 'A' && c <= 'Z') {
      key += static_cast<char>(c - 'A' + 'a');
    } else if (c == '%') {
      key += "percent";
    } else if (!key.empty() && key.back() != '_') {
      key += '_';
    }
  }
  while (!key.empty() && key.back() == '_') key.pop_back();
  return key;
}

void check(const Table& table) {
  std::set<std::string> keys;
  for (const Column& column : table.columns) FLOPCAST_CHECK(keys.insert(key_of(column)).second);
  for (const std::vector<std::string>& row : table.rows) {
    FLOPCAST_CHECK(row.size() == table.columns.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      FLOPCAST_CHECK(!table.columns[i].numeric || row[i].empty() || is_json_number(row[i]));
    }
  }
}

std::string on_one_line(std::string_view text, std::string_view line_break) {
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (text[i] == '\n' || text[i] == '\r') {
      line += line_break;
    } else {
      line += text[i];
    }
  }
  return line;
}

std::string padded(const std::string& text, std::size_t width, Align align) {
  const std::string blanks(width - std::min(width, text_columns(text)), ' ');
  return align == Align::kLeft ? text + blanks : blanks + text;
}

/// The header followed by the rows, each cell turned by `prepare`.
template <class Prepare>
std::vector<std::vector<std::string>> prepared_lines(const Table& table, Prepare prepare, bool by_key = false) {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : table.columns) lines.front().push_back(prepare(by_key ? key_of(column) : column.name));
  for (const std::vector<std::string>& row : table.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(prepare(cell));
  }
  return lines;
}

std::vector<std::size_t> column_widths(const std::vector<std::vector<std::string>>& lines, std::size_t least) {
  std::vector<std::size_t> widths(lines.front().size(), least);
  for (const std::vector<std::string>& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], text_columns(line[i]));
  }
  return widths;
}

std::string write_text(const Table& table) {
  const auto lines = prepared_lines(table, [](const std::string& cell) { return on_one_line(cell, " "); });
  const std::vector<std::size_t> widths = column_widths(lines, 0);
  std::string text = table.title.empty() ? "" : table.title + "\n";
  if (!table.columns.empty()) {
    for (const std::vector<std::string>& line : lines) {
      std::string row;
      for (std::size_t i = 0; i < line.size(); ++i) {
        row += (i == 0 ? "" : "  ") + padded(line[i], widths[i], table.columns[i].align);
      }
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
  }
  for (const std::string& note : table.notes) text += note + "\n";
  return text;
}

std::string markdown_cell(const std::string& cell) {
  std::string escaped;
  for (const char c : on_one_line(cell, "<br>")) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string write_markdown(const Table& table) {
  const auto lines = prepared_lines(table, markdown_cell);
  const std::vector<std::size_t> widths = column_widths(lines, 3);
  std::string text = table.title.empty() ? "" : "**" + table.title + "**\n\n";
  for (std::size_t l = 0; l < lines.size() && !table.columns.empty(); ++l) {
    text += '|';
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += ' ' + padded(lines[l][i], widths[i], table.columns[i].align) + " |";
    }
    text += '\n';
    if (l != 0) continue;
    text += '|';
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::string rule(widths[i] - 1, '-');
      text += table.columns[i].align == Align::kLeft ? " " + rule + "- |" : " " + rule + ": |";
    }
    text += '\n';
  }
  for (const std::string& note : table.notes) text += "\n" + note + "\n";
  return text;
}

std::string csv_cell(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string write_csv(const Table& table) {
  std::string text;
  for (const std::vector<std::string>& line : prepared_lines(table, csv_cell, true)) {
    for (std::size_t i = 0; i < line.size(); ++i) text += (i == 0 ? "" : ",") + line[i];
    text += '\n';
  }
  return text;
}

std::string json_string(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string write_json(const Table& table) {
  std::vector<std::string> keys;
  for (const Column& column : table.columns) keys.push_back(json_string(key_of(column)));
  std::string text = "[";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    text += r == 0 ? "\n  {" : ",\n  {";
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string& cell = table.rows[r][i];
      text += (i == 0 ? "" : ", ") + keys[i] + ": ";
      if (table.columns[i].numeric) {
        text += cell.empty() ? "null" : cell;
      } else {
        text += json_string(cell);
      }
    }
    text += '}';
  }
  return text + (table.rows.empty() ? "]\n" : "\n]\n");
}

}  // namespace

const std::vector<FormatInfo>& formats() {
  static const std::vector<FormatInfo> all = {{Format::kTable, "table", "", Shows::kPages},
                                              {Format::kMarkdown, "markdown", ".md", Shows::kPages},
                                              {Format::kCsv, "csv", ".csv", Shows::kRows},
                                              {Format::kJson, "json", ".json", Shows::kValues}};
  return all;
}

Shows shown_by(Format format) {
  return formats()[static_cast<std::size_t>(format)].shows;
}

std::vector<std::string> format_names() {
  std::vector<std::string> names;
  for (const FormatInfo& info : formats()) names.emplace_back(info.name);
  return names;
}

Format parse_format(std::string_view text) {
  for (const FormatInfo& info : formats()) {
    if (info.name == text) return info.format;
  }
  throw ConfigError({"--format", "\"" + std::string(text) + "\" is not an output format", "--format",
                     choices_help(text, format_names())});
}

Column text_column(std::string name, std::string key) {
  return {std::move(name), Align::kLeft, std::move(key), false};
}

Column number_column(std::string name, std::string key) {
  return {std::move(name), Align::kRight, std::move(key), true};
}

std::string write_table(const Table& table, Format format) {
  check(table);
  switch (format) {
    case Format::kTable:
      return write_text(table);
    case Format::kMarkdown:
      return write_markdown(table);
    case Format::kCsv:
      return write_csv(table);
    case Format::kJson:
      return write_json(table);
  }
  fail_internal_check("format is one of Format", __FILE__, __LINE__);
}

}  // namespace flopcast
