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

/// A sequence of whole numbers as bytes that a page decodes with a few lines (page/decode.js): each number in zigzag
/// (0, -1, 1, -2 … as 0, 1, 2, 3 …), seven bits a byte, low ones first, the eighth set where more follow; after two
/// equal numbers in a row, how many more of them come. Schedules repeat themselves, so that a column of differences to
/// what was expected is next to nothing.
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

/// A timeline as a page reads it (page/decode.js): names and colours of its kinds of action once, and of every span its
/// start, duration, microbatch and what it waited for, as columns of differences to what the spans before suggest
/// (ColumnWriter). A span's wait is the last to end of its inputs on other streams or ranks: the action, and how long
/// its result travelled. `path`, its critical path, is a list of (rank, position). Times are ticks, divided by a power
/// of ten where they would not fit into a double.
///
/// A simulated million of actions takes some kilobytes, a measured one about eight bytes an action.
nlohmann::ordered_json pack_timeline(const Timeline& timeline, const CriticalPath& path);

/// Memory over time in the same form; `units` as pack_timeline chose them.
nlohmann::ordered_json pack_memory(const Timeline& timeline, const std::vector<RankMemory>& memory,
                                   const std::vector<double>& capacity_gib);

struct PageInfo {
  std::string title;
  std::string tool;          ///< "flopcast 0.1.0"
  std::string question;      ///< what was asked, one line: the model and the layout; may be empty
  std::string answer = {};   ///< in one line: step time, days, cost, memory; may be empty
  std::string command = {};  ///< that was typed; may be empty
};

/// A drawing on a page, a whole SVG.
struct PageFigure {
  std::string title;
  std::string svg;
};
/// What a page shows beside views.
struct PageParts {
  std::vector<std::string> advice = {};  ///< what else was tried and what it gives, a sentence each
  std::vector<PageFigure> figures = {};
  std::vector<Table> tables = {};  ///< to sort by any column; long ones closed
};

/// What a page shows of a run of months: its life and its tables; nothing where there is none.
PageParts run_parts(const Forecast& forecast, const std::optional<RunLife>& life);

/// One HTML file that shows views and loads nothing: a timeline to zoom into, bars, tables, and the
/// assumptions; with a second view of the same kind (measured below forecast, one layout beside another) side by side.
/// Its parts lie in page/; `<` in data is escaped, so that nothing in a name ends the data. Same input, same bytes.
std::string write_page(const PageInfo& info, const std::vector<nlohmann::ordered_json>& views,
                       const PageParts& parts = {});
/// With the fabric's links and their loads, where the cluster has a network.
std::string forecast_page(PageInfo info, const Forecast& forecast, PageParts parts = {});
/// The forecasts side by side, each under its name.
std::string forecasts_page(const PageInfo& info, const std::vector<std::pair<std::string, const Forecast*>>& forecasts,
                           PageParts parts);
/// Each under what stands before the colon of its title.
std::string timelines_page(const PageInfo& info, const std::vector<Timeline>& timelines);
/// The forecast above what was measured on what, which is the page's question: the cluster that the job names need not
/// be there. Each with its activations over time: what the spans of its timeline hold, by the bytes of each stage.
std::string run_page(PageInfo info, const RunComparison& run);

/// A saved result, and what its view is called where it is of one layout.
struct ReportFile {
  std::string path;
  std::string name;
};
/// The views of all of them. `notes`: what had to be left out. Throws ConfigError for what is no result, and where
/// timelines are in other units: they are drawn over one axis.
std::string report_page(const std::vector<ReportFile>& files, const std::string& tool, const ReadFile& read_file,
                        std::vector<std::string>& notes);

/// The parts of the page: page/report.html, style.css and scripts in the order in which they are joined.
const std::vector<EmbeddedFile>& embedded_page();

/// What the page shows under one name, "forecast" or "gpipe": any of a result (flopcast.result/1), a timeline with what
/// its ranks did with their time, memory over time, and what each kind of action consists of.
nlohmann::ordered_json page_view(const std::string& name, const Forecast& forecast);
nlohmann::ordered_json page_view(const std::string& name, const Timeline& timeline);
/// Of a result alone.
nlohmann::ordered_json page_view(const std::string& name, const nlohmann::ordered_json& result);

/// The terms that pages draw, with their keys, names, colours and explanations: {"step": [...] by the keys of a
/// breakdown, "bubble": [...] by those of a view's metrics, "memory": [...] by those of a rank}. Pages take them from
/// their data, so that they name a term as every other output does.
nlohmann::ordered_json page_terms();

/// The views of a JSON result of this program: flopcast.result/1, flopcast.run/1 (forecast, then measured), the one in
/// a flopcast.measurement/1, flopcast.timeline/1, flopcast.comparison/1 (every layout by its name),
/// flopcast.plan/1 (the three best). A result holds the
/// job that it answers; where forecasting that job again gives the same step time, its timeline is shown too. `name` is
/// what a single result is called. A view tells its layout as "description", and what of it had to be left out as
/// "note". Throws ConfigError for anything else.
std::vector<nlohmann::ordered_json> views_of_result(const nlohmann::ordered_json& json, const std::string& name,
                                                    const std::string& file, const ReadFile& read_file);

}  // namespace flopcast
