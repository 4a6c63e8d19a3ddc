#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flopcast {

struct SeriesPoint {
  double x = 0.0;
  double y = 0.0;
  std::string label;  ///< its tooltip's first words
};

enum class SeriesStyle {
  kPoints,
  kNamedPoints,  ///< each with its label beside it
  kCrosses,
  kLine,
  kDashed,  ///< what the others are held against, a limit: grey in every chart
  kSteps,   ///< a value holds until the next point's x
};

/// Values over something: what a chart shows in one colour. Knows nothing of what they mean.
struct Series {
  std::string name;
  std::vector<SeriesPoint> points;  ///< a line joins them in this order
  SeriesStyle style = SeriesStyle::kLine;
};

struct SeriesAxis {
  std::string title;         ///< with its unit
  bool logarithmic = false;  ///< values must then be above zero (InternalError)
  bool from_zero = false;    ///< of a linear axis: starts at zero whatever the values
};

struct SeriesChart {
  std::string title;
  SeriesAxis x;
  SeriesAxis y;
  std::vector<Series> series;
};

/// Two measures of the same things, both on logarithmic axes over the same range. Points that are not above zero are
/// left out.
struct ScatterChart {
  std::string title;
  std::string x_label;  ///< with its unit
  std::string y_label;
  double band = 0.0;           ///< lines at y = x · (1 ± band) beside the diagonal; 0: none
  std::vector<Series> series;  ///< points, whatever their style
};

/// What a rank was doing over time, row below row on one axis: a forecast above what traces show.
struct StateRow {
  struct Stretch {
    double start = 0.0;  ///< seconds
    double end = 0.0;
    std::size_t state = 0;  ///< index into StateRows::states
  };
  std::string name;
  std::vector<Stretch> stretches;
};
struct StateRows {
  std::string title;
  std::vector<std::string> states;  ///< at most as many as the palette has colours; the last one is drawn as waiting
  std::vector<StateRow> rows;
};

}  // namespace flopcast
