#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "api/options/job_options.hpp"
#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "calibrate/validation/refit.hpp"
#include "cli/commands.hpp"
#include "cli/measured/sources.hpp"
#include "cli/options/figure_options.hpp"
#include "cli/options/output.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"
#include "model/job/device_profile.hpp"
#include "model/job/read_job.hpp"
#include "planner/plan/plan.hpp"
#include "planner/shared/crew.hpp"
#include "reports/svg/charts.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/forecast.hpp"

namespace flopcast {

namespace {

class DocumentedRun {
 public:
  explicit DocumentedRun(std::string file) : file_(std::move(file)), values_(parse_json(read_file(file_), file_)) {
    if (!values_.is_object() || !values_.contains("job") || !values_.contains("published")) {
      refuse("", "is no documented run", R"(expected {"run": …, "source": …, "published": {…}, "job": {…}})");
    }
    if (!published().is_object() || published().empty()) {
      refuse("published", "names no figure", R"(such as {"iteration.time_s": 13.75})");
    }
    if (!values_.at("job").is_object()) refuse("job", "is no object", "expected a job, as simulate takes it");
    for (const auto& item : values_.items()) {
      const std::vector<std::string> keys = {"run", "source", "published", "assumed", "planned", "job"};
      if (std::find(keys.begin(), keys.end(), item.key()) == keys.end()) {
        refuse(item.key(), "is unknown", choices_help(item.key(), keys));
      }
    }
  }

  const nlohmann::json& published() const { return values_.at("published"); }

  Forecast answer() const {
    const nlohmann::json& root = values_.at("job");
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
    const nlohmann::json& value = published().at(key);
    if (!value.is_number() || !(value.get<double>() > 0.0)) {
      refuse("published." + key, fmt::format("{} is no number above zero", dumped(value)), "");
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
  nlohmann::json values_;
};

std::string documented_layout(const Layout& layout) {
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
    table.rows.push_back({run.text("run"), fmt::format("{}", job.cluster.devices()), documented_layout(job.layout),
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

// Runs whose figures somebody published, forecast: a JSON file each,
//   {"run": …, "source": …, "published": {"iteration.time_s": 60.1}, "assumed": …, "planned": false, "job": {…}}
// The keys of `published` are those of flopcast.result/1 (numbers). `assumed` says what the source does not. With
// `planned` the source names no layout: the best layout of what the job leaves open stands for it.
// The table holds published and predicted figure and the error, predicted / published - 1, of each.
// Throws ConfigError with the file's name.
Table documented_runs(const std::vector<std::filesystem::path>& files) {
  Table table;
  table.columns = {text_column("run"),      number_column("GPUs"),      text_column("layout"),
                   text_column("figure"),   number_column("published"), number_column("predicted"),
                   number_column("error %")};
  std::vector<DocumentedRun> runs;
  for (const std::filesystem::path& file : files) runs.emplace_back(file.string());
  for (const DocumentedRun& run : runs) add_rows(run, table);
  table.notes = notes_on(runs);
  return table;
}

constexpr int kWorstRows = 10;

// The JSON files of a folder, or the one file that is named.
std::vector<std::filesystem::path> json_files(const std::string& flag, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw ConfigError(
        {flag, fmt::format("\"{}\" does not exist", path), "", "give a folder of JSON files, or one file"});
  }
  if (!std::filesystem::is_directory(path, ignored)) return {path};
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  if (files.empty()) throw ConfigError({flag, fmt::format("\"{}\" holds no JSON file", path), "", ""});
  std::sort(files.begin(), files.end());
  return files;
}

nlohmann::json parse_file(const std::filesystem::path& file) {
  return parse_json(read_file(file.string()), file.string());
}

std::vector<PublishedFile> published_files(const std::optional<std::string>& folder) {
  if (!folder) return shipped_published();
  std::vector<PublishedFile> files;
  for (const std::filesystem::path& file : json_files("--published", *folder)) {
    files.push_back(read_published(parse_file(file), file.stem().string(), file.string()));
  }
  return files;
}

// Rows that constants were fitted to are known by their ids in the files that come with the program.
void mark_fit_rows(std::vector<PublishedFile>& files) {
  std::vector<std::string> ids;
  for (const PublishedFile& file : shipped_published()) {
    for (const PublishedRow& row : file.rows) {
      if (row.used_in_fit) ids.push_back(row.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  for (PublishedFile& file : files) {
    for (PublishedRow& row : file.rows) row.used_in_fit = std::binary_search(ids.begin(), ids.end(), row.id);
  }
}

// Given by name or as a file.
nlohmann::json profile_named(const std::optional<std::string>& text) {
  if (!text) return {};
  nlohmann::json job = {{"training", {{"profile", *text}}}};
  Origins origins;
  read_device_profile_file(files_on_disk(), job, origins);
  nlohmann::json profile = job.at("training").at("profile");
  const DeviceProfile read = read_device_profile(profile, "--profile", origins);
  if (!read.cluster.contains("device") || !read.cluster.at("device").contains("name")) {
    throw ConfigError(
        {"--profile", "does not say which device it was measured on", "--profile", "calibrate with --device NAME"});
  }
  return profile;
}

std::vector<SourceSummary> of_published(const std::optional<std::string>& folder,
                                        const std::vector<std::string>& wanted, const nlohmann::json& profile) {
  std::vector<PublishedFile> files = published_files(folder);
  mark_fit_rows(files);
  std::vector<std::string> names;
  for (const PublishedFile& file : files) names.push_back(file.source);
  for (const std::string& name : wanted) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      throw ConfigError({"--source", fmt::format("no source is called \"{}\"", name), "", choices_help(name, names)});
    }
  }
  std::vector<SourceSummary> sources;
  for (const PublishedFile& file : files) {
    const bool asked = wanted.empty() || std::find(wanted.begin(), wanted.end(), file.source) != wanted.end();
    if (asked) sources.push_back(evaluate(file, read_file, profile));
  }
  return sources;
}

EvaluatedRow forecast_of(const OwnRun& run, const std::string& source) {
  const Forecast answer = forecast(run.job, read_file);
  EvaluatedRow row;
  row.id = run.id;
  row.source = source;
  row.date = run.date;
  row.predicted_s = answer.result.iteration.time_s;
  row.measured_s = run.measured_s;
  row.facts = facts_of(answer.step.job, answer.result.communication.exposed_fraction);
  row.interval = answer.result.interval;
  return row;
}

std::vector<SourceSummary> of_runs(const std::string& folder) {
  SourceSummary summary;
  const std::filesystem::path path(folder);
  summary.source = path.has_filename() ? path.stem().string() : path.parent_path().stem().string();
  for (const std::filesystem::path& file : json_files("--runs", folder)) {
    const nlohmann::json json = parse_file(file);
    const nlohmann::json& first = json.is_array() && !json.empty() ? json.front() : json;
    const bool rows =
        json.contains("rows") || (first.contains("job") && first.contains("measured") && !first.contains("forecast"));
    if (!rows) {
      summary.evaluated.push_back(read_run_result(json, file.stem().string(), summary.source, file.string()));
      continue;
    }
    for (const OwnRun& run : read_own_runs(file.string()))
      summary.evaluated.push_back(forecast_of(run, summary.source));
  }
  std::vector<DatedError> errors;
  for (const EvaluatedRow& row : summary.evaluated) {
    if (!row.date.empty() && row.error()) errors.push_back({row.date, *row.error()});
  }
  summary.drift = drift_of(std::move(errors));
  summary.rows = static_cast<int>(summary.evaluated.size());
  summarise(summary);
  return {summary};
}

std::optional<double> limit_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const std::optional<double> limit = parse_number(*text);
  if (!limit || !(*limit >= 0.0)) {
    throw ConfigError(
        {"--max-error", fmt::format("\"{}\" is not a fraction", *text), "", "expected a number such as 0.05"});
  }
  return limit;
}

// Of every source that was compared, the mean error of the time is held to the limit.
void check_limit(const std::vector<SourceSummary>& sources, double limit) {
  std::string beyond;
  for (const SourceSummary& summary : sources) {
    if (summary.time.rows == 0 || summary.time.mape <= limit) continue;
    beyond += fmt::format("{}{} {:.1f} %", beyond.empty() ? "" : ", ", summary.source, summary.time.mape * 100.0);
  }
  if (!beyond.empty()) throw NegativeAnswer(fmt::format("mean error above {:.1f} %: {}", limit * 100.0, beyond));
}

LeftOut left_out_of(const std::optional<std::string>& text) {
  if (!text) return LeftOut::kModels;
  const std::optional<LeftOut> named = parse<LeftOut>(*text);
  if (!named) {
    throw ConfigError({"--leave-out", fmt::format("\"{}\" can not be left out", *text), "",
                       choices_help(*text, names_of<LeftOut>())});
  }
  return *named;
}

std::vector<Refit> refit_all(const std::vector<PublishedFile>& files, LeftOut left_out) {
  std::vector<Refit> fits;
  for (const FitPlan& plan : shipped_fits()) fits.push_back(refit(plan, files, read_file, left_out));
  return fits;
}

std::vector<Table> tables_of(const std::vector<SourceSummary>& sources, bool shipped) {
  std::vector<Table> tables = {time_error_table(sources)};
  if (shipped) tables.push_back(coverage_table());
  for (Table table : {group_table(sources), memory_error_table(sources), choice_table(sources), floor_table(sources),
                      open_table(sources), rows_table(sources, kWorstRows), skipped_table(sources)}) {
    if (!table.rows.empty()) tables.push_back(std::move(table));
  }
  return tables;
}

}  // namespace

int run_validate(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "validate", "flopcast validate [options]",
      "Forecasts measured training steps and shows how far off it is, row by row. Without --published "
      "or --runs: the published measurements that come with flopcast.",
      {"flopcast validate", "flopcast validate --source zero_bubble --format csv",
       "flopcast validate --published measurements/ --max-error 0.1", "flopcast validate --runs results/",
       "flopcast validate --documented examples/documented-runs", "flopcast validate --refit",
       "flopcast validate --failures"});
  std::optional<std::string> published;
  std::optional<std::string> runs;
  std::optional<std::string> documented;
  std::optional<std::string> max_error;
  FigureOptions figure;
  PageOption html;
  std::vector<std::string> wanted;
  bool page = false;
  std::vector<std::string> appended;
  bool refits = false;
  bool constants = false;
  bool failures = false;
  std::optional<std::string> source_errors_out;
  std::optional<std::string> profile;
  std::optional<std::string> leave_out;
  OutputOptions output;
  command_line.add_option("--published", published, "DIR", "published measurements, a JSON file a source");
  command_line.add_option("--runs", runs, "DIR",
                          "saved results of flopcast run, or rows {id, job, measured, date} of your own runs");
  command_line.add_option("--documented", documented, "DIR", "jobs beside the figures that were published of them");
  command_line.add_option("--source", wanted, "NAME", "only this source; may be repeated");
  command_line.add_option("--max-error", max_error, "F", "exit with 3 when a source's mean error is larger: 0.05");
  figure.add_to(command_line, "forecast against measurement as a chart");
  html.add_to(command_line);
  command_line.add_flag("--refit", refits, "fit the catalogue's constants again, and without each model");
  command_line.add_option("--leave-out", leave_out, "models|sources",
                          "with --refit: what rows are forecast without (default: models)");
  command_line.add_flag("--constants", constants, "every number of the forecast that was fitted to measurements");
  command_line.add_flag("--failures", failures,
                        "published figures of failures, checkpoints and stragglers; with --published FILE, its values");
  command_line.add_option("--profile", profile, "FILE|NAME",
                          "rows of a device profile's device, with the profile's figures");
  command_line.add_output("--source-errors", source_errors_out,
                          "write the errors of every source, which intervals rest on");
  command_line.add_flag("--markdown-page", page, "docs/validation.md: every table and every row");
  command_line.add_option("--append", appended, "FILE",
                          "with --markdown-page: a Markdown file that the page ends with; may be repeated");
  output.add_to(command_line);
  if (!command_line.parse(arguments)) return 0;

  const Format format = output.format();
  figure.check();
  if (leave_out && !refits) throw ConfigError({"--leave-out", "goes with --refit only", "", "give --refit as well"});
  const std::optional<double> limit = limit_of(max_error);
  if (!appended.empty() && !page) {
    throw ConfigError({"--append", "goes with --markdown-page only", "", "give --markdown-page as well"});
  }
  if (constants) {
    if (figure.file() || html.wanted())
      throw ConfigError({"--constants", "is a table alone", "", "leave --svg and --html out"});
    output.write({constants_table()});
    return 0;
  }
  if (failures) {
    if (runs || documented || !wanted.empty() || page || figure.file() || html.wanted() || refits || limit || profile) {
      throw ConfigError({"--failures", "goes with --published FILE and the output options only", "", ""});
    }
    const std::optional<nlohmann::json> values = published ? std::optional(parse_file(*published)) : std::nullopt;
    const FailureRows rows = evaluate_failures(values ? &*values : nullptr, published.value_or(""));
    const auto write_json = [&rows] {
      const std::vector<Table> tables = failure_tables(rows);
      const std::string open = tables.size() > 1 ? write_table(tables.back(), Format::kJson) : "[]\n";
      return fmt::format("{{\"rows\": {},\"inexpressible\": {}}}\n", write_table(tables.front(), Format::kJson), open);
    };
    output.write({.tables = [&] { return failure_tables(rows); },
                  .rows = [&] { return failure_tables(rows).front(); },
                  .json = write_json},
                 format);
    return 0;
  }
  if (published && runs) {
    throw ConfigError({"--runs", "contradicts --published", "", "give one of the two"});
  }
  if (documented) {
    if (published || runs || !wanted.empty() || page || figure.file() || html.wanted() || refits || limit) {
      throw ConfigError({"--documented", "goes with the output options only", "", ""});
    }
    output.write({documented_runs(json_files("--documented", *documented))});
    return 0;
  }
  if (runs && !wanted.empty()) throw ConfigError({"--source", "means nothing with --runs", "", "leave it out"});
  if (refits) {
    if (runs || !wanted.empty() || page || figure.file() || html.wanted() || limit || profile) {
      throw ConfigError({"--refit", "goes with --published and the output options only", "", ""});
    }
    const std::vector<PublishedFile> files = published_files(published);
    const std::vector<Refit> fits = refit_all(files, left_out_of(leave_out));
    output.write({.tables = [&] { return refit_tables(fits, left_out_of(leave_out)); },
                  .json = [&] { return write_refits(fits); }},
                 format);
    return 0;
  }
  if (profile && (runs || page)) {
    throw ConfigError({"--profile", "goes with published rows only", "", "leave --runs and --markdown-page out"});
  }
  const std::vector<SourceSummary> sources =
      runs ? of_runs(*runs) : of_published(published, wanted, profile_named(profile));
  if (source_errors_out) write_file(*source_errors_out, source_errors_file(source_errors(sources)));
  if (figure.file()) figure.write(write_scatter_svg(validation_chart(sources), figure.style()));
  if (html.wanted()) {
    PageParts parts;
    parts.figures.push_back({"Forecast against measurement", write_scatter_svg(validation_chart(sources))});
    parts.tables = tables_of(sources, !published && !runs && !profile);
    parts.tables.push_back(rows_table(sources, 0));
    parts.tables.back().title = "every row";
    html.write("Forecasts of measured steps", "", "", parts);
  }
  if (page) {
    std::string text = validation_page(sources);
    for (const std::string& file : appended) text += "\n" + read_file(file);
    output.write(text);
  } else {
    output.write({.tables = [&] { return tables_of(sources, !published && !runs && !profile); },
                  .rows = [&] { return rows_table(sources, 0); },
                  .json = [&] { return write_validation(sources); }},
                 format);
  }
  if (limit) check_limit(sources, *limit);
  return 0;
}

}  // namespace flopcast
