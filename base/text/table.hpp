#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

enum class Format { kTable, kMarkdown, kLatex, kCsv, kJson };

/// How much of a result a format shows.
enum class Shows {
  kPages,   ///< tables with titles and notes, for people
  kRows,    ///< the data of one table
  kValues,  ///< complete data, for programs
};

struct FormatInfo {
  Format format;
  std::string_view name;
  std::string_view ending;  ///< file extension of the format; empty: none
  Shows shows;
};
/// Every format, in the order of Format.
const std::vector<FormatInfo>& formats();
Shows shown_by(Format format);
/// "table", "markdown", "latex", "csv", "json"
std::vector<std::string> format_names();
/// "table, markdown, csv or json", for help texts.
std::string listed_formats();
/// Looks up a format by name; throws ConfigError (field "--format") if it is unknown.
Format parse_format(std::string_view text);

enum class Align { kLeft, kRight };

struct Column {
  std::string name;  ///< including the unit: "peak GiB"
  Align align = Align::kRight;
  /// JSON key, "peak_gib"; empty: the column's name in lower case, '%' as "percent", any other character as '_'.
  std::string key = {};
  /// Every cell is a JSON number ("44.6", not "44.6%" or "1,024") or empty. JSON gets it unchanged, null if empty.
  bool numeric = false;
};

/// A left-aligned column of words.
Column text_column(std::string name, std::string key = {});
/// A right-aligned column of numbers.
Column number_column(std::string name, std::string key = {});

/// Rows of text under named columns: what a command prints in every format except its own JSON.
struct Table {
  std::string title = {};  ///< one line above the table; empty: none
  std::vector<Column> columns = {};
  std::vector<std::vector<std::string>> rows = {};
  std::vector<std::string> notes = {};  ///< printed below the table, one line each
};

/// How a terminal shows a table.
struct TableStyle {
  int width = 0;       ///< maximum width in columns; 0: unlimited
  bool color = false;  ///< in "fits" columns, "no" is red and "tight" is yellow
};

/// Writes aligned columns for a terminal, GitHub Markdown, a LaTeX table environment (package booktabs), RFC 4180 CSV
/// (header row, LF line ends), or a JSON array of objects. Titles and notes appear only in the first three; CSV and
/// JSON hold only data, under the columns' keys. Widths count UTF-8 code points. The caller must supply rows as wide as
/// the header, numbers in numeric columns and distinct keys (InternalError).
///
/// A table wider than its style's width is shortened in steps: values common to all rows move to one line above it,
/// then headers and left-aligned cells wrap, then the columns are split into parts below each other, each starting with
/// the first column.
std::string write_table(const Table& table, Format format, const TableStyle& style = {});

/// Breaks a text at blanks into lines of at most `width` columns and indents all lines after the first; 0: unchanged.
std::string wrapped(const std::string& text, int width, const std::string& indent = "");

}  // namespace flopcast
