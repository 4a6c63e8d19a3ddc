#pragma once

#include <string_view>
#include <vector>

#include "sim/cells/cell.hpp"

namespace flopcast {

/// What the ranks compute of a schedule's text; its communications are left out.
inline Program parse_csv(std::string_view text, std::string_view file_name, const std::vector<Chain>& chains) {
  return compute_of(parse_cell_csv(text, file_name, chains));
}

}  // namespace flopcast
