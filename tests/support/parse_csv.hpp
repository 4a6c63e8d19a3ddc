#pragma once

#include <string_view>
#include <vector>

#include "sim/cells/cell.hpp"

namespace flopcast {

/// Computation in a schedule's text; its communication is left out.
inline Program parse_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  return compute_of(parse_cell_csv(text, file_name, chains));
}

}  // namespace flopcast
