#pragma once

#include <string>
#include <string_view>

namespace flopcast {

/// ASCII letters in lower case, all else as it is.
std::string lower_case(std::string_view text);

}  // namespace flopcast
