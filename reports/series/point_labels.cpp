#include "reports/series/point_labels.hpp"

#include <algorithm>
#include <iterator>

#include "reports/series/text_width.hpp"

namespace flopcast {

namespace {

constexpr double kHeight = 12.0;
constexpr double kGap = 7.0;
constexpr double kRadius = 4.0;

}  // namespace

void PointLabels::avoid(double x, double y) {
  taken_.push_back({x - kRadius, y - kRadius, 2 * kRadius, 2 * kRadius});
}

LabelBox PointLabels::place(double x, double y, const std::string& name) {
  constexpr int kRings = 8;
  const double width = text_width(name);
  const auto free = [this](const LabelBox& box) {
    const bool inside = box.left >= frame_.left && box.top >= frame_.top &&
                        box.left + box.width <= frame_.left + frame_.width &&
                        box.top + box.height <= frame_.top + frame_.height;
    return inside &&
           std::none_of(taken_.begin(), taken_.end(), [&](const LabelBox& other) { return box.overlaps(other); });
  };
  const double right = x + kGap;
  const double left = x - kGap - width;
  const double middle = x - width / 2;
  for (int ring = 0; ring < kRings; ++ring) {
    const double up = y - kHeight / 2 - ring * kHeight;
    const double down = y - kHeight / 2 + ring * kHeight;
    const LabelBox places[] = {
        {right, up, width, kHeight},  {right, down, width, kHeight},          {left, up, width, kHeight},
        {left, down, width, kHeight}, {middle, up - kHeight, width, kHeight}, {middle, down + kHeight, width, kHeight}};
    const auto* const found = std::find_if(std::begin(places), std::end(places), free);
    if (found == std::end(places)) continue;
    taken_.push_back(*found);
    return *found;
  }
  taken_.push_back({right, y - kHeight / 2, width, kHeight});
  return taken_.back();
}

}  // namespace flopcast
