#pragma once

#include <rapidcheck.h>
#include <cstddef>
#include <string>

namespace flopcast {

/// The text with one to six edits that mimic errors of copying, cutting, mixing and disks.
inline std::string damaged(std::string text) {
  const int edits = *rc::gen::inRange(1, 7);
  for (int edit = 0; edit < edits; ++edit) {
    if (text.empty()) text = " ";
    const auto place = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(text.size())));
    const auto length = static_cast<std::size_t>(*rc::gen::inRange(1, 60));
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        text.erase(place, length);
        break;
      case 1:
        text.insert(place, 1, static_cast<char>(*rc::gen::inRange(0, 256)));
        break;
      case 2:
        text[place] = static_cast<char>(*rc::gen::inRange(0, 256));
        break;
      case 3:  // repeats a piece
        text.insert(place, text.substr(place / 2, length));
        break;
      case 4:  // changes numbers: signs, exponents, too many digits
        text.insert(place, *rc::gen::elementOf(std::string("-+.eE9")) == '9' ? "99999999999999999999" : "-");
        break;
      default:
        if (*rc::gen::inRange(0, 4) == 0) text.resize(place);
        break;
    }
  }
  return text;
}

}  // namespace flopcast
