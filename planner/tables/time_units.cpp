#include "planner/tables/time_units.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstddef>
#include <limits>

#include "base/text/error.hpp"
#include "base/text/words.hpp"

namespace flopcast {

namespace {

constexpr int kDecimals = 6;
constexpr Ticks kDecimalsPerUnit = 1'000'000;
static_assert(kTicksPerUnit % kDecimalsPerUnit == 0);

[[noreturn]] void refuse(const std::string& flag, const std::string& problem) {
  throw ConfigError(
      {flag, problem, "", "expected a time without unit, such as 10 or 2.5: not negative, at most six decimals"});
}

}  // namespace

double in_units(double ticks) {
  constexpr auto kDecimalsOfUnit = static_cast<double>(kDecimalsPerUnit);
  return std::round(ticks / static_cast<double>(kTicksPerUnit) * kDecimalsOfUnit) / kDecimalsOfUnit;
}

double in_units(Ticks ticks) {
  return in_units(static_cast<double>(ticks));
}

std::string units_text(Ticks ticks) {
  return fmt::format("{}", in_units(ticks));
}

Ticks parse_time(const std::string& flag, std::string_view text) {
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view decimals = point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const auto all_digits = [](std::string_view digits) {
    return std::all_of(digits.begin(), digits.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  };
  const bool is_number = all_digits(whole) && all_digits(decimals) && !(whole.empty() && decimals.empty());
  if (!is_number) refuse(flag, fmt::format("\"{}\" is not a time without unit", text));
  if (decimals.size() > kDecimals) refuse(flag, fmt::format("\"{}\" has more than six decimals", text));
  constexpr Ticks kTicksPerDecimal = kTicksPerUnit / kDecimalsPerUnit;
  constexpr Ticks kLargest = std::numeric_limits<Ticks>::max() / kTicksPerDecimal;
  Ticks value = 0;
  std::string digits(whole);
  digits += decimals;
  digits.append(kDecimals - decimals.size(), '0');
  for (const char character : digits) {
    const Ticks digit = character - '0';
    if (value > (kLargest - digit) / 10) refuse(flag, fmt::format("\"{}\" is too large", text));
    value = value * 10 + digit;
  }
  return value * kTicksPerDecimal;
}

std::vector<Ticks> parse_times(const std::string& flag, std::string_view text) {
  std::vector<Ticks> times;
  for (const std::string& part : split(text)) times.push_back(parse_time(flag, part));
  return times;
}

Timeline in_millionths(Timeline timeline) {
  const auto rescale = [](Ticks& time) {
    constexpr Ticks kTicks = kTicksPerUnit / kDecimalsPerUnit;
    time = (time + kTicks / 2) / kTicks;
  };
  for (std::vector<Span>& spans : timeline.ranks) {
    for (Span& span : spans) {
      rescale(span.start);
      rescale(span.end);
    }
  }
  for (Transfer& transfer : timeline.transfers) {
    rescale(transfer.start);
    rescale(transfer.end);
  }
  timeline.units_per_tick = 1.0 / static_cast<double>(kDecimalsPerUnit);
  return timeline;
}

}  // namespace flopcast
