#include "reports/svg/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {
namespace {

constexpr double kChartLeft = 56.0;
constexpr double kChartTop = 44.0;
constexpr double kChartBottom = 42.0;
constexpr double kSeriesLegendRow = 14.0;
constexpr std::size_t kSeriesColors = 6;  // colours of the palette used; black is for text
constexpr double kNameHeight = 12.0;
constexpr double kNameGap = 7.0;
constexpr double kPointRadius = 4.0;

struct Frame {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;
};

std::vector<double> values_of(const SeriesChart& chart, const SeriesAxis& axis, double SeriesPoint::*member) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const SeriesPoint& point : series.points) values.push_back(point.*member);
  }
  if (axis.from_zero) values.push_back(0.0);
  return values;
}

bool is_line(SeriesStyle style) {
  return style == SeriesStyle::kLine || style == SeriesStyle::kDashed || style == SeriesStyle::kSteps;
}

std::string css_of(const SeriesChart& chart, std::size_t index) {
  return chart.series[index].style == SeriesStyle::kDashed ? "ref" : fmt::format("s{}", index % kSeriesColors);
}

Legend legend_of(const SeriesChart& chart, const Frame& frame) {
  constexpr LegendLook kLook = {.side = 9.0, .words = 13.0, .baseline = 8.0, .gap = 21.0, .row = kSeriesLegendRow};
  std::vector<LegendEntry> entries;
  for (std::size_t index = 0; index < chart.series.size(); ++index) {
    entries.push_back({fmt::format(" class=\"{}\"", css_of(chart, index)), chart.series[index].name});
  }
  return {std::move(entries), kLook, frame.left, frame.left + frame.width};
}

class ChartDrawing {
 public:
  ChartDrawing(Canvas& canvas, const SeriesChart& chart, const Frame& frame, bool titles)
      : canvas_(canvas),
        chart_(chart),
        titles_(titles),
        frame_(frame),
        legend_(legend_of(chart, frame)),
        x_(values_of(chart, chart.x, &SeriesPoint::x), chart.x.logarithmic),
        y_(values_of(chart, chart.y, &SeriesPoint::y), chart.y.logarithmic) {
    // Additional rows of the legend reduce the height of the plot.
    rows_below_ = std::max(0, legend_.rows() - 1);
    const double more = kSeriesLegendRow * rows_below_;
    frame_.top += more;
    frame_.height -= more;
  }

  void draw() {
    if (titles_) canvas_.text(frame_.left, title_y(), " font-weight=\"bold\" font-size=\"12\"", chart_.title);
    draw_axes();
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      const Series& series = chart_.series[index];
      if (is_line(series.style)) draw_line(series, css_of(chart_, index));
      if (!is_line(series.style)) draw_points(series, css_of(chart_, index));
    }
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      if (chart_.series[index].style == SeriesStyle::kNamedPoints) draw_names(chart_.series[index]);
    }
    legend_.draw(canvas_, title_y() + 9.0);
  }

 private:
  double title_y() const { return frame_.top - kSeriesLegendRow * rows_below_ - 26.0; }

  void draw_names(const Series& series) {
    PointLabels labels({frame_.left, frame_.top, frame_.width, frame_.height});
    for (const SeriesPoint& point : series.points) labels.avoid(x_of(point.x), y_of(point.y));
    for (const Series& other : chart_.series) {
      if (is_line(other.style)) avoid_line(other, labels);
    }
    // Names last, above all lines, so that a leader to one name runs behind other names.
    std::vector<LabelBox> boxes;
    for (const SeriesPoint& point : series.points) {
      const double x = x_of(point.x);
      const double y = y_of(point.y);
      const LabelBox box = boxes.emplace_back(labels.place(x, y, point.label));
      const double middle = box.top + box.height / 2;
      const double aside = std::max(box.left - x, x - box.left - box.width);
      if (aside > 2 * kNameGap || std::abs(middle - y) > 1.5 * box.height) {
        const double nearest = std::clamp(x, box.left, box.left + box.width);
        canvas_.path(
            "lead", fmt::format("M{} {}L{} {}", coordinate(x), coordinate(y), coordinate(nearest), coordinate(middle)));
      }
    }
    for (std::size_t index = 0; index < boxes.size(); ++index) {
      const LabelBox& box = boxes[index];
      canvas_.text(box.left, box.top + box.height - 2.5, " class=\"name\"", series.points[index].label);
    }
  }

  void avoid_line(const Series& series, PointLabels& labels) const {
    for (std::size_t index = 1; index < series.points.size(); ++index) {
      const LineStretch line{x_of(series.points[index - 1].x), y_of(series.points[index - 1].y),
                             x_of(series.points[index].x), y_of(series.points[index].y)};
      if (series.style == SeriesStyle::kSteps) {
        labels.avoid({line.x1, line.y1, line.x2, line.y1});
        labels.avoid({line.x2, line.y1, line.x2, line.y2});
      } else {
        labels.avoid(line);
      }
    }
  }

  double x_of(double value) const { return frame_.left + frame_.width * x_.position(value); }
  double y_of(double value) const { return frame_.top + frame_.height * (1.0 - y_.position(value)); }

  void draw_axes() {
    const double bottom = frame_.top + frame_.height;
    for (const AxisMark& mark : x_.marks()) {
      const double x = frame_.left + frame_.width * mark.position;
      canvas_.path("grid", fmt::format("M{} {}V{}", coordinate(x), coordinate(frame_.top), coordinate(bottom)));
      canvas_.text(x, bottom + 15.0, " text-anchor=\"middle\"", mark.label);
    }
    for (const AxisMark& mark : y_.marks()) {
      const double y = bottom - frame_.height * mark.position;
      canvas_.path("grid", fmt::format("M{} {}H{}", coordinate(frame_.left), coordinate(y),
                                       coordinate(frame_.left + frame_.width)));
      canvas_.text(frame_.left - 6.0, y + 4.0, " text-anchor=\"end\"", mark.label);
    }
    canvas_.text(frame_.left + frame_.width / 2, bottom + 31.0, " text-anchor=\"middle\" class=\"soft\"",
                 chart_.x.title);
    const double x = frame_.left - 42.0;
    const double y = frame_.top + frame_.height / 2;
    canvas_.text(x, y,
                 fmt::format(" text-anchor=\"middle\" class=\"soft\" transform=\"rotate(-90 {} {})\"", coordinate(x),
                             coordinate(y)),
                 chart_.y.title);
  }

  void draw_line(const Series& series, const std::string& css) {
    std::string path;
    for (const SeriesPoint& point : series.points) {
      const std::string x = coordinate(x_of(point.x));
      const std::string y = coordinate(y_of(point.y));
      if (path.empty()) {
        path = fmt::format("M{} {}", x, y);
      } else if (series.style == SeriesStyle::kSteps) {
        path += fmt::format("H{}V{}", x, y);
      } else {
        path += fmt::format("L{} {}", x, y);
      }
    }
    const char* const dashes = series.style == SeriesStyle::kDashed ? " stroke-dasharray=\"5 4\"" : dashes_of(css);
    if (!path.empty()) canvas_.put("<path class=\"l {}l\"{} d=\"{}\"/>\n", css, dashes, path);
  }

  // Dashes, since lines of different colours look alike in grey.
  static const char* dashes_of(const std::string& css) {
    constexpr std::array<const char*, kSeriesColors> kDashes = {"",
                                                                " stroke-dasharray=\"7 2\"",
                                                                " stroke-dasharray=\"3 2\"",
                                                                " stroke-dasharray=\"7 2 1.5 2\"",
                                                                " stroke-dasharray=\"1.5 2\"",
                                                                " stroke-dasharray=\"12 2\""};
    return kDashes.at(static_cast<std::size_t>(css.back() - '0') % kSeriesColors);
  }

  void draw_points(const Series& series, const std::string& css) {
    constexpr double kArm = 3.0;
    for (const SeriesPoint& point : series.points) {
      const double x = x_of(point.x);
      const double y = y_of(point.y);
      const std::string title =
          escape_xml(fmt::format("{}{}{}: {:.4g}", point.label, point.label.empty() ? "" : ", ", series.name, point.y));
      if (series.style != SeriesStyle::kCrosses) {
        canvas_.put("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"><title>{}</title></circle>\n", css, coordinate(x),
                    coordinate(y), title);
      } else {
        canvas_.put("<path class=\"l {}l\" d=\"M{} {}l{} {}m0 -{}l-{} {}\"><title>{}</title></path>\n", css,
                    coordinate(x - kArm), coordinate(y - kArm), 2 * kArm, 2 * kArm, 2 * kArm, 2 * kArm, 2 * kArm,
                    title);
      }
    }
  }

  Canvas& canvas_;
  const SeriesChart& chart_;
  bool titles_ = true;
  Frame frame_;
  Legend legend_;
  int rows_below_ = 0;  // legend rows after the first
  AxisScale x_;
  AxisScale y_;
};

// Style rules of series, besides those of all images.
std::string series_css() {
  std::string css =
      ".series .l{fill:none;stroke-width:1.5}.series .ref{fill:#777}.series .refl{stroke:#777}"
      ".series .lead{stroke:#777;stroke-width:.7}"
      ".series .name{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}\n";
  for (std::size_t index = 0; index < kSeriesColors; ++index) {
    css += fmt::format(".series .s{0}{{fill:{1}}}.series .s{0}l{{stroke:{1}}}", index, kPalette.at(index));
  }
  return css;
}

constexpr double kStateImageWidth = 960.0;
constexpr double kStateRowHeight = 20.0;
constexpr double kStateRowsTop = 76.0;

// The palette's blue, green and orange; grey for waiting, the last state.
std::string state_color(const StateRows& rows, std::size_t state) {
  if (state + 1 == rows.states.size()) return "#dddddd";
  constexpr std::array<std::size_t, 3> kOrder = {0, 2, 4};
  return state < kOrder.size() ? kPalette.at(kOrder.at(state)) : kPalette.at(state % kPalette.size());
}

}  // namespace

bool LineStretch::crosses(const LabelBox& box) const {
  // Clips the segment to the box's width, then to its height; `from` and `to` are fractions of the segment.
  double from = 0.0;
  double to = 1.0;
  const auto clip = [&](double start, double length, double low, double high) {
    if (length == 0.0) return low <= start && start <= high;
    const double a = (low - start) / length;
    const double b = (high - start) / length;
    from = std::max(from, std::min(a, b));
    to = std::min(to, std::max(a, b));
    return from <= to;
  };
  return clip(x1, x2 - x1, box.left, box.left + box.width) && clip(y1, y2 - y1, box.top, box.top + box.height);
}

void PointLabels::avoid(double x, double y) {
  taken_.push_back({x - kPointRadius, y - kPointRadius, 2 * kPointRadius, 2 * kPointRadius});
}

LabelBox PointLabels::place(double x, double y, const std::string& name) {
  constexpr int kRings = 8;
  constexpr int kRingsOffLines = 4;
  const double width = text_width(name, kLetterOf11);
  const auto free = [this](const LabelBox& box) {
    const bool inside = box.left >= frame_.left && box.top >= frame_.top &&
                        box.left + box.width <= frame_.left + frame_.width &&
                        box.top + box.height <= frame_.top + frame_.height;
    return inside &&
           std::none_of(taken_.begin(), taken_.end(), [&](const LabelBox& other) { return box.overlaps(other); });
  };
  const double right = x + kNameGap;
  const double far_right = right + 4 * kNameHeight;
  const double left = x - kNameGap - width;
  const double middle = x - width / 2;
  const auto off_lines = [&](const LabelBox& box) {
    return free(box) &&
           std::none_of(lines_.begin(), lines_.end(), [&](const LineStretch& line) { return line.crosses(box); });
  };
  for (int step = 0; step < kRingsOffLines + kRings; ++step) {
    const int ring = step < kRingsOffLines ? step : step - kRingsOffLines;
    const double up = y - kNameHeight / 2 - ring * kNameHeight;
    const double down = y - kNameHeight / 2 + ring * kNameHeight;
    const LabelBox places[] = {{right, up, width, kNameHeight},
                               {right, down, width, kNameHeight},
                               {left, up, width, kNameHeight},
                               {left, down, width, kNameHeight},
                               {middle, up - kNameHeight, width, kNameHeight},
                               {middle, down + kNameHeight, width, kNameHeight},
                               {far_right, up, width, kNameHeight},
                               {far_right, down, width, kNameHeight}};
    const auto* const found = step < kRingsOffLines ? std::find_if(std::begin(places), std::end(places), off_lines)
                                                    : std::find_if(std::begin(places), std::end(places), free);
    if (found == std::end(places)) continue;
    taken_.push_back(*found);
    return *found;
  }
  taken_.push_back({right, y - kNameHeight / 2, width, kNameHeight});
  return taken_.back();
}

std::string write_series_svg(const std::vector<SeriesChart>& charts, const SeriesSvgOptions& options) {
  constexpr double kTwoInARow = 640.0;
  const std::size_t in_row = charts.size() == 1 || options.width < kTwoInARow ? 1 : 2;
  const double column = (options.width - 2 * kImageMargin) / static_cast<double>(in_row);
  const std::size_t rows = (charts.size() + in_row - 1) / in_row;
  Canvas canvas;
  for (std::size_t index = 0; index < charts.size(); ++index) {
    Frame frame;
    const std::size_t row = index / in_row;
    frame.left = kImageMargin + column * static_cast<double>(index % in_row) + kChartLeft;
    frame.top = kImageMargin + options.chart_height * static_cast<double>(row) + kChartTop;
    frame.width = column - kChartLeft - kImageMargin;
    frame.height = options.chart_height - kChartTop - kChartBottom;
    ChartDrawing(canvas, charts[index], frame, options.titles).draw();
  }
  SvgFrame frame{"series", options.width, 2 * kImageMargin + options.chart_height * static_cast<double>(rows)};
  frame.font_size = text_size(options);
  frame.in_print = options.in_print;
  frame.css = series_css();
  frame.dark_css = ".series .name{stroke:#16181c}";
  frame.dark_mode = options.dark_mode;
  return canvas.finish(frame);
}

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
  std::vector<LegendEntry> states;
  for (std::size_t state = 0; state < rows.states.size(); ++state) {
    states.push_back({fmt::format(" fill=\"{}\"", state_color(rows, state)), rows.states[state]});
  }
  constexpr LegendLook kLook = {.side = 11.0, .words = 16.0, .baseline = 9.5, .gap = 18.0};
  Legend(std::move(states), kLook, left, std::numeric_limits<double>::infinity()).draw(canvas, 40.0);
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
