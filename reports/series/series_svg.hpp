#pragma once

#include <string>
#include <vector>

#include "reports/series/series.hpp"

namespace flopcast {

struct SeriesSvgOptions {
  double width = 960.0;         ///< pixels; charts lie two in a row, one alone takes all
  double chart_height = 280.0;  ///< of one chart
  bool dark_mode = true;        ///< follow the reader's prefers-color-scheme
};

/// Charts with axes, grid and legend, two in a row if there are several; series in Okabe-Ito colours. Every point tells
/// its label and values as a tooltip. Valid XML, self-contained, the same bytes for the same input.
std::string write_series_svg(const std::vector<SeriesChart>& charts, const SeriesSvgOptions& options);

}  // namespace flopcast
