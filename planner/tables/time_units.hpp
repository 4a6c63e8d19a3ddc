#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sim/program/step_times.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Ticks of an abstract schedule in the user's unit: six decimals are exact, and so are shares of up to ten chunks or
/// slices of a whole unit.
inline constexpr Ticks kTicksPerUnit = 63'000'000;

/// In the user's unit, rounded to six decimals.
double in_units(double ticks);
double in_units(Ticks ticks);
/// The same as text, without zeros at the end.
std::string units_text(Ticks ticks);

/// "2.5": one number, or a comma list. Throws ConfigError for signs, exponents, units and more than six decimals.
std::vector<Ticks> parse_times(const std::string& flag, std::string_view text);
Ticks parse_time(const std::string& flag, std::string_view text);

/// A simulated timeline in millionths of the user's unit, which are what reports draw and traces write.
Timeline in_millionths(Timeline timeline);

}  // namespace flopcast
