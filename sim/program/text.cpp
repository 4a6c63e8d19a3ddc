#include "sim/program/text.hpp"

#include <cstddef>

namespace flopcast {

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 40;
  std::string quoted = "'";
  for (const char character : text.substr(0, kLongest)) {
    quoted += character >= ' ' && character <= '~' ? character : '?';
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace flopcast
