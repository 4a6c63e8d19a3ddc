#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// The parts between the separators, empty ones too: "a,,b" has three, "" has one.
std::vector<std::string> split(std::string_view text, char separator = ',');

/// Without the white space around it.
std::string_view trim(std::string_view text);

/// ASCII letters in lower case, all else as it is.
std::string lower_case(std::string_view text);

/// The columns of a terminal that the text takes: code points of UTF-8.
std::size_t text_columns(std::string_view text);

inline constexpr std::string_view kDecimalDigits = "0123456789";

/// A user's text in quotes, fit for an error message: at most 40 characters, unprintable bytes as '?'.
std::string quote(std::string_view text);

/// A text of a file as a terminal may show it: control characters but line breaks and tabulators as \\x1b.
std::string printable(std::string_view text);

/// A word as a shell takes it: in single quotes where it needs them.
std::string shell_word(std::string_view word);

/// A text as JSON writes it, in quotes; bytes that are no UTF-8 are replaced.
std::string json_text(std::string_view text);

}  // namespace flopcast
