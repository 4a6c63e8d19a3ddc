#pragma once

#include <string>
#include <vector>

namespace flopcast {

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
