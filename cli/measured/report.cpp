#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "cli/commands.hpp"
#include "cli/options/timeline_files.hpp"
#include "model/config/document.hpp"
#include "reports/html/page.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

// The model, where all views are of one; else what kind of page it is.
std::string title_of(const std::vector<Json>& views) {
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
  return of_a_run ? title + ": forecast and measurement" : title;
}

// What the page says below its title: the layouts, once where all views are of one, and what had to be left out, which
// is a warning too. Neither is part of a view's data.
std::string header_of(std::vector<Json>& views, const Streams& streams) {
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
    warn(streams, lines.back());
  }
  for (Json& view : views) {
    view.erase("description");
    view.erase("note");
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

// Timelines are drawn over one axis: seconds beside a bare schedule's own units would mislead.
void refuse_other_units(const std::vector<Json>& views, const std::vector<std::string>& files) {
  const auto unit_of = [](const Json& view) {
    return view.contains("timeline") ? view.at("timeline").value("time_unit", std::string()) : std::string();
  };
  const auto named = [](const std::string& unit) { return unit.empty() ? "a schedule's own units" : unit; };
  std::size_t first = views.size();
  for (std::size_t index = 0; index < views.size(); ++index) {
    if (!views[index].contains("timeline")) continue;
    if (first == views.size()) first = index;
    if (unit_of(views[index]) == unit_of(views[first])) continue;
    throw ConfigError({"",
                       fmt::format("the timeline of {} is in {}, that of {} in {}", files[first],
                                   named(unit_of(views[first])), files[index], named(unit_of(views[index]))),
                       files[index], "make a report of each"});
  }
}

}  // namespace

int run_report(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "report", "flopcast report RESULT… [-o FILE]",
      "Makes one HTML file of results, to look at and to send: timeline, step, memory, bubble, "
      "assumptions. RESULT is what simulate, compare, timeline or run wrote with --format json, or "
      "run with -o; of a run the forecast stands above the measurement.",
      {"flopcast simulate job.json --format json -o a.json; flopcast report a.json -o report.html",
       "flopcast report a.json b.json -o side-by-side.html"});
  std::vector<std::string> files;
  std::optional<std::string> output;
  command_line.add_positional("RESULT", files, "JSON files");
  command_line.begin_group("Output");
  command_line.add_option("-o,--output", output, "FILE", "write there instead of to standard output");
  if (!command_line.parse(arguments)) return 0;
  if (files.empty()) {
    throw ConfigError(
        {"", "report: no result given", "", "give what `flopcast simulate … --format json -o FILE` wrote"});
  }
  if (output && output->empty()) throw ConfigError({"--output", "the file's name is empty", "", "give a file"});
  std::vector<Json> views;
  std::vector<std::string> file_of_view;
  for (const std::string& file : files) {
    const Json json = Json(parse_json(read_file(file), file));
    const std::string name = files.size() == 1 ? "forecast" : std::filesystem::path(file).stem().string();
    for (Json& view : views_of_result(json, name, file, read_file)) {
      views.push_back(std::move(view));
      file_of_view.push_back(file);
    }
  }
  refuse_other_units(views, file_of_view);
  const std::string header = header_of(views, streams);
  write_output(streams, output.value_or(""), write_page({title_of(views), tool_text(), header}, views));
  return 0;
}

}  // namespace flopcast
