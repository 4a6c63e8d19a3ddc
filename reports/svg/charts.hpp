#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

struct SeriesSvgOptions : FigureStyle {
  double chart_height = 280.0;  ///< height of one chart
};

/// Charts with axes, grid and legend, two in a row if there are several and room for them. Lines differ by dashes as
/// well as colour, points by shape; series use Okabe-Ito colours. Every point has its label and values as a tooltip.
/// Valid XML, self-contained, the same bytes for the same input.
std::string write_series_svg(const std::vector<SeriesChart>& charts, const SeriesSvgOptions& options);

struct LabelBox {
  double left = 0.0;
  double top = 0.0;
  double width = 0.0;
  double height = 0.0;

  bool overlaps(const LabelBox& other) const {
    return left < other.left + other.width && other.left < left + width && top < other.top + other.height &&
           other.top < top + height;
  }
};

/// A straight segment of a line.
struct LineStretch {
  double x1 = 0.0;
  double y1 = 0.0;
  double x2 = 0.0;
  double y2 = 0.0;

  bool crosses(const LabelBox& box) const;
};

/// Places names next to points so that they cover neither each other nor a point: to the right of the point, to the
/// left, above, below, and then farther away; if there is room nearby, they also avoid lines. Greedy in the order of
/// the calls; if nothing is free, the name goes to the right.
class PointLabels {
 public:
  explicit PointLabels(const LabelBox& frame) : frame_(frame) {}

  /// Reserves the area of a point, so that no name covers it.
  void avoid(double x, double y);
  /// Adds a line that names should avoid.
  void avoid(const LineStretch& line) { lines_.push_back(line); }
  /// Chooses the position of the point's name, within the frame if possible.
  LabelBox place(double x, double y, const std::string& name);

 private:
  LabelBox frame_;
  std::vector<LabelBox> taken_;
  std::vector<LineStretch> lines_;
};

/// A value for each pair of two varied quantities.
struct HeatMap {
  struct Cell {
    std::optional<double> value;  ///< empty if there is none
    std::string note;             ///< tooltip; for an empty cell, why it is empty
    bool fits = true;             ///< false: the number is struck through, and the cell cannot be the best
  };
  std::string title;
  std::string value_name;  ///< with its unit
  std::string column_title;
  std::string row_title;
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<std::vector<Cell>> cells;  ///< by row, one cell per column
  bool low_is_good = true;               ///< the best cell gets a frame
};

/// As wide as its numbers need, or as the style says in print. A grid with a number in each cell, coloured from the
/// palette cividis (Nunez et al. 2018, designed for every kind of colour vision, lighter for larger values; ten of its
/// colours, interpolated), on a scale between the smallest and the largest value. Empty cells are hatched; a legend
/// explains frames, struck-out numbers and hatching if they occur. Valid XML, self-contained, the same bytes for the
/// same input.
std::string write_heat_map_svg(const HeatMap& map, const FigureStyle& style = {});

/// A standalone SVG without scripts: y over x, both logarithmic over the same range, and below it, for each point, the
/// deviation of y from x in percent, which a logarithmic axis hides. Errors beyond the panel are drawn at its edge.
/// Series differ by shape and by colour of the Okabe-Ito palette, which people with colour-blindness can distinguish;
/// the legend names them with their number of points, next to the plot if there is room, else below it.
std::string write_scatter_svg(const ScatterChart& chart, const FigureStyle& style = {});

/// Each stretch of at least 0.3 px has its state, start and length as a tooltip; shorter ones are left out. Valid XML,
/// self-contained, the same bytes for the same input.
std::string write_state_rows_svg(const StateRows& rows);

/// A fabric from its hosts up; each box has a link to one box of the row above.
struct FabricPicture {
  struct Box {
    std::string name;
    std::string note;   ///< tooltip text, besides the name and the loads
    double up = 0.0;    ///< utilisation of its upward links, from 0 to 1
    double down = 0.0;  ///< utilisation of its downward links, from 0 to 1
  };
  struct Row {
    std::string name;
    std::vector<Box> boxes;
  };
  std::string title;
  std::string note;       ///< below the title
  bool has_loads = true;  ///< false: there is no traffic, and links have no colour
  std::vector<Row> rows;  ///< lowest row first; each box belongs to its share of the row above, in order
};

/// Rows of boxes, the highest on top, with the links between them coloured from grey (empty) to red (full) and wider
/// the fuller they are; links up to the left of links down. Boxes that would be narrower than a pixel are merged, with
/// the fullest of their links. Valid XML, self-contained, the same bytes for the same input.
std::string write_fabric_svg(const FabricPicture& picture, bool dark_mode = false);

}  // namespace flopcast
