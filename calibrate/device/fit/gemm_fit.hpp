#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calibrate/device/fit/errors.hpp"
#include "model/hardware/device.hpp"
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

struct GemmFit {
  Seconds launch;
  FlopsPerSecond rate;                   ///< of all multiprocessors, tiles full and deep
  std::optional<BytesPerSecond> stream;  ///< of operands and result; absent where no shape shows it
  GemmKernel kernel;                     ///< memory_efficiency is the caller's to set
  std::vector<FittedPoint> points;
  RelativeErrors errors;
  RelativeErrors left_out;  ///< up to 32 shapes, each predicted by a fit of the others with the same kernel
};

inline constexpr int kFewestShapes = 6;

/// Fits the GEMM model of the forecast itself (model/cost/compute.hpp) to measured products of one precision:
///   t = launch + max(c · busy, s · moved), or the sum of the three where the device does not overlap,
/// with tiles and waves on `multiprocessors` inside `busy`. For every kernel of the search the unknowns launch, c, s ≥
/// 0 are fitted to relative residuals (relative_fit.hpp); the kernel with the least loss is taken. Which branch of the
/// maximum a shape is on is found by repetition: every shape on the slower one under the last unknowns.
///
/// Throws ConfigError with the reason: fewer than six shapes, times that are not finite and above zero, work that grows
/// a hundredfold within one time (nothing was computed), or no rate above zero.
GemmFit fit_gemm(const std::string& what, const std::vector<GemmPoint>& points, Precision precision,
                 int multiprocessors, const GemmSearch& search);

}  // namespace flopcast
