#pragma once

#include <string>

#include "base/text/series.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

/// A standalone SVG without scripts: y over x, both logarithmic over the same range, and below it, of each point, how
/// far y lies from x in percent, which a logarithmic axis hides. Errors beyond the panel stand at its edge. Series
/// differ by shape and by colour of the Okabe-Ito palette, which people with colour-blindness can tell apart; the
/// legend names them with their number of points, beside the plot where there is room, else below it.
std::string write_scatter_svg(const ScatterChart& chart, const FigureStyle& style = {});

}  // namespace flopcast
