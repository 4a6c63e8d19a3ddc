#pragma once

#include <string>
#include <vector>

#include "calibrate/device/fit/errors.hpp"

namespace flopcast {

/// Something alone, and beside something else that has so many channels.
struct OverlapPoint {
  std::string label;
  int channels = 0;
  double alone_s = 0.0;
  double beside_s = 0.0;
};

struct OverlapFit {
  double at_none = 1.0;             ///< time beside over time alone, extrapolated to no channel
  double per_channel = 0.0;         ///< what each channel adds to it; below zero where more channels disturb less
  std::vector<FittedPoint> points;  ///< x are channels
  RelativeErrors errors;
  RelativeErrors left_out;  ///< all samples of a number of channels, each predicted from the other numbers
};

inline constexpr int kFewestChannels = 3;

/// Fits beside = alone · (at_none + per_channel · channels) to relative residuals, robustly (relative_fit.hpp); at_none
/// and the factor at the most channels measured are at least 0. A collective's channels take multiprocessors from a
/// product in proportion to their number, and its memory bandwidth; left out are the steps in which whole waves of
/// tiles are added.
/// Throws ConfigError with the reason: fewer than three numbers of channels, times that are not finite and above zero,
/// or what ran beside something else faster than alone, by more than a tenth in the median.
OverlapFit fit_overlap(const std::string& what, const std::vector<OverlapPoint>& points);

}  // namespace flopcast
