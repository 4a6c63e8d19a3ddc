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

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace flopcast
