#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/catalog/catalogue.hpp"

namespace flopcast {

struct PageInfo {
  std::string title;
  std::string tool;      ///< "flopcast 0.1.0"
  std::string question;  ///< what was asked, one line: the model and the layout; may be empty
};

/// One HTML file that shows the views (page_view.hpp) and loads nothing: a timeline to zoom into, bars, tables, and the
/// assumptions; with a second view of the same kind (measured below forecast, one layout beside another) side by side.
/// Its parts lie in page/; `<` in data is escaped, so that nothing in a name ends the data. Same input, same bytes.
std::string write_page(const PageInfo& info, const std::vector<nlohmann::ordered_json>& views);

/// The parts of the page: page/report.html, style.css and scripts in the order in which they are joined.
const std::vector<EmbeddedFile>& embedded_page();

}  // namespace flopcast
