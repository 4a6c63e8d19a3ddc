#pragma once

#include <string>
#include <vector>

namespace flopcast {

struct ScatterPoint {
  double x = 0.0;
  double y = 0.0;
  std::string label;  ///< shown when the pointer rests on it
};

struct ScatterSeries {
  std::string name;
  std::vector<ScatterPoint> points;
};

/// Two measures of the same things, both on logarithmic axes over the same range. Points that are not above zero are
/// left out.
struct ScatterChart {
  std::string title;
  std::string x_label;  ///< with its unit
  std::string y_label;
  double band = 0.0;  ///< lines at y = x · (1 ± band) beside the diagonal; 0: none
  std::vector<ScatterSeries> series;
};

/// A standalone SVG without scripts. Series differ by shape and by colour of the Okabe-Ito palette, which people with
/// colour-blindness can tell apart; the legend names them with their number of points.
std::string write_scatter_svg(const ScatterChart& chart);

}  // namespace flopcast
