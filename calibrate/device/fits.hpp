#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "model/hardware/cluster.hpp"
#include "model/hardware/device.hpp"
#include "model/job/device_profile.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// The middle value; for an even count, the lower or the upper of the two middle values. Zero if there are no values.
template <class Value>
Value middle_of(std::vector<Value> values, std::size_t place) {
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}
template <class Value>
Value lower_median(const std::vector<Value>& values) {
  return middle_of(values, (std::max<std::size_t>(values.size(), 1) - 1) / 2);
}
template <class Value>
Value upper_median(const std::vector<Value>& values) {
  return middle_of(values, values.size() / 2);
}
/// The middle value; the mean of the two middle values for an even count. Zero if there are no values.
double median_of(std::vector<double> values);
/// The value below which `share` of the values lie, interpolated between neighbours. Zero if there are no values.
double quantile_of(std::vector<double> values, double share);

/// Distance of a fit from the measurement, as |fitted / measured - 1|. R² is not reported: it was 1.0000 for a fit that
/// was off by 224 %, because the largest message outweighs all others.
struct RelativeErrors {
  int samples = 0;
  double median = 0.0;
  double p95 = 0.0;
  double largest = 0.0;
};
RelativeErrors relative_errors(const std::vector<double>& fitted, const std::vector<double>& measured);

RelativeErrors relative_errors(const std::vector<ProfilePoint>& points);

/// Points and errors of one fit.
struct FitQuality {
  std::vector<ProfilePoint> points;
  RelativeErrors errors;
  RelativeErrors left_out;  ///< each point predicted from the others

  /// The fit in the form that a profile stores; `unit` is the unit of the points' x.
  ProfileFit told(const std::string& what, const std::string& unit) const {
    return {what, unit, errors.median, errors.p95, errors.largest, left_out.median, points};
  }
};

/// Errors of predicting points from the others (leave-one-out), for every `stride`-th point in [first, end). `predict`
/// takes the other points and the one left out and returns its fitted and its measured value.
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

/// Reports why data cannot be fitted by throwing ConfigError; `what` names the data, such as "gemm fp32".
[[noreturn]] void refuse_fit(const std::string& what, const std::string& problem, const std::string& help);

/// A sentence which says that an optional fit, one that no figure depends on, was refused; the rest of the profile is
/// still built.
std::string not_fitted(const ConfigError& refusal);

/// min ‖A x - b‖² with x ≥ 0, for at most 6 unknowns: every subset of unknowns that may be above zero is solved by QR,
/// and the best feasible solution is returned. Exact, with 2^unknowns solves. Columns are first scaled to equal norm,
/// because a latency in seconds and a slope in seconds per byte are ten orders of magnitude apart. All `rows` must have
/// the same length (InternalError).
std::vector<double> solve_non_negative(const std::vector<std::vector<double>>& rows, const std::vector<double>& right);

/// One sample of a linear model: measured ≈ Σ terms · unknowns.
struct FitRow {
  std::vector<double> terms;
  double measured = 0.0;
};

struct RelativeFit {
  std::vector<double> unknowns;  ///< all ≥ 0
  double loss = 0.0;             ///< Σ of Huber's loss over the relative residuals
};

/// r²/2 up to `threshold`, threshold · (|r| - threshold/2) beyond, so that an outlier has no more influence than a
/// residual equal to the threshold (Huber 1964).
inline constexpr double kHuberThreshold = 0.1;
double huber_loss(double residual, double threshold = kHuberThreshold);

/// Fits the relative residuals r = fitted / measured - 1 with Huber's loss, so that a message of 1 KB counts as much as
/// one of 1 GB. Iteratively reweighted least squares around solve_non_negative, until the loss no longer falls. All
/// measured times must be above zero (InternalError).
RelativeFit fit_relative(const std::vector<FitRow>& rows, double threshold = kHuberThreshold);

/// Normal distribution of a few unknowns given measured rows, with mean `at`.
struct Posterior {
  std::vector<double> at;
  std::vector<double> covariance;  ///< row-major, at.size() columns
  std::vector<double> weights;     ///< one per row; an outlier has a small one
  double noise = 0.0;              ///< one standard deviation of a row whose distance is 1

  double spread(std::size_t unknown) const;
  /// The covariance times a vector.
  std::vector<double> times(const std::vector<double>& slopes) const;
  /// One standard deviation of slopes · unknowns.
  double spread_along(const std::vector<double>& slopes) const;
};

/// The linear model left ≈ slopes · unknowns; the residual of a row is about distance · noise.
struct RobustRows {
  std::vector<std::vector<double>> slopes;  ///< one vector per row
  std::vector<double> left;
  std::vector<double> distances;
  std::vector<double> prior_spreads;  ///< standard deviations of the unknowns' priors, whose means are 0
  double usual_noise = 0.0;
  double prior_rows = 0.0;  ///< number of residuals of the usual noise that the prior for the noise counts as
};

/// Posterior under Gaussian priors, with Student's t errors of four degrees of freedom, computed by iterative
/// reweighting (Lange, Little & Taylor, Robust statistical modeling using the t distribution, 1989).
Posterior robust_posterior(const RobustRows& rows);

double dot_product(const std::vector<double>& a, const std::vector<double>& b);

struct MessagePoint {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Points are sorted by size. Each except the first and the last is left out once and predicted by a curve through the
/// others.
struct MessageFit : FitQuality {
  MessageCurve curve;
};

inline constexpr int kFewestSizes = 4;
struct SegmentCount {
  int most = 4;
  bool exactly = false;  ///< use exactly `most` segments, or as many as the sizes allow
};

/// Fits a piecewise-affine curve to measured messages. A size measured several times counts with its median; more than
/// 64 sizes are pooled into 64, neighbours by their medians. If there are several segments, they are fitted to the
/// nearest non-decreasing times (isotonic regression with least absolute differences), because an outlier that a
/// segment followed upwards would stay in the curve. Dynamic programming over the sorted sizes finds where the segments
/// begin: for each number of segments, the least sum of Huber's losses of the relative residuals (fit_relative), with
/// at least three sizes per segment. The number with the least n·ln(loss/n) + 3·segments·ln n over the measured times
/// is chosen (Schwarz 1978: a segment has an alpha, a beta and a start). At most one segment gives the plain alpha-beta
/// model.
///
/// Throws ConfigError with the reason if a size or time is not finite and above zero, if there are fewer than four
/// sizes, if times fall as sizes grow (a size at least four times as large that takes less than 70 % of the time comes
/// from a disturbed or mislabelled run), or if sixteen or more pairs of neighbours, at most a tenth apart in size,
/// differ by more than 20 % in the median. `what` names the data in the message.
MessageFit fit_message_curve(const std::string& what, const std::vector<MessagePoint>& given, SegmentCount count = {});

struct GemmPoint {
  GemmShape shape;
  double seconds = 0.0;
};

/// GEMM kernels that a fit tries.
struct GemmSearch {
  std::vector<int> tiles;               ///< GemmKernel::tile; 0: a GPU library's six
  std::vector<double> overhead_depths;  ///< GemmKernel::overhead_depth
  bool overlapped = true;
  std::vector<double> wave_shares = {1.0};  ///< GemmKernel::wave_share
};
const GemmSearch& gpu_gemm_search();
const GemmSearch& cpu_gemm_search();

/// Up to 32 shapes are left out once, each predicted by a fit of the others with the same kernel.
struct GemmFit : FitQuality {
  Seconds launch;
  FlopsPerSecond rate;                   ///< of all multiprocessors, with full and deep tiles
  std::optional<BytesPerSecond> stream;  ///< of operands and result; absent if no shape depends on it
  GemmKernel kernel;                     ///< the caller sets memory_efficiency
};

inline constexpr int kFewestShapes = 6;

/// Fits the forecast's own GEMM model (model/cost/compute.hpp) to measured GEMMs of one precision:
///   t = launch + max(c · busy, s · moved), or the sum of the three terms if the device does not overlap them,
/// where `busy` includes the tiles and waves on `multiprocessors`. For every kernel of the search, the unknowns launch,
/// c, s ≥ 0 are fitted to relative residuals (fit_relative); the kernel with the least loss wins. Iteration decides
/// which branch of the maximum a shape is on: in each round every shape takes the slower branch under the previous
/// unknowns.
///
/// Throws ConfigError with the reason: fewer than six shapes, times that are not finite and above zero, times that do
/// not grow while the work grows a hundredfold (nothing was computed), or no rate above zero.
GemmFit fit_gemm(const std::string& what, const std::vector<GemmPoint>& points, Precision precision,
                 int multiprocessors, const GemmSearch& search);

/// One kernel: the amount it moves or computes, and the time it took.
struct OperatorPoint {
  std::string label;
  double amount = 0.0;  ///< bytes for memory-bound kernels, FLOPs for attention
  double seconds = 0.0;
};

/// Up to 32 points are left out once, each predicted from the others.
struct OperatorFit : FitQuality {
  Seconds launch;
  double rate = 0.0;  ///< amount per second, without the launch
};

inline constexpr int kFewestAmounts = 3;

/// Fits t = launch + amount / rate to relative residuals (fit_relative), with launch and 1 / rate at least 0. Throws
/// ConfigError with the reason: fewer than three amounts, times or amounts that are not finite and above zero, or times
/// that do not grow with the amount.
OperatorFit fit_operator(const std::string& what, const std::vector<OperatorPoint>& points);

/// Time of a sample alone, and overlapped with another that has `channels` channels.
struct OverlapPoint {
  std::string label;
  int channels = 0;
  double alone_s = 0.0;
  double overlapped_s = 0.0;
};

/// The x of the points is the number of channels; all samples with the same number are left out together and predicted
/// from the rest.
struct OverlapFit : FitQuality {
  double at_none = 1.0;      ///< overlapped time over time alone, extrapolated to zero channels
  double per_channel = 0.0;  ///< slowdown that each channel adds; negative if more channels disturb less
};

inline constexpr int kFewestChannels = 3;

/// Fits overlapped = alone · (at_none + per_channel · channels) to relative residuals (fit_relative); at_none and the
/// factor at the most channels measured are at least 0. A collective's channels take multiprocessors, and memory
/// bandwidth, from a GEMM in proportion to their number; the steps in which whole waves of tiles are added are not
/// modelled. Throws ConfigError with the reason: fewer than three channel counts, times that are not finite and above
/// zero, or samples that ran faster overlapped than alone, by more than a tenth in the median.
OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points);

}  // namespace flopcast
