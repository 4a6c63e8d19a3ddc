#include "sim/variation/percentile.hpp"

#include <algorithm>
#include <cstddef>

#include "model/error/error.hpp"

namespace flopcast {

double percentile(std::vector<double> values, double share) {
  FLOPCAST_CHECK(!values.empty() && share >= 0.0 && share <= 1.0);
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  if (below + 1 >= values.size()) return values.back();
  return values[below] + (place - static_cast<double>(below)) * (values[below + 1] - values[below]);
}

}  // namespace flopcast
