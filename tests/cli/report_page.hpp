#pragma once

#include <cstddef>
#include <string>

namespace flopcast {

/// The JSON inside a page written by --html or `flopcast report`; null if there is none.
inline std::string data_of_page(const std::string& html) {
  const std::string opening = "<script type=\"application/json\" id=\"report-data\">";
  const std::size_t from = html.find(opening);
  if (from == std::string::npos) return "null";
  const std::size_t begin = from + opening.size();
  return html.substr(begin, html.find("</script>", begin) - begin);
}

}  // namespace flopcast
