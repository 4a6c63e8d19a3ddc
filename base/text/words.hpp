#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// The whole text as a whole number, with a sign or without; nothing when it is anything else, or too large.
std::optional<std::int64_t> parse_whole(std::string_view text);
/// The whole text as digits alone that say a number from `smallest` to `largest`.
std::optional<int> parse_digits(std::string_view text, int smallest, int largest);
/// The whole text as a number, as C has them: "2.5", "1e-3", also "inf" and "nan", which the caller judges.
std::optional<double> parse_number(std::string_view text);

/// 0.1234: "12.3". The sign is the column's, or the sentence's.
std::string percent(double share);
/// Rounded to `digits` significant digits, never in scientific notation, no trailing zeros.
std::string rounded(double value, int digits);
/// A time of a step or of a part of it, to four digits, in s, ms or us: "1.234 s".
std::string time_in_seconds(double seconds);
/// A time that people wait for, to three digits, in s, min, h, days or years: "2.5 days".
std::string time_in_days(double seconds);
/// A whole number in groups of three: "1,216,287".
std::string thousands(double number);
/// Dollars to three digits: "$950", "$12.3 K", "$1.22 M", "$3 B".
std::string dollars(double amount);

}  // namespace flopcast
