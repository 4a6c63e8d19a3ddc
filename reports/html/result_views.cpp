#include "reports/html/result_views.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>

#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "reports/html/page_view.hpp"
#include "reports/timeline/timeline_json.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;
using Views = std::vector<Json>;

bool is_result(const Json& json) {
  return json.is_object() && json.value("schema", Json()) == "flopcast.result/1" && json.contains("iteration") &&
         json.contains("breakdown") && json.contains("bubble") && json.contains("communication") &&
         json.contains("memory");
}

// The forecast that a result tells of; nothing when this program, or what the job's files hold now, says otherwise.
std::optional<Forecast> forecast_of(const Json& result, const ReadFile& read_file) {
  if (!result.contains("job")) return std::nullopt;
  try {
    const Job job = read_job(nlohmann::json(result.at("job")), Origins{});
    Forecast again = forecast(job, read_file);
    const double said = result.at("iteration").at("time_s").get<double>();
    constexpr double kSame = 1e-9;
    if (std::abs(again.result.iteration.time_s - said) > kSame * said) return std::nullopt;
    return again;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

Json view_of(const Json& result, const std::string& name, const ReadFile& read_file) {
  const std::optional<Forecast> again = forecast_of(result, read_file);
  if (!again) return page_view(name, result);
  Json view = page_view(name, *again);
  view["result"] = result;
  return view;
}

Views views_of_run(const Json& run, const std::string& file) {
  Views views;
  for (const char* side : {"forecast", "measured"}) {
    if (!run.contains(side) || !is_result(run.at(side))) {
      throw ConfigError({side, "is no flopcast.result/1", file, "expected what `flopcast run --format json` writes"});
    }
    if (run.contains("timelines") && run.at("timelines").contains(side)) {
      const Timeline timeline = read_timeline(run.at("timelines").at(side), file, fmt::format("timelines.{}", side));
      views.push_back(page_view(side, timeline, run.at(side)));
    } else {
      views.push_back(page_view(side, run.at(side)));
    }
  }
  return views;
}

Views views_of_timelines(const Json& json, const std::string& file) {
  Views views;
  const Json timelines = json.value("timelines", Json::array());
  for (std::size_t index = 0; index < timelines.size(); ++index) {
    const Timeline timeline = read_timeline(timelines[index], file, fmt::format("timelines[{}]", index));
    views.push_back(page_view(timeline.title.substr(0, timeline.title.find(": ")), timeline));
  }
  if (views.empty()) throw ConfigError({"timelines", "holds nothing", file, "give at least one timeline"});
  return views;
}

Views views_of_comparison(const Json& json, const std::string& file, const ReadFile& read_file) {
  Views views;
  const auto add = [&](const Json& holder, const char* side) {
    const Json layout = holder.value(side, Json::object());
    if (!layout.contains("result") || !is_result(layout.at("result"))) {
      throw ConfigError({side, "holds no result", file, "expected what `flopcast compare --format json` writes"});
    }
    views.push_back(view_of(layout.at("result"), layout.value("name", side), read_file));
  };
  add(json, "a");
  add(json, "b");
  for (const Json& other : json.value("others", Json::array())) add(other, "b");
  return views;
}

}  // namespace

Views views_of_result(const Json& json, const std::string& name, const std::string& file, const ReadFile& read_file) {
  const Json schema = json.is_object() ? json.value("schema", Json()) : Json();
  if (is_result(json)) return {view_of(json, name, read_file)};
  if (schema == "flopcast.run/1") return views_of_run(json, file);
  if (schema == "flopcast.timeline/1") return views_of_timelines(json, file);
  if (schema == "flopcast.comparison/1") return views_of_comparison(json, file, read_file);
  throw ConfigError({"", fmt::format("{} holds no result that a report shows", file), file,
                     "expected what simulate, compare, timeline or run write with --format json"});
}

}  // namespace flopcast
