#include "reports/html/page.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "model/error/error.hpp"
#include "reports/html/page_view.hpp"
#include "reports/timeline/svg_style.hpp"

namespace flopcast {

namespace {

bool ends_with(std::string_view text, std::string_view ending) {
  return text.size() >= ending.size() && text.substr(text.size() - ending.size()) == ending;
}

std::string all_with_ending(std::string_view ending) {
  std::string text;
  for (const EmbeddedFile& file : embedded_page()) {
    if (ends_with(file.path, ending)) text += file.text;
  }
  return text;
}

// The template with every {{mark}} replaced, in one pass: what is filled in is not searched, since a name may look like
// a mark.
std::string filled(const std::string& page, const std::map<std::string, std::string>& texts) {
  std::string text;
  std::size_t at = 0;
  for (std::size_t mark = page.find("{{"); mark != std::string::npos; mark = page.find("{{", at)) {
    const std::size_t end = page.find("}}", mark);
    FLOPCAST_CHECK(end != std::string::npos);
    text.append(page, at, mark - at);
    text += texts.at(page.substr(mark + 2, end - mark - 2));
    at = end + 2;
  }
  return text.append(page, at, std::string::npos);
}

// JSON may hold text that HTML reads as the end of the script around it.
std::string escaped(const std::string& json) {
  std::string text;
  text.reserve(json.size());
  for (const char character : json) {
    if (character == '<') {
      text += "\\u003c";
    } else {
      text += character;
    }
  }
  return text;
}

}  // namespace

std::string write_page(const PageInfo& info, const std::vector<nlohmann::ordered_json>& views) {
  const nlohmann::ordered_json data = {{"title", info.title},
                                       {"tool", info.tool},
                                       {"question", info.question},
                                       {"terms", page_terms()},
                                       {"views", views}};
  return filled(all_with_ending(".html"),
                {{"title", escape_xml(info.title)},
                 {"style", all_with_ending(".css")},
                 {"script", all_with_ending(".js")},
                 {"data", escaped(data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))}});
}

}  // namespace flopcast
