#include "reports/svg/charts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kPlotLeft = 62.0;
constexpr double kLegendLine = 16.0;
constexpr double kMarkerRadius = 3.0;
constexpr double kResidualHeight = 120.0;
constexpr double kMostResidual = 0.5;  // edges of the residual panel
constexpr double kLegendGap = 20.0;
constexpr double kLegendText = 12.0;  // offset from the marker

// Positions of the parts of the plot.
struct ScatterFrame {
  double left = kPlotLeft;
  double top = 0.0;
  double side = 0.0;          // side of the square plot
  double residual_top = 0.0;  // top of the panel below the plot
  double legend_left = 0.0;
  double legend_top = 0.0;
  double bottom = 0.0;
  double width = 0.0;
};

// Circle, square, diamond and triangle: with seven colours, 28 series before a combination repeats.
std::string marker(std::size_t series, double x, double y) {
  const std::size_t shape = series % 4;
  const auto at = [](double value) { return coordinate(value); };
  const double r = kMarkerRadius;
  if (shape == 0) return fmt::format(R"(<circle cx="{}" cy="{}" r="{}")", at(x), at(y), at(r));
  if (shape == 1) {
    return fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}")", at(x - r), at(y - r), at(2 * r), at(2 * r));
  }
  if (shape == 2) {
    return fmt::format(R"(<path d="M{} {}l{} {}l{} {}l{} {}z")", at(x), at(y - r), at(r), at(r), at(-r), at(r), at(-r),
                       at(-r));
  }
  return fmt::format(R"(<path d="M{} {}l{} {}h{}z")", at(x), at(y - r), at(r), at(2 * r), at(-2 * r));
}

bool drawable(const SeriesPoint& point) {
  return point.x > 0.0 && point.y > 0.0 && std::isfinite(point.x) && std::isfinite(point.y);
}

// A scale whose decades cover every point of both axes.
AxisScale scale_of(const ScatterChart& chart) {
  std::vector<double> values;
  for (const Series& series : chart.series) {
    for (const SeriesPoint& point : series.points) {
      if (drawable(point)) values.insert(values.end(), {point.x, point.y});
    }
  }
  return {values, true};
}

std::string decade_label(double decade) {
  constexpr double kPlainDecades = 4.0;
  if (std::abs(decade) > kPlainDecades) return fmt::format("1e{}", static_cast<int>(decade));
  return fmt::format("{:g}", std::pow(10.0, decade));
}

std::string legend_text(const Series& series) {
  return fmt::format("{} ({})", series.name, std::count_if(series.points.begin(), series.points.end(), drawable));
}

ScatterFrame scatter_frame(const ScatterChart& chart, const FigureStyle& style) {
  constexpr double kLargestSide = 480.0;
  constexpr double kSideLegendWidth = 640.0;  // narrower figures have their legend below
  constexpr double kAxisHeight = 40.0;
  double legend = 0.0;
  for (const Series& series : chart.series) legend = std::max(legend, text_width(legend_text(series), kLetterOf11));
  legend += kLegendGap + kLegendText + kImageMargin;
  const bool beside = style.width >= kSideLegendWidth;
  ScatterFrame frame;
  frame.top = style.titles ? 40.0 : 8.0;
  frame.side = std::clamp(style.width - kPlotLeft - (beside ? legend : kImageMargin), 120.0, kLargestSide);
  frame.residual_top = frame.top + frame.side + kAxisHeight - 16.0;
  frame.bottom = frame.residual_top + kResidualHeight + kAxisHeight;
  const double entries = static_cast<double>(chart.series.size()) + 1.0;
  frame.legend_left = beside ? kPlotLeft + frame.side + kLegendGap : kPlotLeft;
  frame.legend_top = beside ? frame.top + 10.0 : frame.bottom + 8.0;
  if (!beside) frame.bottom += kLegendLine * entries + 8.0;
  frame.bottom = std::max(frame.bottom, frame.legend_top + kLegendLine * entries);
  frame.width = style.in_print ? style.width : kPlotLeft + frame.side + (beside ? legend : kImageMargin);
  return frame;
}

class ScatterDrawing {
 public:
  ScatterDrawing(Canvas& canvas, const ScatterChart& chart, const ScatterFrame& frame)
      : canvas_(canvas), chart_(chart), frame_(frame), scale_(scale_of(chart)) {}

  void draw() {
    draw_axes();
    draw_diagonal("exact", 1.0);
    if (chart_.band > 0.0) {
      draw_diagonal("band", 1.0 + chart_.band);
      draw_diagonal("band", 1.0 - chart_.band);
    }
    draw_residual_axes();
    for (std::size_t index = 0; index < chart_.series.size(); ++index) {
      draw_points(index);
      draw_legend_entry(index);
    }
    if (chart_.band <= 0.0) return;
    const double y = frame_.legend_top + kLegendLine * static_cast<double>(chart_.series.size());
    canvas_.path("band", fmt::format("M{} {}h12", coordinate(frame_.legend_left - 4.0), coordinate(y)));
    canvas_.text(frame_.legend_left + kLegendText, y + 4.0, "", fmt::format("±{:g} %", chart_.band * 100.0));
  }

 private:
  double x_of(double value) const { return frame_.left + scale_.position(value) * frame_.side; }
  double y_of(double value) const { return frame_.top + frame_.side - scale_.position(value) * frame_.side; }
  double residual_y(double share) const {
    const double at = std::clamp(share, -kMostResidual, kMostResidual) / kMostResidual;
    return frame_.residual_top + kResidualHeight / 2 * (1.0 - at);
  }

  void turned(double y, const std::string& words) {
    canvas_.text(0.0, 0.0,
                 fmt::format(" class=\"soft\" text-anchor=\"middle\" transform=\"translate({} {}) rotate(-90)\"",
                             coordinate(frame_.left - 46.0), coordinate(y)),
                 words);
  }

  void draw_axes() {
    canvas_.rectangle(" class=\"frame\"", frame_.left, frame_.top, frame_.side, frame_.side);
    const double below = frame_.residual_top + kResidualHeight;
    for (const AxisMark& mark : scale_.marks()) {
      const double x = frame_.left + mark.position * frame_.side;
      const double y = frame_.top + frame_.side - mark.position * frame_.side;
      canvas_.path("grid",
                   fmt::format("M{} {}v{}M{} {}h{}M{} {}v{}", coordinate(x), coordinate(frame_.top),
                               coordinate(frame_.side), coordinate(frame_.left), coordinate(y), coordinate(frame_.side),
                               coordinate(x), coordinate(frame_.residual_top), coordinate(kResidualHeight)));
      const std::string label = decade_label(mark.value);
      canvas_.text(x, below + 15.0, " text-anchor=\"middle\"", label);
      canvas_.text(frame_.left - 6.0, y + 4.0, " text-anchor=\"end\"", label);
    }
    canvas_.text(frame_.left + frame_.side / 2, below + 31.0, " class=\"soft\" text-anchor=\"middle\"", chart_.x_label);
    turned(frame_.top + frame_.side / 2, chart_.y_label);
  }

  void draw_residual_axes() {
    canvas_.rectangle(" class=\"frame\"", frame_.left, frame_.residual_top, frame_.side, kResidualHeight);
    for (const double share : {-kMostResidual, -kMostResidual / 2, 0.0, kMostResidual / 2, kMostResidual}) {
      const double y = residual_y(share);
      canvas_.path(share == 0.0 ? "exact" : "grid",
                   fmt::format("M{} {}h{}", coordinate(frame_.left), coordinate(y), coordinate(frame_.side)));
      canvas_.text(frame_.left - 6.0, y + 4.0, " text-anchor=\"end\"",
                   share == 0.0 ? "0 %" : fmt::format("{:+g} %", share * 100.0));
    }
    for (const double share : {-chart_.band, chart_.band}) {
      if (share == 0.0) continue;
      canvas_.path("band", fmt::format("M{} {}h{}", coordinate(frame_.left), coordinate(residual_y(share)),
                                       coordinate(frame_.side)));
    }
    turned(frame_.residual_top + kResidualHeight / 2, "error");
  }

  // Draws y = x · factor, clipped to the square.
  void draw_diagonal(const char* css, double factor) {
    const double shift = std::log10(factor) / scale_.decades() * frame_.side;
    const double from = std::max(0.0, -shift);
    const double to = std::min(frame_.side, frame_.side - shift);
    if (to <= from) return;
    canvas_.path(css, fmt::format("M{} {}L{} {}", coordinate(frame_.left + from),
                                  coordinate(frame_.top + frame_.side - from - shift), coordinate(frame_.left + to),
                                  coordinate(frame_.top + frame_.side - to - shift)));
  }

  void draw_legend_entry(std::size_t index) {
    const double y = frame_.legend_top + kLegendLine * static_cast<double>(index);
    canvas_.put("{} fill=\"{}\"/>\n", marker(index, frame_.legend_left, y), kPalette.at(index % kPalette.size()));
    canvas_.text(frame_.legend_left + kLegendText, y + 4.0, "", legend_text(chart_.series[index]));
  }

  void draw_point(std::size_t index, double x, double y, const std::string& title) {
    const std::string shape = marker(index, x, y);
    const std::string tag = shape.substr(1, shape.find(' ') - 1);
    canvas_.put("{}><title>{}</title></{}>\n", shape, escape_xml(title), tag);
  }

  void draw_points(std::size_t index) {
    canvas_.put("<g class=\"point\" fill=\"{}\">\n", kPalette.at(index % kPalette.size()));
    for (const SeriesPoint& point : chart_.series[index].points) {
      if (!drawable(point)) continue;
      const double error = point.y / point.x - 1.0;
      const std::string title =
          fmt::format("{}: {:.4g}, {:.4g}, {:+.1f} %", point.label, point.x, point.y, error * 100.0);
      draw_point(index, x_of(point.x), y_of(point.y), title);
      draw_point(index, x_of(point.x), residual_y(error), title);
    }
    canvas_.append("</g>\n");
  }

  Canvas& canvas_;
  const ScatterChart& chart_;
  ScatterFrame frame_;
  AxisScale scale_;
};

}  // namespace

std::string write_scatter_svg(const ScatterChart& chart, const FigureStyle& style) {
  const ScatterFrame place = scatter_frame(chart, style);
  Canvas canvas;
  if (style.titles) canvas.text(kPlotLeft, 26.0, " font-size=\"15\" font-weight=\"bold\"", chart.title);
  ScatterDrawing(canvas, chart, place).draw();
  SvgFrame frame{"scatter", place.width, place.bottom};
  frame.title = chart.title;
  frame.font_size = text_size(style);
  frame.in_print = style.in_print;
  frame.css =
      ".scatter .frame{fill:none;stroke:#555}.scatter .exact{stroke:#555}"
      ".scatter .band{stroke:#888;stroke-dasharray:4 3}.scatter .point{fill-opacity:.65}";
  frame.dark_css = ".scatter .frame,.scatter .exact{stroke:#aaa}";
  frame.dark_mode = style.dark_mode;
  return canvas.finish(frame);
}

}  // namespace flopcast
