#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flopcast {

/// Splits at each separator and keeps empty parts: "a,,b" has three, "" has one.
std::vector<std::string> split(std::string_view text, char separator = ',');

/// Removes surrounding white space.
std::string_view trim(std::string_view text);

/// Lower-cases ASCII letters only.
std::string lower_case(std::string_view text);

/// Width of the text in terminal columns, counted as UTF-8 code points.
std::size_t text_columns(std::string_view text);

inline constexpr std::string_view kDecimalDigits = "0123456789";

/// User input in quotes for an error message: at most 40 characters, unprintable bytes as '?'.
std::string quote(std::string_view text);

/// Text made safe for a terminal: control characters other than newline and tab become \\x1b and so on.
std::string printable(std::string_view text);

/// A word quoted for a shell, in single quotes if needed.
std::string shell_word(std::string_view word);

/// A quoted JSON string; invalid UTF-8 is replaced.
std::string json_text(std::string_view text);

/// Parses the whole text as an integer with optional sign; nothing if it is anything else or too large.
std::optional<std::int64_t> parse_whole(std::string_view text);
/// Parses the whole text as a number from `smallest` to `largest` that consists of digits only.
std::optional<int> parse_digits(std::string_view text, int smallest, int largest);
/// Parses the whole text as a C number: "2.5", "1e-3", also "inf" and "nan", which the caller must check.
std::optional<double> parse_number(std::string_view text);

/// 0.1234: "12.3". The percent sign is added by the column header or sentence.
std::string percent(double share);
/// Rounds to `digits` significant digits; never scientific notation, no trailing zeros.
std::string rounded(double value, int digits);
/// Duration of a step or a part of it, to four digits, in s, ms or us: "1.234 s".
std::string time_in_seconds(double seconds);
/// Duration that people wait for, to three digits, in s, min, h, days or years: "2.5 days".
std::string time_in_days(double seconds);
/// An integer with thousands separators: "1,216,287".
std::string thousands(double number);
/// Dollars to three digits: "$950", "$12.3 K", "$1.22 M", "$3 B".
std::string dollars(double amount);

}  // namespace flopcast
