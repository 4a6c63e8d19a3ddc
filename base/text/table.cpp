#include "base/text/table.hpp"

#include <algorithm>
#include <cstddef>
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

/// JSON number grammar of RFC 8259: no leading zero or '+', and a digit on both sides of the point.
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

/// The header followed by the rows, with `prepare` applied to each cell.
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

constexpr std::size_t kGap = 2;  // blanks between columns

std::size_t total_width(const std::vector<std::size_t>& widths) {
  std::size_t total = 0;
  for (const std::size_t width : widths) total += width + (total == 0 ? 0 : kGap);
  return total;
}

// Moves columns whose value is the same in every row (except the first column) into one line of the title.
Table without_constants(const Table& table) {
  if (table.rows.size() < 2) return table;
  Table shorter;
  shorter.title = table.title;
  shorter.notes = table.notes;
  shorter.rows.resize(table.rows.size());
  std::string constants;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::string& first = table.rows.front()[i];
    const bool same = i > 0 && std::all_of(table.rows.begin(), table.rows.end(),
                                           [&](const std::vector<std::string>& row) { return row[i] == first; });
    if (same) {
      if (!first.empty())
        constants += (constants.empty() ? "in every row: " : ", ") + table.columns[i].name + " " + first;
      continue;
    }
    shorter.columns.push_back(table.columns[i]);
    for (std::size_t row = 0; row < table.rows.size(); ++row) shorter.rows[row].push_back(table.rows[row][i]);
  }
  if (!constants.empty()) shorter.title += (shorter.title.empty() ? "" : "\n") + constants;
  return shorter;
}

std::size_t longest_word(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& word : split(text, ' ')) longest = std::max(longest, text_columns(word));
  return longest;
}

// Narrows columns whose headers and cells may wrap, widest first, until the table fits.
void shrink(const std::vector<std::vector<std::string>>& lines, const Table& table, std::size_t width,
            std::vector<std::size_t>& widths) {
  std::vector<std::size_t> least(widths.size());
  for (std::size_t i = 0; i < widths.size(); ++i) {
    least[i] = longest_word(lines.front()[i]);
    for (std::size_t l = 1; l < lines.size(); ++l) {
      const bool breaks = table.columns[i].align == Align::kLeft;
      least[i] = std::max(least[i], breaks ? longest_word(lines[l][i]) : text_columns(lines[l][i]));
    }
  }
  while (total_width(widths) > width) {
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (widths[i] > least[i] && (widest == widths.size() || widths[i] > widths[widest])) widest = i;
    }
    if (widest == widths.size()) return;
    --widths[widest];
  }
}

// Highlights in red or yellow what a reader must not miss.
std::string colored(const std::string& cell, const std::string& column, const TableStyle& style) {
  if (!style.color || column.find("fits") == std::string::npos) return cell;
  const std::size_t begin = cell.find_first_not_of(' ');
  const std::string word = begin == std::string::npos ? "" : cell.substr(begin, cell.find(' ', begin) - begin);
  const char* const color = word == "no" ? "\x1b[31m" : word == "tight" ? "\x1b[33m" : nullptr;
  return color == nullptr ? cell : color + cell + "\x1b[0m";
}

// The rows of the selected columns; each row is as high as its tallest cell.
std::string rows_text(const std::vector<std::vector<std::string>>& lines, const Table& table,
                      const std::vector<std::size_t>& widths, const std::vector<std::size_t>& columns,
                      const TableStyle& style) {
  std::string text;
  for (const std::vector<std::string>& line : lines) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (const std::size_t i : columns) {
      const bool breaks = text_columns(line[i]) > widths[i];
      cells.push_back(breaks ? split(wrapped(line[i], static_cast<int>(widths[i])), '\n') : std::vector{line[i]});
      height = std::max(height, cells.back().size());
    }
    for (std::size_t part = 0; part < height; ++part) {
      std::string row;
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const Column& column = table.columns[columns[c]];
        // Short headers align with the bottom line of tall ones.
        const bool is_header = &line == &lines.front();
        const std::size_t above = is_header ? height - cells[c].size() : 0;
        const std::string cell = part >= above && part - above < cells[c].size() ? cells[c][part - above] : "";
        const std::string shown = padded(cell, widths[columns[c]], column.align);
        row += (c == 0 ? "" : std::string(kGap, ' ')) + (is_header ? shown : colored(shown, column.name, style));
      }
      row.erase(row.find_last_not_of(' ') + 1);
      text += row + "\n";
    }
  }
  return text;
}

std::string write_text(const Table& whole, const TableStyle& style) {
  const auto on_line = [](const std::string& cell) { return printable(on_one_line(cell, " ")); };
  Table table = whole;
  auto lines = prepared_lines(table, on_line);
  std::vector<std::size_t> widths = column_widths(lines, 0);
  const std::size_t limit = style.width > 0 ? static_cast<std::size_t>(style.width) : 0;
  if (limit > 0 && total_width(widths) > limit) {
    table = without_constants(whole);
    lines = prepared_lines(table, on_line);
    widths = column_widths(lines, 0);
    shrink(lines, table, limit, widths);
  }
  std::string text;
  for (const std::string& line : split(table.title, '\n')) {
    if (!table.title.empty()) text += wrapped(printable(line), style.width, "  ") + "\n";
  }
  for (std::size_t next = 0; next < table.columns.size();) {
    std::vector<std::size_t> part;
    if (next > 0) {
      part.push_back(0);
      text += "\n";
    }
    std::size_t taken = next > 0 ? widths.front() : 0;
    do {
      taken += widths[next] + (part.empty() ? 0 : kGap);
      part.push_back(next++);
    } while (next < table.columns.size() && (limit == 0 || taken + kGap + widths[next] <= limit));
    text += rows_text(lines, table, widths, part, style);
  }
  for (const std::string& note : table.notes) text += wrapped(printable(note), style.width, "  ") + "\n";
  return text;
}

// Names come from other people's files, so HTML tags are escaped.
std::string markdown_text(std::string_view text) {
  std::string escaped;
  for (const char c : printable(text)) {
    if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string markdown_cell(const std::string& cell) {
  // The line breaks are <br>, which must not be escaped.
  std::string lines;
  for (const std::string& line : split(on_one_line(cell, "\n"), '\n')) {
    if (!lines.empty()) lines += "<br>";
    for (const char c : markdown_text(line)) {
      if (c == '|') lines += '\\';
      lines += c;
    }
  }
  return lines;
}

std::string write_markdown(const Table& table) {
  const auto lines = prepared_lines(table, markdown_cell);
  const std::vector<std::size_t> widths = column_widths(lines, 3);
  std::string text = table.title.empty() ? "" : "**" + markdown_text(table.title) + "**\n\n";
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
  for (const std::string& note : table.notes) text += "\n" + markdown_text(note) + "\n";
  return text;
}

std::string latex_text(std::string_view text) {
  static const std::pair<std::string_view, std::string_view> k_words[] = {{"\\", "\\textbackslash{}"},
                                                                          {"~", "\\textasciitilde{}"},
                                                                          {"^", "\\textasciicircum{}"},
                                                                          {"<", "\\textless{}"},
                                                                          {">", "\\textgreater{}"},
                                                                          {"|", "\\textbar{}"},
                                                                          {"±", "$\\pm$"},
                                                                          {"·", "$\\cdot$"},
                                                                          {"×", "$\\times$"},
                                                                          {"≤", "$\\leq$"},
                                                                          {"≥", "$\\geq$"},
                                                                          {"→", "$\\to$"},
                                                                          {"−", "$-$"},
                                                                          {"…", "\\dots{}"},
                                                                          {"µ", "\\textmu{}"}};
  const std::string plain = printable(text);
  std::string escaped;
  for (std::size_t at = 0; at < plain.size();) {
    const std::string_view rest = std::string_view(plain).substr(at);
    const auto* word = std::find_if(std::begin(k_words), std::end(k_words),
                                    [&](const auto& one) { return rest.starts_with(one.first); });
    if (word != std::end(k_words)) {
      escaped += word->second;
      at += word->first.size();
      continue;
    }
    if (std::string_view("&%$#_{}").find(plain[at]) != std::string_view::npos) escaped += '\\';
    escaped += plain[at++];
    if (rest.starts_with("--")) escaped += "{}";  // LaTeX would turn "--" into a dash
  }
  return escaped;
}

std::string write_latex(const Table& table) {
  if (table.columns.empty()) return "";
  const auto lines = prepared_lines(table, [](const std::string& cell) { return latex_text(on_one_line(cell, " ")); });
  const std::vector<std::size_t> widths = column_widths(lines, 0);
  std::string text = "\\begin{table}\n\\centering\n";
  if (!table.title.empty()) text += "\\caption{" + latex_text(on_one_line(table.title, ". ")) + "}\n";
  text += "\\begin{tabular}{";
  for (const Column& column : table.columns) text += column.align == Align::kLeft ? 'l' : 'r';
  text += "}\n\\toprule\n";
  for (std::size_t l = 0; l < lines.size(); ++l) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      text += (i == 0 ? "" : " & ") + padded(lines[l][i], widths[i], table.columns[i].align);
    }
    text += " \\\\\n";
    if (l == 0) text += "\\midrule\n";
  }
  text += "\\bottomrule\n\\end{tabular}\n";
  for (const std::string& note : table.notes) text += "\\par\\smallskip\\footnotesize " + latex_text(note) + "\n";
  return text + "\\end{table}\n";
}

// True for cells that a spreadsheet would evaluate: those that begin with '=' or '@', or with a sign if they call or
// reference something. A leading apostrophe makes them text. Flags such as --pp stay unchanged.
bool computes(const std::string& cell) {
  if (cell.empty() || is_json_number(cell)) return false;
  const char first = cell.front();
  const bool signed_call = (first == '+' || first == '-') && cell.find_first_of("(|!") != std::string::npos;
  return first == '=' || first == '@' || first == '\t' || first == '\r' || signed_call;
}

std::string csv_cell(const std::string& text) {
  // CSV may also be shown in a terminal.
  const std::string plain = printable(text);
  std::string cell = computes(plain) ? "'" + plain : plain;
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

std::string write_json(const Table& table) {
  std::vector<std::string> keys;
  for (const Column& column : table.columns) keys.push_back(json_text(key_of(column)));
  std::string text = "[";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    text += r == 0 ? "\n  {" : ",\n  {";
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::string& cell = table.rows[r][i];
      text += (i == 0 ? "" : ", ") + keys[i] + ": ";
      if (table.columns[i].numeric) {
        text += cell.empty() ? "null" : cell;
      } else {
        text += json_text(cell);
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
                                              {Format::kLatex, "latex", ".tex", Shows::kPages},
                                              {Format::kCsv, "csv", ".csv", Shows::kRows},
                                              {Format::kJson, "json", ".json", Shows::kValues}};
  return all;
}

Shows shown_by(Format format) {
  return formats()[static_cast<std::size_t>(format)].shows;
}

std::string listed_formats() {
  const std::vector<std::string> names = format_names();
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
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

std::string wrapped(const std::string& text, int width, const std::string& indent) {
  if (width <= 0 || text_columns(text) <= static_cast<std::size_t>(width)) return text;
  std::string all;
  std::string line;
  for (const std::string& word : split(text, ' ')) {
    const bool full = text_columns(line) + 1 + text_columns(word) > static_cast<std::size_t>(width);
    const bool begins = line.empty() || (!all.empty() && line == indent);
    if (full && !begins) {
      line.erase(line.find_last_not_of(' ') + 1);
      all += line + "\n";
      line = indent + word;
    } else {
      line += (begins ? "" : " ") + word;
    }
  }
  return all + line;
}

std::string write_table(const Table& table, Format format, const TableStyle& style) {
  check(table);
  switch (format) {
    case Format::kTable:
      return write_text(table, style);
    case Format::kMarkdown:
      return write_markdown(table);
    case Format::kLatex:
      return write_latex(table);
    case Format::kCsv:
      return write_csv(table);
    case Format::kJson:
      return write_json(table);
  }
  fail_internal_check("format is one of Format", __FILE__, __LINE__);
}

}  // namespace flopcast
