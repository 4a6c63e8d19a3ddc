#include "reports/svg/state_rows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text/error.hpp"
#include "base/text/numbers.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kStateImageWidth = 960.0;
constexpr double kStateRowHeight = 20.0;
constexpr double kStateRowsTop = 76.0;

// The palette's blue, green and orange, and the grey of waiting.
std::string state_color(const StateRows& rows, std::size_t state) {
  if (state + 1 == rows.states.size()) return "#dddddd";
  constexpr std::array<std::size_t, 3> kOrder = {0, 2, 4};
  return state < kOrder.size() ? kPalette.at(kOrder.at(state)) : kPalette.at(state % kPalette.size());
}

}  // namespace

std::string write_state_rows_svg(const StateRows& rows) {
  FLOPCAST_CHECK(!rows.rows.empty() && rows.states.size() > 1);
  double longest = 0.0;
  double widest_name = 0.0;
  for (const StateRow& row : rows.rows) {
    widest_name = std::max(widest_name, text_width(row.name, kLetterOf11));
    for (const StateRow::Stretch& stretch : row.stretches) longest = std::max(longest, stretch.end);
  }
  FLOPCAST_CHECK(longest > 0.0);
  const double left = kImageMargin + widest_name + 8.0;
  const double width = kStateImageWidth - left - kImageMargin;
  const double bottom = kStateRowsTop + kStateRowHeight * static_cast<double>(rows.rows.size());
  Canvas canvas;
  canvas.text(kImageMargin, 24.0, " font-size=\"14\"", rows.title);
  double x = left;
  for (std::size_t state = 0; state < rows.states.size(); ++state) {
    canvas.rectangle(fmt::format(" fill=\"{}\"", state_color(rows, state)), x, 40.0, 11.0, 11.0);
    canvas.text(x + 16.0, 49.5, "", rows.states[state]);
    x += 16.0 + text_width(rows.states[state], kLetterOf11) + 18.0;
  }
  constexpr double kLeastPixels = 0.3;
  for (std::size_t index = 0; index < rows.rows.size(); ++index) {
    const StateRow& row = rows.rows[index];
    const double top = kStateRowsTop + kStateRowHeight * static_cast<double>(index);
    canvas.text(kImageMargin, top + 13.0, "", row.name);
    for (const StateRow::Stretch& stretch : row.stretches) {
      const double pixels = (stretch.end - stretch.start) / longest * width;
      if (pixels < kLeastPixels) continue;
      canvas.rectangle(fmt::format(" fill=\"{}\"", state_color(rows, stretch.state)),
                       left + stretch.start / longest * width, top, pixels, kStateRowHeight - 4.0,
                       fmt::format("{}: {}, from {} for {}", row.name, rows.states.at(stretch.state),
                                   time_in_seconds(stretch.start), time_in_seconds(stretch.end - stretch.start)));
    }
  }
  const double step = round_step(longest, 8);
  for (int mark = 0; step * mark <= longest; ++mark) {
    const double place = left + step * mark / longest * width;
    canvas.text(place, bottom + 16.0, " text-anchor=\"middle\"", fmt::format("{:g} s", step * mark));
  }
  SvgFrame frame{"state-rows", kStateImageWidth, bottom + 28.0};
  frame.title = rows.title;
  return canvas.finish(frame);
}

}  // namespace flopcast
