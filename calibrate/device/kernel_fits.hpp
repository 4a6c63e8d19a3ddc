#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/least_squares.hpp"
#include "model/hardware/device.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

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
/// 0 are fitted to relative residuals (least_squares.hpp); the kernel with the least loss is taken. Which branch of the
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

/// Fits t = launch + amount / rate to relative residuals, robustly, both at least 0 (least_squares.hpp).
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

/// Fits beside = alone · (at_none + per_channel · channels) to relative residuals, robustly (least_squares.hpp);
/// at_none and the factor at the most channels measured are at least 0. A collective's channels take multiprocessors
/// from a product in proportion to their number, and its memory bandwidth; left out are the steps in which whole waves
/// of tiles are added. Throws ConfigError with the reason: fewer than three numbers of channels, times that are not
/// finite and above zero, or what ran beside something else faster than alone, by more than a tenth in the median.
OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points);

}  // namespace flopcast
