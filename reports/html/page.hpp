#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/table.hpp"
#include "model/catalog/catalogue.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/prepare.hpp"
#include "sim/metrics/metrics.hpp"
#include "sim/run/run.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// A sequence of integers as bytes that a page decodes with a few lines of code (page/decode.js). Each number is
/// zigzag-encoded (0, -1, 1, -2 … as 0, 1, 2, 3 …), seven bits per byte, low bits first, with the eighth bit set if
/// more bytes follow. After two equal numbers in a row comes the count of further repeats. Schedules repeat themselves,
/// so a column of differences from the prediction is almost empty.
class ColumnWriter {
 public:
  void add(std::int64_t number);
  /// The bytes in base64 (RFC 4648). Ends the column.
  std::string finish();

 private:
  void put(std::uint64_t bits);
  void end_run();

  std::string bytes_;
  std::optional<std::int64_t> last_;
  bool in_run_ = false;
  std::uint64_t repeats_ = 0;
};

std::string base64(std::string_view bytes);

/// A timeline as a page reads it (page/decode.js): names and colours of its kinds of action once, and for every span
/// its start, duration, microbatch and wait, as columns of differences from what the previous spans predict
/// (ColumnWriter). A span's wait is the last of its inputs on other streams or ranks to end: the action, and how long
/// its result travelled. `path`, the critical path, is a list of (rank, position). Times are ticks, divided by a power
/// of ten if they would not fit into a double.
///
/// A simulated million actions takes a few kilobytes, a measured one about eight bytes per action.
nlohmann::ordered_json pack_timeline(const Timeline& timeline, const CriticalPath& path);

/// Memory over time in the same form, in the time unit that pack_timeline chose.
nlohmann::ordered_json pack_memory(const Timeline& timeline, const std::vector<RankMemory>& memory,
                                   const std::vector<double>& capacity_gib);

struct PageInfo {
  std::string title;
  std::string tool;          ///< "flopcast 0.1.0"
  std::string question;      ///< the question in one line: the model and the layout; may be empty
  std::string answer = {};   ///< in one line: step time, days, cost, memory; may be empty
  std::string command = {};  ///< the command line; may be empty
};

/// A figure on a page, as a complete SVG.
struct PageFigure {
  std::string title;
  std::string svg;
};
/// The contents of a page besides its views.
struct PageParts {
  std::vector<std::string> advice = {};  ///< other changes tried and their effect, one sentence each
  std::vector<PageFigure> figures = {};
  std::vector<Table> tables = {};  ///< sortable by any column; long ones are collapsed
};

/// Page contents for a whole training run: its history and its tables; empty if the result has none.
PageParts run_parts(const Forecast& forecast, const std::optional<RunLife>& life);

/// One self-contained HTML file that shows views: a timeline to zoom into, bars, tables and the assumptions; with a
/// second view of the same kind (measured below forecast, one layout next to another) side by side. Its parts are in
/// page/. `<` in the data is escaped, so that no name can end the script. The same input gives the same bytes.
std::string write_page(const PageInfo& info, const std::vector<nlohmann::ordered_json>& views,
                       const PageParts& parts = {});
/// Includes the fabric's links and their loads if the cluster has a network.
std::string forecast_page(PageInfo info, const Forecast& forecast, PageParts parts = {});
/// Shows the forecasts side by side, each under its name.
std::string forecasts_page(const PageInfo& info, const std::vector<std::pair<std::string, const Forecast*>>& forecasts,
                           PageParts parts);
/// Names each timeline by the part of its title before the colon.
std::string timelines_page(const PageInfo& info, const std::vector<Timeline>& timelines);
/// Shows the forecast above the measurement. The page's question names the devices measured, since the cluster of the
/// job need not exist. Each has its activations over time: what the spans of its timeline hold, from the bytes of each
/// stage.
std::string run_page(PageInfo info, const RunComparison& run);

/// A saved result, and the name of its view if it has only one layout.
struct ReportFile {
  std::string path;
  std::string name;
};
/// Shows the views of all files. `notes` receives the omissions. Throws ConfigError for files that are not results and
/// for timelines in different units, since they share one axis.
std::string report_page(const std::vector<ReportFile>& files, const std::string& tool, const ReadFile& read_file,
                        std::vector<std::string>& notes);

/// The parts of the page: page/report.html, style.css and the scripts in the order in which they are joined.
const std::vector<EmbeddedFile>& embedded_page();

/// The contents of a page under one name, "forecast" or "gpipe". Each is optional: a result (flopcast.result/1), a
/// timeline with how its ranks spend their time, memory over time, and the parts of each kind of action.
nlohmann::ordered_json page_view(const std::string& name, const Forecast& forecast);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline);
/// A view of a result without a timeline.
nlohmann::ordered_json page_view(const std::string& name, const nlohmann::ordered_json& result);

/// The terms that pages draw, with their keys, names, colours and explanations: {"step": [...] by the keys of a
/// breakdown, "bubble": [...] by those of a view's metrics, "memory": [...] by those of a rank}. They are part of the
/// page's data, so that pages name a term as every other output does.
nlohmann::ordered_json page_terms();

/// The views of a JSON result of this program: flopcast.result/1, flopcast.run/1 (forecast, then measured), the one in
/// a flopcast.measurement/1, flopcast.timeline/1, flopcast.comparison/1 (every layout by its name) and flopcast.plan/1
/// (the best three). A result holds its job; if forecasting that job again gives the same step time, its timeline is
/// shown too. `name` is the name of a single result. A view holds its layout as "description" and its omissions as
/// "note". Throws ConfigError for anything else.
std::vector<nlohmann::ordered_json> views_of_result(const nlohmann::ordered_json& json, const std::string& name,
                                                    const std::string& file, const ReadFile& read_file);

}  // namespace flopcast
