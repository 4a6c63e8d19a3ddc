#pragma once

#include <string>

#include "base/text/state_rows.hpp"

namespace flopcast {

/// Each stretch of at least 0.3 px has its state, start and length as a tooltip; shorter ones are left out. Valid XML,
/// self-contained, the same bytes for the same input.
std::string write_state_rows_svg(const StateRows& rows);

}  // namespace flopcast
