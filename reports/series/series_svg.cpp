#include "reports/series/series_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

#include "reports/series/point_labels.hpp"
#include "reports/series/series_axis.hpp"
#include "reports/series/text_width.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {

namespace {

constexpr double kMargin = 16.0;
constexpr double kLeft = 56.0;
constexpr double kTop = 44.0;
constexpr double kBottom = 42.0;
constexpr double kLegendRow = 14.0;
// Okabe & Ito 2008: told apart with every kind of colour vision.
constexpr std::array<const char*, 6> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"};

struct Frame {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;
};

std::vector<double> values_of(const SeriesChart& chart, double SeriesPoint::*member) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const SeriesPoint& point : series.points) values.push_back(point.*member);
  }
  return values;
}
std::vector<double> x_values(const SeriesChart& chart) {
  std::vector<double> values = values_of(chart, &SeriesPoint::x);
  if (chart.x.from_zero) values.push_back(0.0);
  return values;
}
std::vector<double> y_values(const SeriesChart& chart) {
  std::vector<double> values = values_of(chart, &SeriesPoint::y);
  if (chart.y.from_zero) values.push_back(0.0);
  return values;
}

bool is_line(SeriesStyle style) {
  return style == SeriesStyle::kLine || style == SeriesStyle::kDashed || style == SeriesStyle::kSteps;
}

struct LegendEntry {
  std::string name;
  double x = 0.0;
  int row = 0;
};

// The series in rows as wide as the frame.
std::vector<LegendEntry> legend_of(const SeriesChart& chart, const Frame& frame) {
  constexpr double kSquare = 13.0;
  constexpr double kGap = 21.0;
  std::vector<LegendEntry> legend;
  for (const Series& series : chart.series) legend.push_back({series.name});
  double x = frame.left;
  int row = 0;
  for (LegendEntry& entry : legend) {
    const double width = kSquare + text_width(entry.name);
    if (x > frame.left && x + width > frame.left + frame.width) {
      x = frame.left;
      ++row;
    }
    entry.x = x;
    entry.row = row;
    x += width + kGap;
  }
  return legend;
}

class ChartDrawing {
 public:
  ChartDrawing(const SeriesChart& chart, const Frame& frame)
      : chart_(chart),
        frame_(frame),
        legend_(legend_of(chart, frame)),
        x_(x_values(chart), chart.x.logarithmic),
        y_(y_values(chart), chart.y.logarithmic) {
    // Further rows of the legend take their height from the plot.
    rows_below_ = legend_.empty() ? 0 : legend_.back().row;
    const double more = kLegendRow * rows_below_;
    frame_.top += more;
    frame_.height -= more;
  }

  std::string draw() {
    text(frame_.left, title_y(), " font-weight=\"bold\" font-size=\"12\"", chart_.title);
    draw_axes();
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      const Series& series = chart_.series[index];
      if (is_line(series.style)) draw_line(series, css_of(index));
      if (!is_line(series.style)) draw_points(series, css_of(index));
    }
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      if (chart_.series[index].style == SeriesStyle::kNamedPoints) draw_names(chart_.series[index]);
    }
    draw_legend();
    return std::move(svg_);
  }

 private:
  template <class... Values>
  void put(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(svg_), form, std::forward<Values>(values)...);
  }
  void text(double x, double y, const std::string& attributes, const std::string& words) {
    put("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", coordinate(x), coordinate(y), attributes, escape_xml(words));
  }
  double title_y() const { return frame_.top - kLegendRow * rows_below_ - 26.0; }
  std::string css_of(std::size_t index) const {
    return chart_.series[index].style == SeriesStyle::kDashed ? "ref" : fmt::format("s{}", index % kColors.size());
  }

  void draw_legend() {
    for (std::size_t index = 0; index < legend_.size(); ++index) {
      const LegendEntry& entry = legend_[index];
      const double y = title_y() + 9.0 + kLegendRow * entry.row;
      put("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"9\" height=\"9\"/>\n", css_of(index), coordinate(entry.x),
          coordinate(y));
      text(entry.x + 13.0, y + 8.0, "", entry.name);
    }
  }

  void draw_names(const Series& series) {
    PointLabels labels({frame_.left, frame_.top, frame_.width, frame_.height});
    for (const SeriesPoint& point : series.points) labels.avoid(x_of(point.x), y_of(point.y));
    for (const SeriesPoint& point : series.points) {
      const double x = x_of(point.x);
      const double y = y_of(point.y);
      const LabelBox box = labels.place(x, y, point.label);
      const double middle = box.top + box.height / 2;
      if (std::abs(middle - y) > 1.5 * box.height) {
        const double nearest = std::clamp(x, box.left, box.left + box.width);
        put("<path class=\"lead\" d=\"M{} {}L{} {}\"/>\n", coordinate(x), coordinate(y), coordinate(nearest),
            coordinate(middle));
      }
      text(box.left, box.top + box.height - 2.5, " class=\"name\"", point.label);
    }
  }

  double x_of(double value) const { return frame_.left + frame_.width * x_.position(value); }
  double y_of(double value) const { return frame_.top + frame_.height * (1.0 - y_.position(value)); }

  void draw_axes() {
    const double bottom = frame_.top + frame_.height;
    for (const AxisMark& mark : x_.marks()) {
      const double x = frame_.left + frame_.width * mark.position;
      put("<path class=\"grid\" d=\"M{} {}V{}\"/>\n", coordinate(x), coordinate(frame_.top), coordinate(bottom));
      text(x, bottom + 15.0, " text-anchor=\"middle\"", mark.label);
    }
    for (const AxisMark& mark : y_.marks()) {
      const double y = bottom - frame_.height * mark.position;
      put("<path class=\"grid\" d=\"M{} {}H{}\"/>\n", coordinate(frame_.left), coordinate(y),
          coordinate(frame_.left + frame_.width));
      text(frame_.left - 6.0, y + 4.0, " text-anchor=\"end\"", mark.label);
    }
    text(frame_.left + frame_.width / 2, bottom + 31.0, " text-anchor=\"middle\" class=\"soft\"", chart_.x.title);
    const double x = frame_.left - 42.0;
    const double y = frame_.top + frame_.height / 2;
    text(x, y,
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
    const char* const dashes = series.style == SeriesStyle::kDashed ? " stroke-dasharray=\"5 4\"" : "";
    if (!path.empty()) put("<path class=\"l {}l\"{} d=\"{}\"/>\n", css, dashes, path);
  }

  void draw_points(const Series& series, const std::string& css) {
    constexpr double kArm = 3.0;
    for (const SeriesPoint& point : series.points) {
      const double x = x_of(point.x);
      const double y = y_of(point.y);
      const std::string title =
          escape_xml(fmt::format("{}{}{}: {:.4g}", point.label, point.label.empty() ? "" : ", ", series.name, point.y));
      if (series.style != SeriesStyle::kCrosses) {
        put("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"3\"><title>{}</title></circle>\n", css, coordinate(x),
            coordinate(y), title);
      } else {
        put("<path class=\"l {}l\" d=\"M{} {}l{} {}m0 -{}l-{} {}\"><title>{}</title></path>\n", css,
            coordinate(x - kArm), coordinate(y - kArm), 2 * kArm, 2 * kArm, 2 * kArm, 2 * kArm, 2 * kArm, title);
      }
    }
  }

  const SeriesChart& chart_;
  Frame frame_;
  std::vector<LegendEntry> legend_;
  int rows_below_ = 0;  // of the legend, below its first
  AxisScale x_;
  AxisScale y_;
  std::string svg_;
};

std::string style_sheet(bool dark_mode) {
  std::string css =
      ".series{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11px}.series text{fill:#222}"
      ".series .bg{fill:#fff}.series .soft{fill:#666}.series .grid{stroke:#000;stroke-opacity:.13;fill:none}"
      ".series .l{fill:none;stroke-width:1.5}.series .ref{fill:#777}.series "
      ".refl{stroke:#777}.series .lead{stroke:#777;stroke-width:.7}\n";
  for (std::size_t index = 0; index < kColors.size(); ++index) {
    css += fmt::format(".series .s{0}{{fill:{1}}}.series .s{0}l{{stroke:{1}}}", index, kColors[index]);
  }
  if (dark_mode) {
    css +=
        "\n@media (prefers-color-scheme:dark){.series text{fill:#ddd}.series .bg{fill:#16181c}.series "
        ".soft{fill:#aaa}.series .grid{stroke:#fff}}";
  }
  return css;
}

}  // namespace

std::string write_series_svg(const std::vector<SeriesChart>& charts, const SeriesSvgOptions& options) {
  const std::size_t in_row = charts.size() == 1 ? 1 : 2;
  const double column = (options.width - 2 * kMargin) / static_cast<double>(in_row);
  const std::size_t rows = (charts.size() + in_row - 1) / in_row;
  const double height = 2 * kMargin + options.chart_height * static_cast<double>(rows);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"series\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "role=\"img\">\n<style>\n{2}\n</style>\n<rect class=\"bg\" width=\"{0}\" height=\"{1}\"/>\n",
      coordinate(options.width), coordinate(height), style_sheet(options.dark_mode));
  for (std::size_t index = 0; index < charts.size(); ++index) {
    Frame frame;
    const std::size_t row = index / in_row;
    frame.left = kMargin + column * static_cast<double>(index % in_row) + kLeft;
    frame.top = kMargin + options.chart_height * static_cast<double>(row) + kTop;
    frame.width = column - kLeft - kMargin;
    frame.height = options.chart_height - kTop - kBottom;
    svg += ChartDrawing(charts[index], frame).draw();
  }
  return svg + "</svg>\n";
}

}  // namespace flopcast
