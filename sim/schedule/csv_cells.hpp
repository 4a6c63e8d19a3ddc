#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace flopcast {

/// A cell of a schedule's text; line and cell count from 1.
struct CsvPlace {
  std::string_view file;
  std::size_t line = 1;
  std::size_t cell = 1;
};

/// Calls `visit` with every cell of the text, line by line, without blanks and quotes around it; a byte order mark,
/// CRLF and blank lines at the end are accepted. Returns the number of lines. Throws ConfigError (field "schedule") on
/// an open quote and on more lines than a program can have ranks.
std::size_t for_each_cell(std::string_view text, std::string_view file_name,
                          const std::function<void(std::string_view, const CsvPlace&)>& visit);

/// Throws ConfigError (field "schedule", where "file.csv:LINE:CELL").
[[noreturn]] void fail_at(const CsvPlace& place, std::string problem, std::string help);
/// The same for a text that is no cell; the help says what it may have been meant to be.
[[noreturn]] void fail_at_cell(const CsvPlace& place, std::string_view cell);

}  // namespace flopcast
