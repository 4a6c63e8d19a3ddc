#pragma once

#include <string>
#include <string_view>

#include "base/text/words.hpp"

namespace flopcast {

inline constexpr std::string_view kDigits = "0123456789";

/// A user's text in quotes, fit for an error message: at most 40 characters, unprintable bytes as '?'.
std::string quote(std::string_view text);

}  // namespace flopcast
