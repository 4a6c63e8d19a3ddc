#pragma once

#include <string>
#include <vector>

#include "sim/forecast/forecast.hpp"

namespace flopcast {

/// What practitioners go by, and whether a layout does.
struct RuleOfThumb {
  std::string rule;
  std::string source;
  bool followed = false;
  std::string here;  ///< the figures of the layout
};
std::vector<RuleOfThumb> rules_of_thumb(const Forecast& forecast);

}  // namespace flopcast
