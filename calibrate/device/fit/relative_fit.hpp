#pragma once

#include <vector>

namespace flopcast {

/// What a linear model says of one sample: measured ≈ Σ terms · unknowns.
struct FitRow {
  std::vector<double> terms;
  double measured = 0.0;
};

struct RelativeFit {
  std::vector<double> unknowns;  ///< all ≥ 0
  double loss = 0.0;             ///< Σ of Huber's loss over the relative residuals
};

/// r²/2 up to `threshold`, threshold · (|r| - threshold/2) beyond, so that an outlier pulls no harder than a residual
/// of the threshold (Huber 1964).
inline constexpr double kHuberThreshold = 0.1;
double huber_loss(double residual, double threshold = kHuberThreshold);

/// Fits the relative residuals r = fitted / measured - 1, so that a message of 1 KB counts as much as one of 1 GB, with
/// Huber's loss. Iteratively reweighted least squares around solve_non_negative, until the loss no longer falls. All
/// measured times must be above zero (InternalError).
RelativeFit fit_relative(const std::vector<FitRow>& rows, double threshold = kHuberThreshold);

}  // namespace flopcast
