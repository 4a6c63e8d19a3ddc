#include "reports/html/page.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "model/error/error.hpp"
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

void replace(std::string& page, std::string_view mark, std::string_view text) {
  const std::size_t at = page.find(mark);
  FLOPCAST_CHECK(at != std::string::npos);
  page.replace(at, mark.size(), text);
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
  const nlohmann::ordered_json data = {
      {"title", info.title}, {"tool", info.tool}, {"question", info.question}, {"views", views}};
  std::string page = all_with_ending(".html");
  replace(page, "{{title}}", escape_xml(info.title));
  replace(page, "{{style}}", all_with_ending(".css"));
  replace(page, "{{script}}", all_with_ending(".js"));
  // Last, so that no mark is looked for in the data.
  replace(page, "{{data}}", escaped(data.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)));
  return page;
}

}  // namespace flopcast
