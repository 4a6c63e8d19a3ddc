#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "reports/svg/canvas.hpp"

namespace flopcast {

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

}  // namespace flopcast
