#pragma once

#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

struct SeriesSvgOptions : FigureStyle {
  double chart_height = 280.0;  ///< of one chart
};

/// Charts with axes, grid and legend, two in a row if there are several and room for them; lines of a chart differ by
/// dashes too, points by shape; series in Okabe-Ito colours. Every point tells
/// its label and values as a tooltip. Valid XML, self-contained, the same bytes for the same input.
std::string write_series_svg(const std::vector<SeriesChart>& charts, const SeriesSvgOptions& options);

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

/// A straight stretch of a line.
struct LineStretch {
  double x1 = 0.0;
  double y1 = 0.0;
  double x2 = 0.0;
  double y2 = 0.0;

  bool crosses(const LabelBox& box) const;
};

/// Puts names beside points so that they cover neither each other nor a point: to the right of it, to the left, above,
/// below, and then farther off; where there is room nearby no line runs through them either. Greedy in the order of the
/// calls; where nothing is free the name goes to the right.
class PointLabels {
 public:
  explicit PointLabels(const LabelBox& frame) : frame_(frame) {}

  /// A point that no name may cover.
  void avoid(double x, double y);
  /// A line that no name should lie on.
  void avoid(const LineStretch& line) { lines_.push_back(line); }
  /// Where the name of the point goes, within the frame where possible.
  LabelBox place(double x, double y, const std::string& name);

 private:
  LabelBox frame_;
  std::vector<LabelBox> taken_;
  std::vector<LineStretch> lines_;
};

}  // namespace flopcast
