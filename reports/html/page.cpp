#include "reports/html/page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/text/error.hpp"
#include "model/config/document.hpp"
#include "model/hardware/network_fabric.hpp"
#include "model/job/read_job.hpp"
#include "reports/result/result_tables.hpp"
#include "reports/svg/canvas.hpp"
#include "reports/timeline/writers.hpp"
#include "sim/files/compared_run.hpp"
#include "sim/files/result_file.hpp"
#include "sim/files/run_file.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/terms.hpp"
#include "sim/metrics/metrics.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;
using Views = std::vector<Json>;

Json metrics_json(const Timeline& timeline) {
  const TimelineMetrics metrics = measure(timeline);
  const auto time = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json ranks = Json::array();
  for (const RankMetrics& rank : metrics.ranks) {
    Json row = {{"busy", time(rank.busy)},
                {"pipeline", time(rank.exposed_pipeline)},
                {"data_parallel", time(rank.exposed_data_parallel)}};
    for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
      row[std::string(name_of(static_cast<BubbleCause>(cause)))] = time(rank.bubble_by_cause.at(cause));
    }
    row["peak_in_flight"] = rank.peak_in_flight;
    ranks.push_back(std::move(row));
  }
  return {{"makespan", time(metrics.makespan)},       {"span", time(metrics.longest_span())},
          {"idle_fraction", metrics.idle_fraction()}, {"bubble_fraction", metrics.bubble_fraction()},
          {"bubble_ratio", metrics.bubble_ratio()},   {"ranks", std::move(ranks)}};
}

// The job of a result; nothing if this version cannot read it.
std::optional<Job> job_of(const Json& result) {
  if (!result.contains("job")) return std::nullopt;
  try {
    return read_job(nlohmann::json(result.at("job")), Origins{});
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// A result with the timeline from forecasting its job again. Adds a note if the forecast, because of this version or
// changed files of the job, differs from the result.
Json view_of(const Json& result, const std::string& name, const ReadFile& read_file) {
  Json view = page_view(name, result);
  std::string reason = "it does not contain its job";
  if (result.contains("job")) {
    try {
      const Forecast again = forecast(read_job(nlohmann::json(result.at("job")), Origins{}), read_file);
      const double said = result.at("iteration").at("time_s").get<double>();
      const double says = again.result.iteration.time_s;
      constexpr double kSame = 1e-9;
      if (std::abs(says - said) <= kSame * said) {
        view = page_view(name, again);
        view["result"] = result;
        view["description"] = describe_job(again.step.job);
        view["answer"] = answer_line(again.result);
        return view;
      }
      reason =
          fmt::format("this version forecasts {:.6g} s per step for its job, but the result says {:.6g} s", says, said);
    } catch (const ConfigError& error) {
      reason =
          fmt::format("its job cannot be forecast again: {} {}", error.diagnostic().field, error.diagnostic().problem);
    }
  }
  if (const std::optional<Job> job = job_of(result)) view["description"] = describe_job(*job);
  view["note"] = fmt::format("{}: no timeline; {}", name, reason);
  return view;
}

// Memory over time: the activations that a timeline's spans hold, from the bytes of each stage.
Json activations_of(const Timeline& timeline, const std::vector<HeldBytes>& held) {
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < timeline.rank_count(); ++rank) ranks.push_back(memory_over_time(timeline, rank, 0.0, held));
  Json memory = pack_memory(timeline, ranks, std::vector<double>(ranks.size(), 0.0));
  memory["of"] = "activations";
  return memory;
}

// A timeline from a file, with what its ranks waited for if the file records it.
Json view_of_timeline(const SavedTimeline& saved, const std::string& name, const std::string& file) {
  const std::string& title = saved.timeline.title;
  const std::string shown = name.empty() ? title.substr(0, title.find(": ")) : name;
  if (saved.has_transfers) return page_view(shown, saved.timeline);
  // Neither waits nor a critical path can be derived.
  Json view = {{"name", shown},
               {"timeline", pack_timeline(saved.timeline, CriticalPath{})},
               {"slices", saved.timeline.slices_per_microbatch}};
  view["note"] =
      fmt::format("{} of {} lacks transfers (written by an early version): waiting and critical path are not shown",
                  saved.field, file);
  return view;
}

// Named as in the run's file.
Json view_of_side(const SavedRun::Side& side, const std::string& name, const Json& result, const std::string& file) {
  if (!side.timeline) return page_view(name, result);
  Json view = view_of_timeline(*side.timeline, name, file);
  view["result"] = result;
  if (!side.held.empty()) view["memory"] = activations_of(side.timeline->timeline, side.held);
  return view;
}

std::string describe_run(const Job& job, const SavedRun& run) {
  std::string text = describe_job(job);
  if (run.backend.empty()) return text;
  text += fmt::format("\nmeasured with backend {}", run.backend);
  if (!run.conditions.empty()) text += ", " + run.conditions;
  text += "; the cluster above is the one in the job file\n";
  if (run.has_held_bytes) {
    return text +
           "under each rank: activations over time, computed from the times of its actions and the modelled bytes of "
           "each; of memory, only the peak activations were measured";
  }
  if (run.slept) return text + "no memory over time: the ranks slept and kept no activations";
  return text + "no memory over time: the run file lacks the bytes held by its actions (written by an early version)";
}

Views views_of_run(const Json& json, const std::string& file) {
  const SavedRun run = read_run(json, file);
  Views views = {view_of_side(run.forecast, "forecast", json.at("forecast"), file),
                 view_of_side(run.measured, "measured", json.at("measured"), file)};
  for (Json& view : views) {
    if (const std::optional<Job> job = job_of(view.at("result"))) view["description"] = describe_run(*job, run);
  }
  views.back()["run"] = run.told;
  return views;
}

Views views_of_timelines(const Json& json, const std::string& file) {
  Views views;
  for (const SavedTimeline& saved : read_timelines(json, file)) views.push_back(view_of_timeline(saved, "", file));
  return views;
}

Views views_of_comparison(const Json& json, const std::string& file, const ReadFile& read_file) {
  Views views;
  for (const NamedResult& layout : read_comparison(json, file)) {
    views.push_back(view_of(*layout.result, layout.name, read_file));
  }
  return views;
}

// "1: tp 8, pp 4, vpp 5": rank of a layout in the plan, and the axes that divide the model.
std::string name_of_ranked(const Json& layout, std::size_t place) {
  std::vector<std::string> keys;
  for (const Axis axis : kAxes) keys.emplace_back(name_of(axis));
  keys.insert(keys.end(), {"vpp", "zero"});
  std::string text = std::to_string(place);
  const char* separator = ": ";
  for (const std::string& key : keys) {
    const Json value = layout.is_object() ? layout.value(key, Json()) : Json();
    if (!value.is_number_integer() || value == 1) continue;
    text += fmt::format("{}{} {}", separator, key, dumped(value));
    separator = ", ";
  }
  return text;
}

// The best layouts of a plan, each with its timeline, as many as fit on a screen.
Views views_of_plan(const Json& json, const std::string& file, const ReadFile& read_file) {
  constexpr std::size_t kMostShown = 3;
  const Json ranked = json.value("ranked", Json::array());
  if (!ranked.is_array() || ranked.empty()) {
    throw ConfigError(
        {"ranked", "must be a list of layouts", file, "expected output of `flopcast plan --format json`"});
  }
  Views views;
  for (const Json& entry : ranked) {
    if (views.size() == kMostShown) break;
    const Json result = entry.is_object() ? entry.value("result", Json()) : Json();
    if (!has_schema(result, kResultName)) {
      throw ConfigError({fmt::format("ranked.{}", views.size()), "does not hold a result", file,
                         "expected output of `flopcast plan --format json`"});
    }
    views.push_back(view_of(result, name_of_ranked(entry.value("layout", Json()), views.size() + 1), read_file));
  }
  return views;
}

// The parts of every action (pass_parts), each with the key of its term in the breakdown.
Json action_parts(const PreparedStep& step) {
  Json all = Json::object();
  for (const auto& [action, parts] : pass_parts(step)) {
    Json list = Json::array();
    for (const PassPart& part : parts) {
      list.push_back({{"name", part.name}, {"term", step_term(part.id).key}, {"seconds", part.seconds}});
    }
    all[action] = std::move(list);
  }
  return all;
}

std::string all_with_ending(std::string_view ending) {
  std::string text;
  for (const EmbeddedFile& file : embedded_page()) {
    if (std::string_view(file.path).ends_with(ending)) text += file.text;
  }
  return text;
}

// The template with every {{mark}} replaced in one pass, so that text which looks like a mark is not replaced again.
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

// Escapes `<`, since JSON may hold text that HTML would read as the end of the script.
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

Json page_terms() {
  Json terms = {{"step", Json::array()}, {"bubble", Json::array()}, {"memory", Json::array()}};
  const auto add = [&terms](const char* group, std::string_view key, const auto& term) {
    terms[group].push_back({{"key", key}, {"name", term.name}, {"color", term.color}, {"what", term.what}});
  };
  for (const StepTerm& term : breakdown_terms()) add("step", term.key, term);
  for (std::size_t cause = 0; cause < kBubbleCauses; ++cause) {
    add("bubble", name_of(static_cast<BubbleCause>(cause)), bubble_terms().at(cause));
  }
  for (const MemoryTerm& term : memory_terms()) add("memory", term.key, term);
  add("memory", kBeyondTensors.key, kBeyondTensors);
  return terms;
}

Json page_view(const std::string& name, const Timeline& timeline) {
  return {{"name", name},
          {"timeline", pack_timeline(timeline, critical_path(timeline))},
          {"metrics", metrics_json(timeline)},
          {"slices", timeline.slices_per_microbatch}};
}

Json page_view(const std::string& name, const Json& result) {
  return {{"name", name}, {"result", result}};
}

Json page_view(const std::string& name, const Forecast& forecast) {
  Json view = page_view(name, forecast.timeline);
  view["result"] = result_json(forecast);
  std::vector<double> capacities;
  for (const RankMemoryResult& rank : forecast.result.memory.per_pipeline_rank) {
    capacities.push_back(capacity_for_tensors(rank));
  }
  view["memory"] = pack_memory(forecast.timeline, forecast.memory, capacities);
  view["parts"] = action_parts(forecast.step);
  return view;
}

Views views_of_result(const Json& json, const std::string& name, const std::string& file, const ReadFile& read_file) {
  if (has_schema(json, "flopcast.measurement/1"))
    return views_of_result(run_kept_in(json, file), name, file, read_file);
  check_results(json, file);
  if (has_schema(json, kResultName)) return {view_of(json, name, read_file)};
  if (has_schema(json, kRunName)) return views_of_run(json, file);
  if (has_schema(json, kTimelinesName)) return views_of_timelines(json, file);
  if (has_schema(json, kComparisonName)) return views_of_comparison(json, file, read_file);
  if (has_schema(json, "flopcast.plan/1")) return views_of_plan(json, file, read_file);
  throw ConfigError({"", fmt::format("{} does not hold a result that a report can show", file), file,
                     "expected output of simulate, plan, compare, timeline or run with --format json"});
}

PageParts run_parts(const Forecast& forecast, const std::optional<RunLife>& life) {
  PageParts parts;
  const Job& job = forecast.step.job;
  if (life)
    parts.figures.push_back({"The median run", write_life_svg(*life, job.model.name + " on " + job.cluster.name)});
  parts.tables = run_tables(forecast.result, true);
  for (Table& table : parts.tables) {
    // The table's first column names its subject; on a page a heading does that too.
    table.title = "The run: " + table.columns.front().name;
  }
  return parts;
}

std::string write_page(const PageInfo& info, const std::vector<Json>& views, const PageParts& parts) {
  Json tables = Json::array();
  for (const Table& table : parts.tables) {
    Json columns = Json::array();
    for (const Column& column : table.columns) columns.push_back({{"name", column.name}, {"numeric", column.numeric}});
    tables.push_back({{"title", table.title}, {"columns", columns}, {"rows", table.rows}, {"notes", table.notes}});
  }
  Json figures = Json::array();
  for (const PageFigure& figure : parts.figures) figures.push_back({{"title", figure.title}, {"svg", figure.svg}});
  const Json data = {{"title", info.title},    {"tool", info.tool},       {"question", info.question},
                     {"answer", info.answer},  {"command", info.command}, {"terms", page_terms()},
                     {"advice", parts.advice}, {"figures", figures},      {"tables", tables},
                     {"views", views}};
  return filled(all_with_ending(".html"),
                {{"title", escape_xml(info.title)},
                 {"style", all_with_ending(".css")},
                 {"script", all_with_ending(".js")},
                 {"data", escaped(data.dump(-1, ' ', false, Json::error_handler_t::replace))}});
}

namespace {

// The model if all views share one, else the kind of page.
std::string title_of(const Views& views) {
  std::string title;
  for (const Json& view : views) {
    if (!view.contains("result")) return "Timelines";
    const Json model = view.at("result").value("/job/model/name"_json_pointer, Json());
    const std::string name = model.is_string() ? model.get<std::string>() : "Forecast";
    if (!title.empty() && title != name) return "Results side by side";
    title = name;
  }
  const auto called = [&](std::size_t index, const char* name) { return views[index].at("name") == name; };
  const bool of_a_run = views.size() == 2 && called(0, "forecast") && called(1, "measured");
  if (of_a_run) return title == "inline" ? "Forecast and measurement" : title + ": forecast and measurement";
  return title;
}

// The lines below the title of the page: the layouts (once if all views share one) and the omissions, which are also
// notes. Removes these texts from the views.
std::string header_of(Views& views, std::vector<std::string>& notes) {
  std::vector<std::string> lines;
  std::set<std::string> descriptions;
  for (const Json& view : views) descriptions.insert(view.value("description", std::string()));
  if (descriptions.size() == 1 && !descriptions.begin()->empty()) lines.push_back(*descriptions.begin());
  for (const Json& view : views) {
    const std::string description = view.value("description", std::string());
    if (descriptions.size() == 1 || description.empty()) continue;
    lines.push_back(fmt::format("{}: {}", view.at("name").get<std::string>(), description));
  }
  for (const Json& view : views) {
    if (!view.contains("note")) continue;
    lines.push_back(view.at("note").get<std::string>());
    notes.push_back(lines.back());
  }
  for (Json& view : views) {
    view.erase("answer");
    view.erase("description");
    view.erase("note");
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// Timelines share one axis, so seconds next to the time units of an abstract schedule would mislead.
void refuse_other_units(const Views& views, const std::vector<std::string>& files) {
  const auto unit_of = [](const Json& view) {
    return view.contains("timeline") ? view.at("timeline").value("time_unit", std::string()) : std::string();
  };
  const auto named = [](const std::string& unit) { return unit.empty() ? "the units of a schedule" : unit; };
  std::size_t first = views.size();
  for (std::size_t index = 0; index < views.size(); ++index) {
    if (!views[index].contains("timeline")) continue;
    if (first == views.size()) first = index;
    if (unit_of(views[index]) == unit_of(views[first])) continue;
    throw ConfigError({"",
                       fmt::format("the timeline of {} is in {}, but that of {} in {}", files[first],
                                   named(unit_of(views[first])), files[index], named(unit_of(views[index]))),
                       files[index], "make a separate report of each"});
  }
}

}  // namespace

std::string report_page(const std::vector<ReportFile>& files, const std::string& tool, const ReadFile& read_file,
                        std::vector<std::string>& notes) {
  Views views;
  std::vector<std::string> file_of_view;
  for (const ReportFile& file : files) {
    const Json json = Json(parse_json(read_file(file.path), file.path));
    for (Json& view : views_of_result(json, file.name, file.path, read_file)) {
      views.push_back(std::move(view));
      file_of_view.push_back(file.path);
    }
  }
  refuse_other_units(views, file_of_view);
  const std::string answer = views.size() == 1 ? views.front().value("answer", std::string()) : "";
  const std::string header = header_of(views, notes);
  return write_page({title_of(views), tool, header, answer}, views);
}

namespace {

// Adds the fabric with its loads, and its hot links; `name` distinguishes layouts.
void add_network(const std::string& name, const Forecast& forecast, PageParts& parts) {
  if (!forecast.result.network) return;
  const Cluster& cluster = forecast.step.job.cluster;
  const std::string suffix = name.empty() ? "" : ", " + name;
  const NetworkFabric fabric(cluster);
  parts.figures.push_back(
      {"Links between nodes" + suffix, write_fabric_svg(fabric_picture(cluster, fabric, forecast.loads), true)});
  for (Table table : network_tables(forecast.result)) {
    table.title = table.columns.front().name + suffix;
    parts.tables.push_back(std::move(table));
  }
}

}  // namespace

std::string forecast_page(PageInfo info, const Forecast& forecast, PageParts parts) {
  info.answer = answer_line(forecast.result);
  add_network("", forecast, parts);
  return write_page(info, {page_view("forecast", forecast)}, parts);
}

std::string forecasts_page(const PageInfo& info, const std::vector<std::pair<std::string, const Forecast*>>& forecasts,
                           PageParts parts) {
  Views views;
  for (const auto& [name, forecast] : forecasts) {
    views.push_back(page_view(name, *forecast));
    add_network(name, *forecast, parts);
  }
  return write_page(info, views, parts);
}

std::string timelines_page(const PageInfo& info, const std::vector<Timeline>& timelines) {
  Views views;
  for (const Timeline& timeline : timelines) views.push_back(view_of_timeline(SavedTimeline{timeline}, "", ""));
  return write_page(info, views);
}

std::string run_page(PageInfo info, const RunComparison& run) {
  const SavedRun saved = saved_run(run);
  info.question = describe_run(run.job.step.job, saved);
  Views views = {view_of_side(saved.forecast, "forecast", side_json(run, run.forecast), ""),
                 view_of_side(saved.measured, "measured", side_json(run, run.measured), "")};
  views.back()["run"] = saved.told;
  info.title = title_of(views);
  return write_page(info, views);
}

}  // namespace flopcast
