#pragma once

#include <string>
#include <vector>

namespace flopcast {

struct AxisMark {
  double position = 0.0;  ///< between 0 and 1 along the axis
  std::string label;
};

/// Maps values to positions along an axis of length one.
class AxisScale {
 public:
  /// The range of the values, widened to whole decades of a logarithmic axis and to round steps of a linear one.
  AxisScale(const std::vector<double>& values, bool logarithmic);

  double position(double value) const;
  /// At most about eight, powers of ten or round steps.
  std::vector<AxisMark> marks() const;

 private:
  double low_ = 0.0;  // log10 on a logarithmic axis
  double high_ = 1.0;
  double step_ = 1.0;
  bool logarithmic_ = false;
};

}  // namespace flopcast
