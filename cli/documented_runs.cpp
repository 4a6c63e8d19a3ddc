#include "cli/documented_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/terminal.hpp"
#include "model/config/document.hpp"
#include "model/config/read_job.hpp"
#include "model/error/error.hpp"
#include "planner/plan/plan.hpp"
#include "planner/plan/read_question.hpp"
#include "planner/shared/threads.hpp"
#include "reports/result/result_json.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

class DocumentedRun {
 public:
  explicit DocumentedRun(std::string file) : file_(std::move(file)), values_(parse_json(read_file(file_), file_)) {
    if (!values_.is_object() || !values_.contains("job") || !values_.contains("published")) {
      refuse("", "is no documented run", R"(expected {"run": …, "source": …, "published": {…}, "job": {…}})");
    }
    if (!published().is_object() || published().empty()) {
      refuse("published", "names no figure", R"(such as {"iteration.time_s": 13.75})");
    }
    for (const auto& item : values_.items()) {
      const std::vector<std::string> keys = {"run", "source", "published", "assumed", "planned", "job"};
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
        refuse(item.key(), "is unknown", choices_help(item.key(), keys));
      }
    }
  }

  const Json& published() const { return values_.at("published"); }

  Forecast answer() const {
    const Json& root = values_.at("job");
    Origins origins;
    origins.file = file_;
    const bool planned = values_.contains("planned") && values_.at("planned") == true;
    if (!planned) return forecast(read_job(root, origins), read_file);
    const PlanQuestion question = read_question(root, origins);
    PlanOptions options;
    options.search.ranked = 1;
    options.nodes = {question.job.cluster.nodes};
    const SearchResult found = plan(question.job, question.space, options, threaded_for(0));
    if (found.ranked.empty()) refuse("job", "no layout of it fits", "see: flopcast plan");
    return forecast(read_job(job_file_of(root, found.ranked.front()), origins), read_file);
  }

  // A dotted key of flopcast.result/1.
  double figure(const nlohmann::ordered_json& result, const std::string& key) const {
    const nlohmann::ordered_json::json_pointer pointer(pointer_of(key));
    if (!result.contains(pointer) || !result.at(pointer).is_number()) {
      refuse("published." + key, "is no number of a result", "such as iteration.time_s, training.days (with tokens)");
    }
    return result.at(pointer).get<double>();
  }

  double published_figure(const std::string& key) const {
    const Json& value = published().at(key);
    if (!value.is_number() || !(value.get<double>() > 0.0)) {
      refuse("published." + key, fmt::format("{} is no number above zero", value.dump()), "");
    }
    return value.get<double>();
  }

  std::string text(const char* key) const {
    const auto value = values_.find(key);
    if (value == values_.end()) return "";
    if (!value->is_string()) refuse(key, "is no text", "");
    return value->get<std::string>();
  }

 private:
  [[noreturn]] void refuse(const std::string& field, const std::string& problem, const std::string& help) const {
    throw ConfigError({field, problem, field.empty() ? file_ : fmt::format("{}:{}", file_, pointer_of(field)), help});
  }

  std::string file_;
  Json values_;
};

std::string layout_text(const Layout& layout) {
  std::string text = fmt::format("tp {} pp {} dp {}", layout.tp, layout.pp, layout.dp);
  if (layout.cp > 1) text += fmt::format(" cp {}", layout.cp);
  if (*layout.vpp > 1) text += fmt::format(" vpp {}", *layout.vpp);
  return text;
}

void add_rows(const DocumentedRun& run, Table& table) {
  const Forecast forecast = run.answer();
  const nlohmann::ordered_json result = result_json(forecast);
  const Job& job = forecast.step.job;
  for (const auto& item : run.published().items()) {
    const double published = run.published_figure(item.key());
    const double predicted = run.figure(result, item.key());
    table.rows.push_back({run.text("run"), fmt::format("{}", job.cluster.devices()), layout_text(job.layout),
                          item.key(), fmt::format("{:.4g}", published), fmt::format("{:.4g}", predicted),
                          fmt::format("{:.1f}", 100.0 * (predicted / published - 1.0))});
  }
}

// Runs of one source are told together.
std::vector<std::string> notes_on(const std::vector<DocumentedRun>& runs) {
  std::vector<std::pair<std::string, std::string>> told;  // what, of which runs
  for (const DocumentedRun& run : runs) {
    std::string what = run.text("source");
    if (!run.text("assumed").empty()) what += "; assumed: " + run.text("assumed");
    if (!told.empty() && told.back().first == what) {
      told.back().second += "; " + run.text("run");
    } else {
      told.emplace_back(std::move(what), run.text("run"));
    }
  }
  std::vector<std::string> notes;
  for (const auto& [what, of_runs] : told) notes.push_back(fmt::format("{}: {}", of_runs, what));
  return notes;
}

}  // namespace

Table documented_runs(const std::vector<std::filesystem::path>& files) {
  Table table;
  table.columns = {text_column("run"),
                   number_column("GPUs", "gpus"),
                   text_column("layout"),
                   text_column("figure"),
                   number_column("published"),
                   number_column("predicted"),
                   number_column("error %", "error_percent")};
  std::vector<DocumentedRun> runs;
  for (const std::filesystem::path& file : files) runs.emplace_back(file.string());
  for (const DocumentedRun& run : runs) add_rows(run, table);
  table.notes = notes_on(runs);
  return table;
}

}  // namespace flopcast
