#pragma once

#include <string>
#include <vector>

namespace flopcast {

struct LabelBox {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;

  bool overlaps(const LabelBox& other) const {
    return left < other.left + other.width && other.left < left + width && top < other.top + other.height &&
           other.top < top + height;
  }
};

/// Puts names beside points so that they cover neither each other nor a point: to the right of it, to the left, above,
/// below, and then farther off. Greedy in the order of the calls; where nothing is free the name goes to the right.
class PointLabels {
 public:
  explicit PointLabels(const LabelBox& frame) : frame_(frame) {}

  /// A point that no name may cover.
  void avoid(double x, double y);
  /// Where the name of the point goes, within the frame where possible.
  LabelBox place(double x, double y, const std::string& name);

 private:
  LabelBox frame_;
  std::vector<LabelBox> taken_;
};

}  // namespace flopcast
