#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/text/words.hpp"

namespace flopcast {

enum class Dimension { kBytes, kBandwidth, kTime, kFlopRate, kCount, kMoney, kPower };

/// A quantity written by a user, in SI base units: B, B/s, s, FLOP/s, a plain count, US dollars, W.
struct ParsedQuantity {
  std::optional<double> value;
  std::string problem;  ///< what is wrong, when there is no value: "has no unit", "is not a number", …
};

/// Reads "80GiB", "450GB/s", "400Gbit/s", "5us", "312TFLOP/s", "300B" (tokens: K, M, B, T), "2.5".
/// Bits are divided by eight; GB is 1e9 and GiB is 2^30. A non-zero number without a unit is refused (counts and money
/// need none), and so are negative, infinite and not-a-number values and anything after the unit.
ParsedQuantity parse_quantity(std::string_view text, Dimension dimension);

/// The value as text that parse_quantity reads back, bit for bit: in GiB, GB/s, us, TFLOP/s or W where that is exact,
/// else in the base unit. For the dimensions that have units.
std::string quantity_text(double value, Dimension dimension);

/// The units of a dimension, for messages: "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB".
std::string accepted_units(Dimension dimension);

}  // namespace flopcast
