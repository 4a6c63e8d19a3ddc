#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/catalog/catalogue.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/metrics/memory_over_time.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

struct PageInfo {
  std::string title;
  std::string tool;      ///< "flopcast 0.1.0"
  std::string question;  ///< what was asked, one line: the model and the layout; may be empty
};

/// One HTML file that shows views and loads nothing: a timeline to zoom into, bars, tables, and the
/// assumptions; with a second view of the same kind (measured below forecast, one layout beside another) side by side.
/// Its parts lie in page/; `<` in data is escaped, so that nothing in a name ends the data. Same input, same bytes.
std::string write_page(const PageInfo& info, const std::vector<nlohmann::ordered_json>& views);

/// The parts of the page: page/report.html, style.css and scripts in the order in which they are joined.
const std::vector<EmbeddedFile>& embedded_page();

/// What the page shows under one name, "forecast" or "gpipe": any of a result (flopcast.result/1), a timeline with what
/// its ranks did with their time, memory over time, and what each kind of action consists of.
nlohmann::ordered_json page_view(const std::string& name, const Forecast& forecast);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline,
                                 const nlohmann::ordered_json& result);
/// Of a timeline whose transfers are unknown: neither what its ranks waited for nor its critical path is told.
nlohmann::ordered_json page_view_of_spans(const std::string& name, const Timeline& timeline);
/// Of a result alone.
nlohmann::ordered_json page_view(const std::string& name, const nlohmann::ordered_json& result);

/// The terms that pages draw, with their keys, names, colours and explanations: {"step": [...] by the keys of a
/// breakdown, "bubble": [...] by those of a view's metrics, "memory": [...] by those of a rank}. Pages take them from
/// their data, so that they name a term as every other output does.
nlohmann::ordered_json page_terms();

/// Seconds of an action by what it consists of, by letter and stage ("F0"). They sum to the action's time, but for
/// rounding to ticks: a full backward pass has what it hides behind its weight gradient as a negative part.
nlohmann::ordered_json action_parts(const PreparedStep& step);

/// The views of a JSON result of this program: flopcast.result/1, flopcast.run/1 (forecast, then measured), the one in
/// a flopcast.measurement/1, flopcast.timeline/1, flopcast.comparison/1 (every layout by its name). A result holds the
/// job that it answers; where forecasting that job again gives the same step time, its timeline is shown too. `name` is
/// what a single result is called. A view tells its layout as "description", and what of it had to be left out as
/// "note". Throws ConfigError for anything else.
std::vector<nlohmann::ordered_json> views_of_result(const nlohmann::ordered_json& json, const std::string& name,
                                                    const std::string& file, const ReadFile& read_file);

/// Adds to a view of a flopcast.run/1, "forecast" or "measured", its activations over time: what the spans of its
/// timeline hold, by the bytes that the run tells for each stage. Does nothing where it tells none. Throws ConfigError.
void add_activations(nlohmann::ordered_json& view, const Timeline& timeline, const nlohmann::ordered_json& run,
                     const std::string& file);

/// What was measured on what, for people, from a flopcast.run/1: the cluster that its job names need not be there.
std::string describe_run(const Job& job, const nlohmann::ordered_json& run);

}  // namespace flopcast
