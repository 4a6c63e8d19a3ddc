#pragma once

#include <string>
#include <vector>

#include "sim/forecast/interval.hpp"

namespace flopcast {

/// How often measured steps lie inside the interval of a forecast that knows nothing of their model: neither its
/// constants nor the interval's errors come from it.
struct Coverage {
  std::string device;
  std::string stack;
  int models = 0;
  int rows = 0;
  int covered = 0;
  double half_width = 0.0;  ///< mean over the rows
};

/// By device and stack, then one of all with both empty. Errors of devices forecast as other generations are left out.
std::vector<Coverage> interval_coverage(const std::vector<HeldOutErrors>& known);

}  // namespace flopcast
