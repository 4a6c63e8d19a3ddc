#include "reports/chart/scatter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reports/timeline/svg_style.hpp"

namespace flopcast {

namespace {

constexpr double kPlot = 480.0;  // side of the square
constexpr double kLeft = 80.0;
constexpr double kTop = 48.0;
constexpr double kBottom = 56.0;
constexpr double kLeastLegend = 150.0;
constexpr double kLetter = 8.2;  // of the legend, px: the mean of wide fonts at 13 px
constexpr double kLegendLine = 20.0;
constexpr double kMarker = 3.5;

constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

// Circle, square, diamond and triangle: with seven colours, 28 series before a pair comes again.
std::string marker(std::size_t series, double x, double y) {
  const std::size_t shape = series % 4;
  const auto at = [](double value) { return coordinate(value); };
  const double r = kMarker;
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

// Decades that hold every point of both axes.
struct Range {
  double low = 0.0;
  double high = 1.0;

  double position(double value) const { return (std::log10(value) - low) / (high - low) * kPlot; }
};

bool drawable(const ScatterPoint& point) {
  return point.x > 0.0 && point.y > 0.0 && std::isfinite(point.x) && std::isfinite(point.y);
}

Range range_of(const ScatterChart& chart) {
  double least = 0.0;
  double most = 0.0;
  bool any = false;
  for (const ScatterSeries& series : chart.series) {
    for (const ScatterPoint& point : series.points) {
      if (!drawable(point)) continue;
      const double smaller = std::log10(std::min(point.x, point.y));
      const double larger = std::log10(std::max(point.x, point.y));
      least = any ? std::min(least, smaller) : smaller;
      most = any ? std::max(most, larger) : larger;
      any = true;
    }
  }
  if (!any) return {};
  Range range{std::floor(least), std::ceil(most)};
  if (range.high <= range.low) range.high = range.low + 1.0;
  return range;
}

std::string tick_label(int decade) {
  constexpr int kPlainDecades = 4;
  if (decade > kPlainDecades || decade < -kPlainDecades) return fmt::format("1e{}", decade);
  return fmt::format("{:g}", std::pow(10.0, decade));
}

std::string axes(const ScatterChart& chart, const Range& range) {
  std::string svg = fmt::format(R"(<rect class="frame" x="{}" y="{}" width="{}" height="{}"/>)", coordinate(kLeft),
                                coordinate(kTop), coordinate(kPlot), coordinate(kPlot));
  svg += "\n";
  for (int decade = static_cast<int>(range.low); decade <= static_cast<int>(range.high); ++decade) {
    const double along = range.position(std::pow(10.0, decade));
    const std::string x = coordinate(kLeft + along);
    const std::string y = coordinate(kTop + kPlot - along);
    svg += fmt::format(R"(<path class="grid" d="M{} {}v{}M{} {}h{}"/>)", x, coordinate(kTop), coordinate(kPlot),
                       coordinate(kLeft), y, coordinate(kPlot));
    svg += fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>)", x,
                       coordinate(kTop + kPlot + 16), tick_label(decade));
    svg += fmt::format(R"(<text class="tick" x="{}" y="{}" text-anchor="end">{}</text>)", coordinate(kLeft - 6),
                       coordinate(kTop + kPlot - along + 4), tick_label(decade));
    svg += "\n";
  }
  svg += fmt::format(R"(<text x="{}" y="{}" text-anchor="middle">{}</text>)", coordinate(kLeft + kPlot / 2),
                     coordinate(kTop + kPlot + 40), escape_xml(chart.x_label));
  svg += fmt::format(R"svg(<text transform="translate({} {}) rotate(-90)" text-anchor="middle">{}</text>)svg",
                     coordinate(kLeft - 52), coordinate(kTop + kPlot / 2), escape_xml(chart.y_label));
  return svg + "\n";
}

// y = x · factor over the plot, cut where it leaves the square.
std::string diagonal(const char* style, double factor, const Range& range) {
  const double shift = std::log10(factor) / (range.high - range.low) * kPlot;
  const double from = std::max(0.0, -shift);
  const double to = std::min(kPlot, kPlot - shift);
  if (to <= from) return "";
  return fmt::format("<path class=\"{}\" d=\"M{} {}L{} {}\"/>\n", style, coordinate(kLeft + from),
                     coordinate(kTop + kPlot - from - shift), coordinate(kLeft + to),
                     coordinate(kTop + kPlot - to - shift));
}

constexpr double kLegendGap = 24.0;
constexpr double kLegendText = 12.0;  // from the marker

std::string legend_text(const ScatterSeries& series) {
  return fmt::format("{} ({})", series.name, std::count_if(series.points.begin(), series.points.end(), drawable));
}

double legend_width(const ScatterChart& chart) {
  double widest = kLeastLegend;
  for (const ScatterSeries& series : chart.series) {
    widest = std::max(widest, kLetter * static_cast<double>(legend_text(series).size()));
  }
  return kLegendGap + kLegendText + widest;
}

std::string legend_entry(const ScatterSeries& series, std::size_t index) {
  const double x = kLeft + kPlot + kLegendGap;
  const double y = kTop + 10 + kLegendLine * static_cast<double>(index);
  return fmt::format("{} fill=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>\n", marker(index, x, y),
                     kColors[index % kColors.size()], coordinate(x + kLegendText), coordinate(y + 4),
                     escape_xml(legend_text(series)));
}

}  // namespace

std::string write_scatter_svg(const ScatterChart& chart) {
  const Range range = range_of(chart);
  const double legend_height = kLegendLine * static_cast<double>(chart.series.size() + 2);
  const double height = kTop + std::max(kPlot, legend_height) + kBottom;
  const double width = kLeft + kPlot + legend_width(chart);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\" font-size=\"13\" role=\"img\" aria-label=\"{2}\">\n",
      coordinate(width), coordinate(height), escape_xml(chart.title));
  svg +=
      "<style>.frame{fill:none;stroke:#444}.grid{stroke:#ddd;fill:none}.tick{font-size:11px}.exact{stroke:#444}"
      ".band{stroke:#888;stroke-dasharray:4 3}.point{fill-opacity:.65}</style>\n";
  svg += fmt::format(
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/><text x=\"{}\" y=\"26\" font-size=\"16\">{}</text>\n",
      coordinate(kLeft), escape_xml(chart.title));
  svg += axes(chart, range);
  svg += diagonal("exact", 1.0, range);
  if (chart.band > 0.0) {
    svg += diagonal("band", 1.0 + chart.band, range) + diagonal("band", 1.0 - chart.band, range);
    svg += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{}\">dashed: ±{:g} %</text>\n",
                       coordinate(kLeft + kPlot + 18), coordinate(kTop + legend_height), chart.band * 100.0);
  }
  for (std::size_t index = 0; index < chart.series.size(); ++index) {
    const ScatterSeries& series = chart.series[index];
    svg += fmt::format("<g class=\"point\" fill=\"{}\">\n", kColors[index % kColors.size()]);
    for (const ScatterPoint& point : series.points) {
      if (!drawable(point)) continue;
      const std::string shape = marker(index, kLeft + range.position(point.x), kTop + kPlot - range.position(point.y));
      const std::string tag = shape.substr(1, shape.find(' ') - 1);
      svg += fmt::format("{}><title>{}: {:.4g}, {:.4g}</title></{}>\n", shape, escape_xml(point.label), point.x,
                         point.y, tag);
    }
    svg += "</g>\n" + legend_entry(series, index);
  }
  return svg + "</svg>\n";
}

}  // namespace flopcast
