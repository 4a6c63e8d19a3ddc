#pragma once

#include <optional>
#include <string>
#include <vector>

namespace flopcast {

/// One measure over two keys.
struct HeatMap {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<std::string> x;
  std::vector<std::string> y;
  std::vector<std::vector<std::optional<double>>> cells;  ///< [y][x]; nothing where there is no answer
  int digits = 3;                                         ///< significant
};

/// A standalone SVG without scripts: cells from light to dark blue by value, each with its number, empty ones hatched.
std::string write_heat_map_svg(const HeatMap& map);

}  // namespace flopcast
