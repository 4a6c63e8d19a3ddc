#pragma once

#include <optional>
#include <string>

#include "sim/forecast/result.hpp"

namespace flopcast {

/// What comparisons read of a file that `simulate --format json` wrote; nothing when the text is none.
std::optional<Result> read_saved_result(const std::string& text, const std::string& file);

}  // namespace flopcast
