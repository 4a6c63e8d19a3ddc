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

/// The middle value; of an even number the lower, or the upper, of the middle two. Zero of nothing.
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

/// What rows of measurements tell of a few unknowns: normal, about `at`.
struct Posterior {
  std::vector<double> at;
  std::vector<double> covariance;  ///< row by row, as wide as `at`
  std::vector<double> weights;     ///< of the rows: what an outlier counts
  double noise = 0.0;              ///< of a row whose distance is 1, one standard deviation

  double spread(std::size_t unknown) const;
  /// The covariance times a vector.
  std::vector<double> times(const std::vector<double>& slopes) const;
  /// One standard deviation of slopes · unknowns.
  double spread_along(const std::vector<double>& slopes) const;
};

/// Rows left ≈ slopes · unknowns, each off by distance · noise.
struct RobustRows {
  std::vector<std::vector<double>> slopes;  ///< by row
  std::vector<double> left;
  std::vector<double> distances;
  std::vector<double> prior_spreads;  ///< of the unknowns about 0
  double usual_noise = 0.0;
  double prior_rows = 0.0;  ///< residuals of the usual noise that it counts as
};

/// Gaussian priors, and rows of Student's t with four degrees of freedom, by weighing them anew (Lange, Little &
/// Taylor, Robust statistical modeling using the t distribution, 1989).
Posterior robust_posterior(const RobustRows& rows);

double dot_product(const std::vector<double>& a, const std::vector<double>& b);

struct MessagePoint {
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Its points are by ascending size, each left out but the ends, predicted by a curve through the others.
struct MessageFit : FitQuality {
  MessageCurve curve;
};

inline constexpr int kFewestSizes = 4;
struct SegmentCount {
  int most = 4;
  bool exactly = false;  ///< that many, unless the sizes are too few
};

/// The piecewise-affine curve through measured messages. Sizes given several times count by their median; more than 64
/// sizes are pooled into 64, neighbours by their medians. Several pieces go through the nearest times that never fall
/// (isotonic regression of least absolute differences), because an outlier that a piece follows upwards would stay in
/// the curve. Where pieces begin is found by dynamic programming over the sorted sizes: the least sum of Huber's losses
/// of the relative residuals (fit_relative) for each number of pieces, each of at least three sizes. Of those
/// numbers the one with the least n·ln(loss/n) + 3·pieces·ln n over the measured times is taken (Schwarz 1978: a piece
/// has an alpha, a beta and a start). At most 1 gives the plain alpha-beta model.
///
/// Throws ConfigError, with the reason, when a size or time is not finite and above zero, when there are fewer than
/// four sizes, when times fall as sizes grow (a size at least four times as large that takes less than 70 % of the time
/// belongs to a disturbed or mislabelled run), or when sixteen or more pairs of neighbours, at most a tenth apart in
/// size, differ by more than 20 % in the median. `what` names the data in the complaint.
MessageFit fit_message_curve(const std::string& what, const std::vector<MessagePoint>& given, SegmentCount count = {});

struct GemmPoint {
  GemmShape shape;
  double seconds = 0.0;
};

/// Which kernels are tried.
struct GemmSearch {
  std::vector<int> tiles;               ///< GemmKernel::tile; 0: a GPU library's six
  std::vector<double> overhead_depths;  ///< GemmKernel::overhead_depth
  bool overlapped = true;
  std::vector<double> wave_shares = {1.0};  ///< GemmKernel::wave_share
};
const GemmSearch& gpu_gemm_search();
const GemmSearch& cpu_gemm_search();

/// Up to 32 shapes are left out, each predicted by a fit of the others with the same kernel.
struct GemmFit : FitQuality {
  Seconds launch;
  FlopsPerSecond rate;                   ///< of all multiprocessors, tiles full and deep
  std::optional<BytesPerSecond> stream;  ///< of operands and result; absent where no shape shows it
  GemmKernel kernel;                     ///< memory_efficiency is the caller's to set
};

inline constexpr int kFewestShapes = 6;

/// Fits the GEMM model of the forecast itself (model/cost/compute.hpp) to measured products of one precision:
///   t = launch + max(c · busy, s · moved), or the sum of the three where the device does not overlap,
/// with tiles and waves on `multiprocessors` inside `busy`. For every kernel of the search the unknowns launch, c, s ≥
/// 0 are fitted to relative residuals (fit_relative); the kernel with the least loss is taken. Which branch of the
/// maximum a shape is on is found by repetition: every shape on the slower one under the last unknowns.
///
/// Throws ConfigError with the reason: fewer than six shapes, times that are not finite and above zero, work that grows
/// a hundredfold within one time (nothing was computed), or no rate above zero.
GemmFit fit_gemm(const std::string& what, const std::vector<GemmPoint>& points, Precision precision,
                 int multiprocessors, const GemmSearch& search);

/// A kernel of one name: how much it had to move or to compute, and how long that took.
struct OperatorPoint {
  std::string label;
  double amount = 0.0;  ///< bytes of what memory bounds, FLOPs of attention
  double seconds = 0.0;
};

/// Up to 32 points are left out, each predicted from the others.
struct OperatorFit : FitQuality {
  Seconds launch;
  double rate = 0.0;  ///< amount a second, without the launch
};

inline constexpr int kFewestAmounts = 3;

/// Fits t = launch + amount / rate to relative residuals, robustly, both at least 0 (fit_relative).
/// Throws ConfigError with the reason: fewer than three amounts, times or amounts that are not finite and above zero,
/// or times that do not grow with the amount.
OperatorFit fit_operator(const std::string& what, const std::vector<OperatorPoint>& points);

/// Something alone, and beside something else that has so many channels.
struct OverlapPoint {
  std::string label;
  int channels = 0;
  double alone_s = 0.0;
  double beside_s = 0.0;
};

/// The x of its points are channels; all samples of a number of channels are left out, predicted from the other
/// numbers.
struct OverlapFit : FitQuality {
  double at_none = 1.0;      ///< time beside over time alone, extrapolated to no channel
  double per_channel = 0.0;  ///< what each channel adds to it; below zero where more channels disturb less
};

inline constexpr int kFewestChannels = 3;

/// Fits beside = alone · (at_none + per_channel · channels) to relative residuals, robustly (fit_relative);
/// at_none and the factor at the most channels measured are at least 0. A collective's channels take multiprocessors
/// from a product in proportion to their number, and its memory bandwidth; left out are the steps in which whole waves
/// of tiles are added. Throws ConfigError with the reason: fewer than three numbers of channels, times that are not
/// finite and above zero, or what ran beside something else faster than alone, by more than a tenth in the median.
OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points);

}  // namespace flopcast
