#pragma once

#include <string>
#include <vector>

#include "model/error/error.hpp"

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

}  // namespace flopcast
