#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

enum class Format { kTable, kMarkdown, kLatex, kCsv, kJson };

/// What a format shows of an answer.
enum class Shows {
  kPages,   ///< tables below each other with their titles and notes, for people
  kRows,    ///< the data of one table
  kValues,  ///< all of it, for programs
};

struct FormatInfo {
  Format format;
  std::string_view name;
  std::string_view ending;  ///< of files that hold it; empty: none in particular
  Shows shows;
};
/// Every format, in the order of Format.
const std::vector<FormatInfo>& formats();
Shows shown_by(Format format);
/// "table", "markdown", "latex", "csv", "json"
std::vector<std::string> format_names();
/// "table, markdown, csv or json", for help texts.
std::string listed_formats();
/// By its name; throws ConfigError (field "--format") when there is none.
Format parse_format(std::string_view text);

enum class Align { kLeft, kRight };

struct Column {
  std::string name;  ///< with its unit: "peak GiB"
  Align align = Align::kRight;
  /// The name in JSON, "peak_gib"; empty: the column's name in lower case, '%' as "percent", anything else as '_'.
  std::string key = {};
  /// Every cell is a JSON number ("44.6", not "44.6%" or "1,024") or empty. JSON writes it as it stands, null if empty.
  bool numeric = false;
};

/// A left-aligned column of words.
Column text_column(std::string name, std::string key = {});
/// A right-aligned column of numbers.
Column number_column(std::string name, std::string key = {});

/// Rows of text under named columns. What a command prints in every format but its own JSON.
struct Table {
  std::string title = {};  ///< one line above the table; empty for none
  std::vector<Column> columns = {};
  std::vector<std::vector<std::string>> rows = {};
  std::vector<std::string> notes = {};  ///< one line each below the table
};

/// What a terminal shows of a table.
struct TableStyle {
  int width = 0;       ///< columns to fit into; 0: as wide as it is
  bool color = false;  ///< "no" under "fits" in red, "tight" in yellow
};

/// Aligned columns for a terminal, GitHub markdown, a LaTeX table to be included (package booktabs), RFC 4180 (header
/// row, CRLF-free), or a JSON array of objects. Title and notes appear in the first three only: CSV and JSON hold
/// nothing but data, under the columns' keys. Widths count code points of UTF-8. Rows as wide as the header, numbers in
/// numeric columns and distinct keys are the caller's duty (InternalError).
///
/// A table wider than its style's width first says once what is the same in every row, then breaks headers and words of
/// left-aligned columns into lines, then shows its columns in several parts below each other, each behind the first
/// column.
std::string write_table(const Table& table, Format format, const TableStyle& style = {});

/// Lines of at most `width` columns, broken at blanks, each after the first behind `indent`; 0: as it is.
std::string wrapped(const std::string& text, int width, const std::string& indent = "");

}  // namespace flopcast
