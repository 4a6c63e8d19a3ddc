#pragma once

#include <cstddef>
#include <string>

namespace flopcast {

/// About what a text takes in a chart, in pixels: the mean letter of Helvetica at 11 px, with some room.
inline double text_width(const std::string& text) {
  constexpr double kLetter = 6.2;
  return kLetter * static_cast<double>(text.size());
}

}  // namespace flopcast
