#include "reports/series/series_svg.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <iterator>
#include <utility>

#include "reports/series/series_axis.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {

namespace {

constexpr double kMargin = 16.0;
constexpr double kLeft = 56.0;
constexpr double kTop = 44.0;
constexpr double kBottom = 42.0;
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

class ChartDrawing {
 public:
  ChartDrawing(const SeriesChart& chart, const Frame& frame)
      : chart_(chart),
        frame_(frame),
        x_(x_values(chart), chart.x.logarithmic),
        y_(y_values(chart), chart.y.logarithmic) {}

  std::string draw() {
    text(frame_.left, frame_.top - 26.0, " font-weight=\"bold\" font-size=\"12\"", chart_.title);
    draw_axes();
    double legend = frame_.left;
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      const Series& series = chart_.series[index];
      const std::string css = fmt::format("s{}", index % kColors.size());
      if (is_line(series.style)) draw_line(series, css);
      if (!is_line(series.style)) draw_points(series, css);
      put("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"9\" height=\"9\"/>\n", css, coordinate(legend),
          coordinate(frame_.top - 17.0));
      text(legend + 13.0, frame_.top - 9.0, "", series.name);
      legend += 34.0 + 6.2 * static_cast<double>(series.name.size());
    }
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
      if (series.style == SeriesStyle::kPoints) {
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
  AxisScale x_;
  AxisScale y_;
  std::string svg_;
};

std::string style_sheet(bool dark_mode) {
  std::string css =
      ".series{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:11px}.series text{fill:#222}"
      ".series .bg{fill:#fff}.series .soft{fill:#666}.series .grid{stroke:#000;stroke-opacity:.13;fill:none}"
      ".series .l{fill:none;stroke-width:1.5}\n";
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
