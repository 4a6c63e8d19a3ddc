#pragma once

#include <string>
#include <vector>

#include "calibrate/device/fit/errors.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// A kernel of one name: how much it had to move or to compute, and how long that took.
struct OperatorPoint {
  std::string label;
  double amount = 0.0;  ///< bytes of what memory bounds, FLOPs of attention
  double seconds = 0.0;
};

struct OperatorFit {
  Seconds launch;
  double rate = 0.0;  ///< amount a second, without the launch
  std::vector<FittedPoint> points;
  RelativeErrors errors;
  RelativeErrors left_out;  ///< up to 32 points, each predicted from the others
};

inline constexpr int kFewestAmounts = 3;

/// Fits t = launch + amount / rate to relative residuals, robustly, both at least 0 (relative_fit.hpp).
/// Throws ConfigError with the reason: fewer than three amounts, times or amounts that are not finite and above zero,
/// or times that do not grow with the amount.
OperatorFit fit_operator(const std::string& what, const std::vector<OperatorPoint>& points);

}  // namespace flopcast
