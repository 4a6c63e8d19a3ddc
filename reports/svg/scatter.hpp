#pragma once

#include <string>

#include "base/text/series.hpp"

namespace flopcast {

/// A standalone SVG without scripts. Series differ by shape and by colour of the Okabe-Ito palette, which people with
/// colour-blindness can tell apart; the legend names them with their number of points.
std::string write_scatter_svg(const ScatterChart& chart);

}  // namespace flopcast
