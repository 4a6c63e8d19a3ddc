#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/words.hpp"

namespace flopcast {

/// A number with a dimension. Only physically meaningful operators exist, so bytes cannot be added to seconds and a
/// rate cannot be mistaken for an amount. The unit is the SI base unit of the dimension (s, B, FLOP, B/s, FLOP/s).
template <class Dimension>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  constexpr double value() const { return value_; }

  constexpr Quantity& operator+=(Quantity other) {
    value_ += other.value_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value_ -= other.value_;
    return *this;
  }
  constexpr Quantity& operator*=(double factor) {
    value_ *= factor;
    return *this;
  }

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, double factor) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator*(double factor, Quantity a) { return Quantity(a.value_ * factor); }
  friend constexpr Quantity operator/(Quantity a, double divisor) { return Quantity(a.value_ / divisor); }
  /// The ratio of two quantities of the same dimension is a plain number.
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

  friend constexpr bool operator==(Quantity a, Quantity b) { return a.value_ == b.value_; }
  friend constexpr std::partial_ordering operator<=>(Quantity a, Quantity b) { return a.value_ <=> b.value_; }

 private:
  double value_ = 0.0;
};

using Seconds = Quantity<struct SecondsDimension>;
using Bytes = Quantity<struct BytesDimension>;
using Flops = Quantity<struct FlopsDimension>;
using BytesPerSecond = Quantity<struct BytesPerSecondDimension>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondDimension>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds(amount.value() / rate.value());
}
constexpr Seconds operator/(Flops work, FlopsPerSecond rate) {
  return Seconds(work.value() / rate.value());
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return BytesPerSecond(amount.value() / time.value());
}
constexpr FlopsPerSecond operator/(Flops work, Seconds time) {
  return FlopsPerSecond(work.value() / time.value());
}
constexpr Bytes operator*(BytesPerSecond rate, Seconds time) {
  return Bytes(rate.value() * time.value());
}
constexpr Flops operator*(FlopsPerSecond rate, Seconds time) {
  return Flops(rate.value() * time.value());
}

inline constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double gibibytes(Bytes amount) {
  return amount.value() / kGibibyte;
}

enum class Dimension { kBytes, kBandwidth, kTime, kFlopRate, kCount, kMoney, kPower, kFrequency };

/// A quantity written by a user, in SI base units: B, B/s, s, FLOP/s, a plain count, US dollars, W, Hz.
struct ParsedQuantity {
  std::optional<double> value;
  std::string problem;  ///< error if there is no value: "has no unit", "is not a number", …
};

/// Parses "80GiB", "450GB/s", "400Gbit/s", "5us", "312TFLOP/s", "1410MHz", "300B" (tokens: K, M, B, T), "2.5". Bits are
/// divided by eight; GB is 1e9 and GiB is 2^30. Rejects non-zero numbers without a unit (counts and money need none),
/// negative, infinite and not-a-number values, and any text after the unit.
ParsedQuantity parse_quantity(std::string_view text, Dimension dimension);

/// The value as text that parse_quantity reads back bit for bit: in GiB, GB/s, us, TFLOP/s, W or MHz if that is exact,
/// otherwise in the base unit. For dimensions that have units.
std::string quantity_text(double value, Dimension dimension);

/// The units of a dimension, for messages: "B, KB, MB, GB, TB, KiB, MiB, GiB, TiB".
std::string accepted_units(Dimension dimension);

}  // namespace flopcast
