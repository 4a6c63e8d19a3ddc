#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/series.hpp"
#include "reports/svg/canvas.hpp"

namespace flopcast {

struct SeriesSvgOptions : FigureStyle {
  double chart_height = 280.0;  ///< of one chart
};

/// Charts with axes, grid and legend, two in a row if there are several and room for them; lines of a chart differ by
/// dashes too, points by shape; series in Okabe-Ito colours. Every point tells
/// its label and values as a tooltip. Valid XML, self-contained, the same bytes for the same input.
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

/// A straight stretch of a line.
struct LineStretch {
  double x1 = 0.0;
  double y1 = 0.0;
  double x2 = 0.0;
  double y2 = 0.0;

  bool crosses(const LabelBox& box) const;
};

/// Puts names beside points so that they cover neither each other nor a point: to the right of it, to the left, above,
/// below, and then farther off; where there is room nearby no line runs through them either. Greedy in the order of the
/// calls; where nothing is free the name goes to the right.
class PointLabels {
 public:
  explicit PointLabels(const LabelBox& frame) : frame_(frame) {}

  /// A point that no name may cover.
  void avoid(double x, double y);
  /// A line that no name should lie on.
  void avoid(const LineStretch& line) { lines_.push_back(line); }
  /// Where the name of the point goes, within the frame where possible.
  LabelBox place(double x, double y, const std::string& name);

 private:
  LabelBox frame_;
  std::vector<LabelBox> taken_;
  std::vector<LineStretch> lines_;
};

/// A value for each pair of two things that were varied.
struct HeatMap {
  struct Cell {
    std::optional<double> value;  ///< nothing where there is none
    std::string note;             ///< its tooltip; of an empty cell, why it is empty
    bool fits = true;             ///< false: its number is struck through, and it is not the best
  };
  std::string title;
  std::string value_name;  ///< with its unit
  std::string column_title;
  std::string row_title;
  std::vector<std::string> columns;
  std::vector<std::string> rows;
  std::vector<std::vector<Cell>> cells;  ///< by row; as many as there are columns in each
  bool low_is_good = true;               ///< the best cell gets a frame
};

/// As wide as its numbers need, or as the style says where that tells a size in print. A grid with a number in each
/// cell, coloured from the palette cividis (Nunez et al. 2018, made for every kind of colour vision, and as light as
/// its values are large; ten of its colours, interpolated), on a scale between the least and the largest value. Empty
/// cells are hatched; a legend says what a frame, a struck-out number and hatching mean, where they occur. Valid XML,
/// self-contained, the same bytes for the same input.
std::string write_heat_map_svg(const HeatMap& map, const FigureStyle& style = {});

/// A standalone SVG without scripts: y over x, both logarithmic over the same range, and below it, of each point, how
/// far y lies from x in percent, which a logarithmic axis hides. Errors beyond the panel stand at its edge. Series
/// differ by shape and by colour of the Okabe-Ito palette, which people with colour-blindness can tell apart; the
/// legend names them with their number of points, beside the plot where there is room, else below it.
std::string write_scatter_svg(const ScatterChart& chart, const FigureStyle& style = {});

/// Each stretch of at least 0.3 px has its state, start and length as a tooltip; shorter ones are left out. Valid XML,
/// self-contained, the same bytes for the same input.
std::string write_state_rows_svg(const StateRows& rows);

/// A fabric from its hosts up: in each row so many boxes, each with a link to one of the row above.
struct FabricPicture {
  struct Box {
    std::string name;
    std::string note;   ///< its tooltip, beside the name and the loads
    double up = 0.0;    ///< how full its links upward are, from 0 to 1
    double down = 0.0;  ///< and those back
  };
  struct Row {
    std::string name;
    std::vector<Box> boxes;
  };
  std::string title;
  std::string note;       ///< below the title
  bool has_loads = true;  ///< false: nothing sends, and links have no colour
  std::vector<Row> rows;  ///< the lowest first; each box belongs to its share of the row above, in order
};

/// Rows of boxes, the highest on top, and the links between them in colours from grey, empty, to red, full, wider the
/// fuller; links up to the left of links down. Boxes that would be narrower than a pixel are drawn several as one, with
/// the fullest links among them. Valid XML, self-contained, the same bytes for the same input.
std::string write_fabric_svg(const FabricPicture& picture, bool dark_mode = false);

}  // namespace flopcast
