#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flopcast {

/// What a rank was doing over time, row below row on one axis: a forecast above what traces show.
struct StateRow {
  struct Stretch {
    double start = 0.0;  ///< seconds
    double end = 0.0;
    std::size_t state = 0;  ///< index into StateRows::states
  };
  std::string name;
  std::vector<Stretch> stretches;
};
struct StateRows {
  std::string title;
  std::vector<std::string> states;  ///< at most as many as the palette has colours; the last one is drawn as waiting
  std::vector<StateRow> rows;
};

}  // namespace flopcast
