#include "reports/svg/scatter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "reports/svg/canvas.hpp"

namespace flopcast {

namespace {

constexpr double kPlotSide = 480.0;  // side of the square
constexpr double kPlotLeft = 80.0;
constexpr double kPlotTop = 48.0;
constexpr double kPlotBottom = 56.0;
constexpr double kLeastLegend = 150.0;
constexpr double kLegendLetter = 8.2;  // of the legend, px: the mean of wide fonts at 13 px
constexpr double kLegendLine = 20.0;
constexpr double kMarkerRadius = 3.5;

// Circle, square, diamond and triangle: with seven colours, 28 series before a pair comes again.
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

// Decades that hold every point of both axes.
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

void draw_axes(Canvas& canvas, const ScatterChart& chart, const AxisScale& scale) {
  canvas.rectangle(" class=\"frame\"", kPlotLeft, kPlotTop, kPlotSide, kPlotSide);
  for (const AxisMark& mark : scale.marks()) {
    const double x = kPlotLeft + mark.position * kPlotSide;
    const double y = kPlotTop + kPlotSide - mark.position * kPlotSide;
    canvas.path("grid", fmt::format("M{} {}v{}M{} {}h{}", coordinate(x), coordinate(kPlotTop), coordinate(kPlotSide),
                                    coordinate(kPlotLeft), coordinate(y), coordinate(kPlotSide)));
    const std::string label = decade_label(mark.value);
    canvas.text(x, kPlotTop + kPlotSide + 16, " class=\"tick\" text-anchor=\"middle\"", label);
    canvas.text(kPlotLeft - 6, y + 4, " class=\"tick\" text-anchor=\"end\"", label);
  }
  canvas.text(kPlotLeft + kPlotSide / 2, kPlotTop + kPlotSide + 40, " text-anchor=\"middle\"", chart.x_label);
  const std::string turn = fmt::format(" text-anchor=\"middle\" transform=\"translate({} {}) rotate(-90)\"",
                                       coordinate(kPlotLeft - 52), coordinate(kPlotTop + kPlotSide / 2));
  canvas.text(0.0, 0.0, turn, chart.y_label);
}

// y = x · factor over the plot, cut where it leaves the square.
void draw_diagonal(Canvas& canvas, const char* css, double factor, const AxisScale& scale) {
  const double shift = std::log10(factor) / scale.decades() * kPlotSide;
  const double from = std::max(0.0, -shift);
  const double to = std::min(kPlotSide, kPlotSide - shift);
  if (to <= from) return;
  canvas.path(css,
              fmt::format("M{} {}L{} {}", coordinate(kPlotLeft + from), coordinate(kPlotTop + kPlotSide - from - shift),
                          coordinate(kPlotLeft + to), coordinate(kPlotTop + kPlotSide - to - shift)));
}

constexpr double kLegendGap = 24.0;
constexpr double kLegendText = 12.0;  // from the marker

std::string legend_text(const Series& series) {
  return fmt::format("{} ({})", series.name, std::count_if(series.points.begin(), series.points.end(), drawable));
}

double legend_width(const ScatterChart& chart) {
  double widest = kLeastLegend;
  for (const Series& series : chart.series) {
    widest = std::max(widest, text_width(legend_text(series), kLegendLetter));
  }
  return kLegendGap + kLegendText + widest;
}

void draw_legend_entry(Canvas& canvas, const Series& series, std::size_t index) {
  const double x = kPlotLeft + kPlotSide + kLegendGap;
  const double y = kPlotTop + 10 + kLegendLine * static_cast<double>(index);
  canvas.put("{} fill=\"{}\"/>\n", marker(index, x, y), kPalette.at(index % kPalette.size()));
  canvas.text(x + kLegendText, y + 4, "", legend_text(series));
}

void draw_points(Canvas& canvas, const Series& series, std::size_t index, const AxisScale& scale) {
  canvas.put("<g class=\"point\" fill=\"{}\">\n", kPalette.at(index % kPalette.size()));
  for (const SeriesPoint& point : series.points) {
    if (!drawable(point)) continue;
    const std::string shape = marker(index, kPlotLeft + scale.position(point.x) * kPlotSide,
                                     kPlotTop + kPlotSide - scale.position(point.y) * kPlotSide);
    const std::string tag = shape.substr(1, shape.find(' ') - 1);
    canvas.put("{}><title>{}: {:.4g}, {:.4g}</title></{}>\n", shape, escape_xml(point.label), point.x, point.y, tag);
  }
  canvas.append("</g>\n");
}

}  // namespace

std::string write_scatter_svg(const ScatterChart& chart) {
  const AxisScale scale = scale_of(chart);
  const double legend_height = kLegendLine * static_cast<double>(chart.series.size() + 2);
  Canvas canvas;
  canvas.text(kPlotLeft, 26.0, " font-size=\"16\"", chart.title);
  draw_axes(canvas, chart, scale);
  draw_diagonal(canvas, "exact", 1.0, scale);
  if (chart.band > 0.0) {
    draw_diagonal(canvas, "band", 1.0 + chart.band, scale);
    draw_diagonal(canvas, "band", 1.0 - chart.band, scale);
    canvas.text(kPlotLeft + kPlotSide + 18, kPlotTop + legend_height, " class=\"tick\"",
                fmt::format("dashed: ±{:g} %", chart.band * 100.0));
  }
  for (std::size_t index = 0; index < chart.series.size(); ++index) {
    draw_points(canvas, chart.series[index], index, scale);
    draw_legend_entry(canvas, chart.series[index], index);
  }
  SvgFrame frame{"scatter", kPlotLeft + kPlotSide + legend_width(chart),
                 kPlotTop + std::max(kPlotSide, legend_height) + kPlotBottom, 13};
  frame.title = chart.title;
  frame.css =
      ".scatter .frame{fill:none;stroke:#444}.scatter .tick{font-size:11px}.scatter .exact{stroke:#444}"
      ".scatter .band{stroke:#888;stroke-dasharray:4 3}.scatter .point{fill-opacity:.65}";
  frame.dark_mode = false;
  return canvas.finish(frame);
}

}  // namespace flopcast
