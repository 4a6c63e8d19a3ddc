#pragma once

#include <string>
#include <vector>

#include "base/text/error.hpp"

namespace flopcast {

/// The middle value; the mean of the middle two of an even number. Zero of nothing.
double median_of(std::vector<double> values);
/// The value below which `share` of the values lie, interpolated between neighbours. Zero of nothing.
double quantile_of(std::vector<double> values, double share);

/// How far a fit is from what was measured, as |fitted / measured - 1|. R² is not among them: it was 1.0000 on a fit
/// that missed by 224 %, because the largest message outweighs all others.
struct RelativeErrors {
  int samples = 0;
  double median = 0.0;
  double p95 = 0.0;
  double largest = 0.0;
};
RelativeErrors relative_errors(const std::vector<double>& fitted, const std::vector<double>& measured);

/// One sample with what the fit says of it.
struct FittedPoint {
  std::string label;
  double x = 0.0;  ///< bytes of a message, FLOPs of a product
  double measured_s = 0.0;
  double fitted_s = 0.0;

  double relative_error() const { return fitted_s / measured_s - 1.0; }
};
RelativeErrors relative_errors(const std::vector<FittedPoint>& points);

/// Why data cannot be fitted. Throws ConfigError with it; `what` names the data: "gemm fp32".
[[noreturn]] void refuse_fit(const std::string& what, const std::string& problem, const std::string& help);

/// That a fit of which no figure follows was refused, as a sentence: the rest of a profile is made without it.
std::string not_fitted(const ConfigError& refusal);

/// min ‖A x - b‖² with x ≥ 0, for at most 6 unknowns: every set of unknowns that may be above zero is solved by QR, the
/// best feasible one is the answer. Exact, 2^unknowns solves; columns are scaled to the same length first, because a
/// latency in seconds and a slope in seconds a byte lie ten decimal orders apart. `rows` must be equally long
/// (InternalError).
std::vector<double> solve_non_negative(const std::vector<std::vector<double>>& rows, const std::vector<double>& right);

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
