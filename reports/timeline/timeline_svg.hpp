#pragma once

#include <string>
#include <vector>

#include "reports/svg/canvas.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

struct SvgOptions : FigureStyle {
  std::string title = {};       ///< empty: the timeline's own; none above several timelines
  std::string subtitle = {};    ///< empty: ranks and makespan
  bool show_transfers = false;  ///< lines from where a result was made to where it is needed
};

/// A figure as the pipeline papers draw it: one row a rank, time to the right, forward blue, backward orange (Okabe-Ito
/// colours), later chunks of a rank lighter, idle light grey; gradient and pipeline streams are thin lanes below their
/// rank's row, and the halves of an overlapped pair share the row's height. Weight gradients, sends and what follows
/// the passes are hatched, and actions carry letter and number where all of their kind have room for them, so that a
/// print in grey can be read; no text is smaller than kSmallestText. Every rectangle of at least 1.2 px tells its
/// action, start and duration as a tooltip; smaller ones are drawn together, and below 0.2 px the action that takes
/// most of 0.2 px stands for them. Valid XML, self-contained, the same bytes for the same input.
std::string write_svg(const Timeline& timeline, const SvgOptions& options);
/// One below the other over one time axis, so that lengths compare. They must share unit and tick (InternalError).
std::string write_svg(const std::vector<Timeline>& timelines, const SvgOptions& options);

}  // namespace flopcast
