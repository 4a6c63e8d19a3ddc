#include "base/text/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace flopcast {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kWhite = " \t\r\n\v\f";
  const std::size_t begin = text.find_first_not_of(kWhite);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhite) - begin + 1);
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return lower;
}

std::size_t text_columns(std::string_view text) {
  const auto starts_code_point = [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_code_point));
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string quoted = "'";
  for (const char character : text.substr(0, kLongest)) {
    quoted += character >= ' ' && character <= '~' ? character : '?';
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

std::string printable(std::string_view text) {
  constexpr unsigned char kBlank = 0x20;
  constexpr unsigned char kDelete = 0x7f;
  constexpr unsigned char kSecondOfLatin = 0xc2;  // U+0080 to U+009F are terminal control characters too
  constexpr unsigned char kLastControl = 0x9f;
  std::string shown;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto next = at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : kBlank;
    if (byte == kSecondOfLatin && next >= 0x80 && next <= kLastControl) {
      shown += fmt::format("\\x{:02x}", next);
      ++at;
    } else if ((byte < kBlank && byte != '\n' && byte != '\t') || byte == kDelete) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += text[at];
    }
  }
  return shown;
}

std::string shell_word(std::string_view word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("%+,-./:=@_").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') {
      text += "'\\''";
    } else {
      text += c;
    }
  }
  return text + "'";
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::optional<std::int64_t> parse_whole(std::string_view text) {
  const std::string digits(text);
  errno = 0;
  char* end = nullptr;
  const long long number = std::strtoll(digits.c_str(), &end, 10);
  if (digits.empty() || *end != '\0' || errno != 0) return std::nullopt;
  return number;
}

std::optional<int> parse_digits(std::string_view text, int smallest, int largest) {
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  int number = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || number < smallest || number > largest) return std::nullopt;
  return number;
}

std::optional<double> parse_number(std::string_view text) {
  // Not all supported standard libraries have std::from_chars for double.
  const std::string digits(text);
  char* end = nullptr;
  const double number = std::strtod(digits.c_str(), &end);
  if (digits.empty() || *end != '\0') return std::nullopt;
  return number;
}

std::string percent(double share) {
  return fmt::format("{:.1f}", 100.0 * share);
}

std::string rounded(double value, int digits) {
  const double size = std::abs(value);
  const int before_point = size > 0.0 ? static_cast<int>(std::floor(std::log10(size) + 1e-12)) + 1 : 1;
  const int decimals = std::clamp(digits - before_point, 0, 15);
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

std::string time_in_seconds(double seconds) {
  constexpr int kDigits = 4;
  if (seconds >= 1.0) return rounded(seconds, kDigits) + " s";
  if (seconds >= 1e-3) return rounded(seconds * 1e3, kDigits) + " ms";
  return rounded(seconds * 1e6, kDigits) + " us";
}

std::string time_in_days(double seconds) {
  constexpr double kMinute = 60.0;
  constexpr double kHour = 3600.0;
  constexpr double kDay = 86'400.0;
  if (seconds < kMinute) return fmt::format("{:.3g} s", seconds);
  if (seconds < kHour) return fmt::format("{:.3g} min", seconds / kMinute);
  if (seconds < kDay) return fmt::format("{:.3g} h", seconds / kHour);
  constexpr double kYear = 365.25 * kDay;
  constexpr double kManyYears = 3.0;
  constexpr double kMostYears = 1e9;
  if (!(seconds <= kMostYears * kYear)) return "more than a billion years";
  if (seconds < kManyYears * kYear) return rounded(seconds / kDay, 3) + " days";
  return rounded(seconds / kYear, 3) + " years";
}

std::string thousands(double number) {
  std::string digits = fmt::format("{:.0f}", number);
  constexpr std::size_t kGroup = 3;
  const std::size_t first = digits.front() == '-' ? 1 : 0;
  for (std::size_t place = digits.size(); place > first + kGroup;) {
    place -= kGroup;
    digits.insert(place, ",");
  }
  return digits;
}

std::string dollars(double amount) {
  struct Scale {
    double unit;
    const char* name;
  };
  constexpr Scale kScales[] = {{1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}};
  constexpr double kThreeDigits = 0.9995;  // at or above this, three digits round up to the next scale
  for (const Scale& scale : kScales) {
    if (amount >= kThreeDigits * scale.unit) return "$" + rounded(amount / scale.unit, 3) + scale.name;
  }
  return "$" + rounded(amount, 3);
}

}  // namespace flopcast
