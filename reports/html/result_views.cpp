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

// A timeline from a file, with what its ranks waited for where the file tells that.
Json view_of_timeline(const Json& json, const std::string& name, const std::string& file, const std::string& field) {
  const Timeline timeline = read_timeline(json, file, field);
  const std::string shown = name.empty() ? timeline.title.substr(0, timeline.title.find(": ")) : name;
  if (tells_transfers(json)) return page_view(shown, timeline);
  Json view = page_view_of_spans(shown, timeline);
  view["note"] = fmt::format("{} of {} tells no transfers, as early versions wrote it: no waiting and no critical path",
                             field, file);
  return view;
}

Views views_of_run(const Json& run, const std::string& file) {
  Views views;
  for (const char* side : {"forecast", "measured"}) {
    if (!run.contains(side) || !is_result(run.at(side))) {
      throw ConfigError({side, "is no flopcast.result/1", file, "expected what `flopcast run --format json` writes"});
    }
    if (run.contains("timelines") && run.at("timelines").contains(side)) {
      Json view = view_of_timeline(run.at("timelines").at(side), side, file, fmt::format("timelines.{}", side));
      view["result"] = run.at(side);
      views.push_back(std::move(view));
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
    views.push_back(view_of_timeline(timelines[index], "", file, fmt::format("timelines[{}]", index)));
  }
  if (views.empty()) throw ConfigError({"timelines", "holds nothing", file, "give at least one timeline"});
  return views;
}

}  // namespace

Views views_of_result(const Json& json, const std::string& name, const std::string& file, const ReadFile& read_file) {
  const Json schema = json.is_object() ? json.value("schema", Json()) : Json();
  if (is_result(json)) return {view_of(json, name, read_file)};
  if (schema == "flopcast.run/1") return views_of_run(json, file);
  if (schema == "flopcast.timeline/1") return views_of_timelines(json, file);
  if (json.is_object() && json.contains("a") && json.contains("b") && is_result(json.at("a")) &&
      is_result(json.at("b"))) {
    return {view_of(json.at("a"), "a", read_file), view_of(json.at("b"), "b", read_file)};
  }
  throw ConfigError({"", fmt::format("{} holds no result that a report shows", file), file,
                     "expected what simulate, compare, timeline or run write with --format json"});
}

}  // namespace flopcast
