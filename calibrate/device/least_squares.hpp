#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/job/device_profile.hpp"

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

RelativeErrors relative_errors(const std::vector<ProfilePoint>& points);

/// How well something was fitted.
struct FitQuality {
  std::vector<ProfilePoint> points;
  RelativeErrors errors;
  RelativeErrors left_out;  ///< each point predicted from others

  /// As a profile tells it; `unit` is that of the points' x.
  ProfileFit told(const std::string& what, const std::string& unit) const {
    return {what, unit, errors.median, errors.p95, errors.largest, left_out.median, points};
  }
};

/// The errors of predicting points from the others: every `stride`-th of those from `first` to before `end`.
/// `predict` makes of the others and the point left out what was fitted and measured of it.
template <class Point, class Predict>
RelativeErrors errors_left_out(const std::vector<Point>& points, std::size_t first, std::size_t end, std::size_t stride,
                               const Predict& predict) {
  std::vector<double> fitted;
  std::vector<double> measured;
  for (std::size_t left = first; left < end; left += stride) {
    std::vector<Point> others = points;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(left));
    const auto [guess, truth] = predict(others, points[left]);
    fitted.push_back(guess);
    measured.push_back(truth);
  }
  return relative_errors(fitted, measured);
}

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
