#include "reports/chart/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "model/error/error.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {

namespace {

constexpr double kCellWidth = 84.0;
constexpr double kCellHeight = 30.0;
constexpr double kLeft = 130.0;
constexpr double kTop = 72.0;
constexpr double kRight = 24.0;
constexpr double kBottom = 24.0;
constexpr double kDarkEnough = 0.55;  // of the scale: from here on white letters read better

struct ValueRange {
  double least = 0.0;
  double most = 0.0;

  double share(double value) const { return most > least ? (value - least) / (most - least) : 0.5; }
};

ValueRange span_of(const HeatMap& map) {
  ValueRange span;
  bool any = false;
  for (const auto& row : map.cells) {
    for (const std::optional<double>& cell : row) {
      if (!cell) continue;
      span.least = any ? std::min(span.least, *cell) : *cell;
      span.most = any ? std::max(span.most, *cell) : *cell;
      any = true;
    }
  }
  return span;
}

// From nearly white to the blue of the Okabe-Ito palette: it grows darker evenly, so it reads in grey too.
std::string color_of(double share) {
  const auto mix = [share](int light, int dark) { return light + static_cast<int>(share * (dark - light)); };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(0xee, 0x00), mix(0xf4, 0x50), mix(0xfa, 0x8c));
}

std::string text_at(double x, double y, const std::string& text, const char* anchor, const char* fill) {
  return fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", coordinate(x), coordinate(y),
                     anchor, fill, escape_xml(text));
}

std::string cell_at(const HeatMap& map, std::size_t column, std::size_t row, const ValueRange& span) {
  const double x = kLeft + static_cast<double>(column) * kCellWidth;
  const double y = kTop + static_cast<double>(row) * kCellHeight;
  const std::optional<double>& value = map.cells[row][column];
  const std::string fill = value ? color_of(span.share(*value)) : "url(#none)";
  std::string svg = fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\" stroke=\"#ffffff\"/>\n",
                                coordinate(x), coordinate(y), coordinate(kCellWidth), coordinate(kCellHeight), fill);
  if (!value) return svg;
  const char* ink = span.share(*value) >= kDarkEnough ? "#ffffff" : "#1a1a1a";
  return svg + text_at(x + kCellWidth / 2, y + kCellHeight / 2 + 4, fmt::format("{:.{}g}", *value, map.digits),
                       "middle", ink);
}

}  // namespace

std::string write_heat_map_svg(const HeatMap& map) {
  FLOPCAST_CHECK(map.cells.size() == map.y.size());
  const double width = kLeft + static_cast<double>(map.x.size()) * kCellWidth + kRight;
  const double height = kTop + static_cast<double>(map.y.size()) * kCellHeight + kBottom;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<defs><pattern id=\"none\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M0 6L6 0\" "
      "stroke=\"#999999\"/></pattern></defs>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      coordinate(width), coordinate(height));
  svg += text_at(12, 20, map.title, "start", "#1a1a1a");
  svg += text_at(kLeft, 42, map.x_label, "start", "#555555");
  svg += text_at(12, kTop - 10, map.y_label, "start", "#555555");
  for (std::size_t column = 0; column < map.x.size(); ++column) {
    const double x = kLeft + (static_cast<double>(column) + 0.5) * kCellWidth;
    svg += text_at(x, kTop - 8, map.x[column], "middle", "#1a1a1a");
  }
  const ValueRange span = span_of(map);
  for (std::size_t row = 0; row < map.y.size(); ++row) {
    FLOPCAST_CHECK(map.cells[row].size() == map.x.size());
    svg += text_at(kLeft - 8, kTop + (static_cast<double>(row) + 0.5) * kCellHeight + 4, map.y[row], "end", "#1a1a1a");
    for (std::size_t column = 0; column < map.x.size(); ++column) svg += cell_at(map, column, row, span);
  }
  return svg + "</svg>\n";
}

}  // namespace flopcast
