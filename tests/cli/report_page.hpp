#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace flopcast {

/// The data inside a page that --html or `flopcast report` wrote.
inline nlohmann::json data_of_page(const std::string& html) {
  const std::string opening = "<script type=\"application/json\" id=\"report-data\">";
  const std::size_t from = html.find(opening);
  if (from == std::string::npos) return {};
  const std::size_t begin = from + opening.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

}  // namespace flopcast
