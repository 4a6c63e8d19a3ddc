#include "model/units/quantity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace flopcast {

namespace {

struct Unit {
  std::string_view name;
  double factor;
  bool listed = true;  ///< named in error messages; the others are alternative spellings
};

constexpr double kKi = 1024.0;

const std::vector<Unit>& units_of(Dimension dimension) {
  static const std::vector<Unit> bytes = {{"B", 1},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9},
                                          {"TB", 1e12},
                                          {"KiB", kKi},
                                          {"MiB", kKi * kKi},
                                          {"GiB", kKi * kKi * kKi},
                                          {"TiB", kKi * kKi * kKi * kKi}};
  static const std::vector<Unit> bandwidth = {{"B/s", 1},
                                              {"KB/s", 1e3},
                                              {"MB/s", 1e6},
                                              {"GB/s", 1e9},
                                              {"TB/s", 1e12},
                                              {"KiB/s", kKi},
                                              {"MiB/s", kKi * kKi},
                                              {"GiB/s", kKi * kKi * kKi},
                                              {"Mbit/s", 1e6 / 8},
                                              {"Gbit/s", 1e9 / 8},
                                              {"Tbit/s", 1e12 / 8},
                                              {"Mbps", 1e6 / 8},
                                              {"Gbps", 1e9 / 8},
                                              {"Tbps", 1e12 / 8},
                                              {"Mb/s", 1e6 / 8, false},
                                              {"Gb/s", 1e9 / 8, false},
                                              {"Tb/s", 1e12 / 8, false},
                                              {"Gbit", 1e9 / 8, false},
                                              {"Gb", 1e9 / 8, false}};
  static const std::vector<Unit> time = {{"ps", 1e-12},
                                         {"ns", 1e-9},
                                         {"us", 1e-6},
                                         {"ms", 1e-3},
                                         {"s", 1},
                                         {"min", 60},
                                         {"h", 3600},
                                         {"d", 86400},
                                         {"sec", 1, false},
                                         {"seconds", 1, false},
                                         {"minutes", 60, false},
                                         {"hour", 3600, false},
                                         {"hours", 3600, false},
                                         {"day", 86400, false},
                                         {"days", 86400, false}};
  static const std::vector<Unit> flop_rate = {{"FLOP/s", 1},     {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12},
                                              {"PFLOP/s", 1e15}, {"TFLOPS", 1e12}, {"PFLOPS", 1e15}};
  static const std::vector<Unit> count = {{"", 1},           {"K", 1e3},        {"M", 1e6},
                                          {"B", 1e9},        {"T", 1e12},       {"k", 1e3, false},
                                          {"m", 1e6, false}, {"b", 1e9, false}, {"t", 1e12, false}};
  static const std::vector<Unit> power = {{"W", 1}, {"kW", 1e3}};
  static const std::vector<Unit> frequency = {{"Hz", 1}, {"kHz", 1e3}, {"MHz", 1e6}, {"GHz", 1e9}};
  static const std::vector<Unit> money = {{"", 1}, {"/h", 1}, {"/hr", 1, false}, {"/hour", 1, false}, {"$", 1, false}};
  switch (dimension) {
    case Dimension::kBytes:
      return bytes;
    case Dimension::kBandwidth:
      return bandwidth;
    case Dimension::kTime:
      return time;
    case Dimension::kFlopRate:
      return flop_rate;
    case Dimension::kCount:
      return count;
    case Dimension::kMoney:
      return money;
    case Dimension::kPower:
      return power;
    case Dimension::kFrequency:
      return frequency;
  }
  return count;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return text;
}

// Length of the decimal number at the beginning of `text`: digits, one point, an exponent. Unlike strtod, it accepts no
// hexadecimal, "inf" or "nan", and does not consume the E of "1EB".
std::size_t number_length(std::string_view text) {
  const auto digit_at = [text](std::size_t position) {
    return position < text.size() && std::isdigit(static_cast<unsigned char>(text[position])) != 0;
  };
  std::size_t end = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  std::size_t digits = 0;
  while (digit_at(end)) ++end, ++digits;
  if (end < text.size() && text[end] == '.') {
    ++end;
    while (digit_at(end)) ++end, ++digits;
  }
  if (digits == 0) return 0;
  if (end < text.size() && (text[end] == 'e' || text[end] == 'E')) {
    std::size_t exponent = end + 1;
    if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
    if (digit_at(exponent)) {
      while (digit_at(exponent)) ++exponent;
      end = exponent;
    }
  }
  return end;
}

}  // namespace

ParsedQuantity parse_quantity(std::string_view text, Dimension dimension) {
  std::string_view body = trimmed(text);
  if (dimension == Dimension::kMoney && body.size() > 1 && body.front() == '$') body.remove_prefix(1);
  const std::size_t length = number_length(body);
  if (length == 0) return {std::nullopt, "is not a number"};
  const double number = std::strtod(std::string(body.substr(0, length)).c_str(), nullptr);
  const std::string_view unit_name = trimmed(body.substr(length));
  if (!std::isfinite(number)) return {std::nullopt, "is too large"};
  if (number < 0) return {std::nullopt, "is negative"};
  for (const Unit& unit : units_of(dimension)) {
    if (unit.name != unit_name) continue;
    const double value = number * unit.factor;
    if (!std::isfinite(value)) return {std::nullopt, "is too large"};
    return {value, {}};
  }
  if (unit_name.empty()) {
    if (number == 0.0) return {0.0, {}};
    return {std::nullopt, "has no unit"};
  }
  return {std::nullopt, fmt::format("has an unknown unit \"{}\"", unit_name)};
}

std::string quantity_text(double value, Dimension dimension) {
  const auto& units = units_of(dimension);
  const std::string_view usual = dimension == Dimension::kBytes       ? "GiB"
                                 : dimension == Dimension::kBandwidth ? "GB/s"
                                 : dimension == Dimension::kTime      ? "us"
                                 : dimension == Dimension::kFlopRate  ? "TFLOP/s"
                                 : dimension == Dimension::kFrequency ? "MHz"
                                                                      : "W";
  for (const Unit& unit : units) {
    if (unit.name != usual) continue;
    std::string text = fmt::format("{}{}", value / unit.factor, unit.name);
    if (parse_quantity(text, dimension).value == value) return text;
  }
  const auto base = std::find_if(units.begin(), units.end(), [](const Unit& unit) { return unit.factor == 1.0; });
  return fmt::format("{}{}", value, base->name);
}

std::string accepted_units(Dimension dimension) {
  std::string names;
  for (const Unit& unit : units_of(dimension)) {
    if (unit.name.empty() || !unit.listed) continue;
    if (!names.empty()) names += ", ";
    names += unit.name;
  }
  return names;
}

}  // namespace flopcast
