#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flopcast {

struct SeriesPoint {
  double x = 0.0;
  double y = 0.0;
  std::string label;  ///< first line of its tooltip
};

enum class SeriesStyle {
  kPoints,
  kNamedPoints,  ///< with labels next to the points
  kCrosses,
  kLine,
  kDashed,  ///< a reference or limit; grey in every chart
  kSteps,   ///< a value holds until the x of the next point
};

/// Values in one colour of a chart, independent of their meaning.
struct Series {
  std::string name;
  std::vector<SeriesPoint> points;  ///< in the order in which a line connects them
  SeriesStyle style = SeriesStyle::kLine;
};

struct SeriesAxis {
  std::string title;         ///< including the unit
  bool logarithmic = false;  ///< requires positive values (InternalError)
  bool from_zero = false;    ///< linear axes only: starts at zero regardless of the values
};

struct SeriesChart {
  std::string title;
  SeriesAxis x;
  SeriesAxis y;
  std::vector<Series> series;
};

/// Two measures of the same items, on logarithmic axes with a common range. Points that are not positive are omitted.
struct ScatterChart {
  std::string title;
  std::string x_label;  ///< including the unit
  std::string y_label;
  double band = 0.0;           ///< draws lines at y = x · (1 ± band) along the diagonal; 0: none
  std::vector<Series> series;  ///< drawn as points regardless of style
};

/// The states of one rank over time. Rows share a time axis: a forecast above measured traces.
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
  std::vector<std::string> states;  ///< no more than the palette has colours; the last one is drawn as waiting
  std::vector<StateRow> rows;
};

}  // namespace flopcast
