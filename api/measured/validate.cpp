#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "api/measured/user_runs.hpp"
#include "api/options/job_options.hpp"
#include "api/question.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/codec.hpp"
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

// A run with published figures.
struct DocumentedRun {
  std::string file;
  std::string run;
  std::string source;
  std::string assumed;   // assumptions about facts missing in the source
  bool planned = false;  // the source has no layout; the planner chooses the best one
  JsonValue published;   // by key of flopcast.result/1
  JsonValue job;

  std::string place(const std::string& field) const { return fmt::format("{}:{}", file, pointer_of(field)); }
};

const Fields<DocumentedRun>& documented_fields() {
  static const Fields<DocumentedRun> fields = {
      text<&DocumentedRun::run>("run", "name of the run"),
      text<&DocumentedRun::source>("source", "publication of the run"),
      object_as_given<&DocumentedRun::published>("published", "published figures by key")
          .required(R"(give figures such as {"iteration.time_s": 13.75})"),
      text<&DocumentedRun::assumed>("assumed", "assumptions about facts missing in the source"),
      boolean<&DocumentedRun::planned>("planned", "true if the source has no layout"),
      object_as_given<&DocumentedRun::job>("job", "job as for simulate").required("give a job as for simulate")};
  return fields;
}

DocumentedRun read_documented(const std::filesystem::path& path) {
  DocumentedRun run;
  run.file = path.string();
  const nlohmann::json values = parse_json(read_file(run.file), run.file);
  Origins origins;
  origins.file = run.file;
  ObjectReader reader(values, "", origins);
  read_fields(documented_fields(), reader, run);
  reader.refuse_unknown_keys();
  if (run.published->empty())
    reader.fail("published", "has no figure", R"(give figures such as {"iteration.time_s": 13.75})");
  return run;
}

Forecast forecast_of(const DocumentedRun& run) {
  Origins origins;
  origins.file = run.file;
  if (!run.planned) return forecast(read_job(run.job, origins), read_file);
  const PlanQuestion question = read_question(run.job, origins);
  PlanOptions options;
  options.search.ranked = 1;
  options.nodes = {question.job.cluster.nodes};
  const SearchResult found = plan(question.job, question.space, options, threaded_for(0));
  if (found.ranked.empty())
    throw ConfigError({"job", "has no layout that fits", run.place("job"), "see: flopcast plan"});
  return forecast(read_job(job_file_of(run.job, found.ranked.front()), origins), read_file);
}

std::string documented_layout(const Layout& layout) {
  std::string text = fmt::format("tp {} pp {} dp {}", layout.tp, layout.pp, layout.dp);
  if (layout.cp > 1) text += fmt::format(" cp {}", layout.cp);
  if (*layout.vpp > 1) text += fmt::format(" vpp {}", *layout.vpp);
  return text;
}

void add_rows(const DocumentedRun& run, Table& table) {
  const Forecast answer = forecast_of(run);
  const nlohmann::ordered_json result = result_json(answer);
  const Job& job = answer.step.job;
  for (const auto& item : run.published->items()) {
    const std::string field = "published." + item.key();
    const bool above_zero = item.value().is_number() && item.value().get<double>() > 0.0;
    if (!above_zero) {
      throw ConfigError({field, fmt::format("{} is not a number above 0", dumped(item.value())), run.place(field), ""});
    }
    const nlohmann::ordered_json::json_pointer pointer(pointer_of(item.key()));
    if (!result.contains(pointer) || !result.at(pointer).is_number()) {
      throw ConfigError({field, "is not a number in results", run.place(field),
                         "use a key such as iteration.time_s, training.days (with tokens)"});
    }
    const double published = item.value().get<double>();
    const double predicted = result.at(pointer).get<double>();
    table.rows.push_back({run.run, fmt::format("{}", job.cluster.devices()), documented_layout(job.layout), item.key(),
                          fmt::format("{:.4g}", published), fmt::format("{:.4g}", predicted),
                          fmt::format("{:.1f}", 100.0 * (predicted / published - 1.0))});
  }
}

// Runs with the same source share a note.
std::vector<std::string> notes_on(const std::vector<DocumentedRun>& runs) {
  std::vector<std::pair<std::string, std::string>> runs_by_note;  // note and the names of its runs
  for (const DocumentedRun& run : runs) {
    std::string what = run.source;
    if (!run.assumed.empty()) what += "; assumed: " + run.assumed;
    if (!runs_by_note.empty() && runs_by_note.back().first == what) {
      runs_by_note.back().second += "; " + run.run;
    } else {
      runs_by_note.emplace_back(std::move(what), run.run);
    }
  }
  std::vector<std::string> notes;
  for (const auto& [what, of_runs] : runs_by_note) notes.push_back(fmt::format("{}: {}", of_runs, what));
  return notes;
}

// Published and predicted figure of each run, and the error predicted / published - 1. Throws ConfigError with the
// file's name.
Table documented_runs(const std::vector<std::filesystem::path>& files) {
  Table table;
  table.columns = {text_column("run"),      number_column("GPUs"),      text_column("layout"),
                   text_column("figure"),   number_column("published"), number_column("predicted"),
                   number_column("error %")};
  std::vector<DocumentedRun> runs;
  for (const std::filesystem::path& file : files) runs.push_back(read_documented(file));
  for (const DocumentedRun& run : runs) add_rows(run, table);
  table.notes = notes_on(runs);
  return table;
}

// JSON files of a folder, or the given file.
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
  if (files.empty()) throw ConfigError({flag, fmt::format("\"{}\" contains no JSON file", path), "", ""});
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

// Rows that constants were fitted to are identified by their ids in the files shipped with the program.
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

// Profile given by name or as a file.
nlohmann::json profile_named(const std::optional<std::string>& text) {
  if (!text) return {};
  nlohmann::json job = {{"training", {{"profile", *text}}}};
  Origins origins;
  read_device_profile_file(files_on_disk(), job, origins);
  nlohmann::json profile = job.at("training").at("profile");
  const DeviceProfile read = read_device_profile(profile, "--profile", origins);
  if (!read.cluster.contains("device") || !read.cluster.at("device").contains("name")) {
    throw ConfigError({"--profile", "does not name the measured device", "--profile", "calibrate with --device NAME"});
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
      throw ConfigError({"--source", fmt::format("there is no source \"{}\"", name), "", choices_help(name, names)});
    }
  }
  std::vector<SourceSummary> sources;
  for (const PublishedFile& file : files) {
    const bool asked = wanted.empty() || std::find(wanted.begin(), wanted.end(), file.source) != wanted.end();
    if (asked) sources.push_back(evaluate(file, read_file, profile));
  }
  return sources;
}

EvaluatedRow forecast_of(const UserRun& run, const std::string& source) {
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
    for (const UserRun& run : read_user_runs(file.string()))
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
        {"--max-error", fmt::format("\"{}\" is not a fraction", *text), "", "give a number such as 0.05"});
  }
  return limit;
}

// Compares each source's mean error of the step time with the limit.
void check_limit(const std::vector<SourceSummary>& sources, double limit) {
  std::string beyond;
  for (const SourceSummary& summary : sources) {
    if (summary.time.rows == 0 || summary.time.mape <= limit) continue;
    beyond += fmt::format("{}{} {:.1f} %", beyond.empty() ? "" : ", ", summary.source, summary.time.mape * 100.0);
  }
  if (!beyond.empty()) throw NegativeAnswer(fmt::format("mean error above {:.1f} %: {}", limit * 100.0, beyond));
}

void refuse_if(bool wrong, const char* flag, const char* problem, const char* help = "") {
  if (wrong) throw ConfigError({flag, problem, "", help});
}

Answer refit_answer(const std::optional<std::string>& published, const std::string& leave_out) {
  const auto left_out = static_cast<LeftOut>(choice_of("--leave-out", leave_out, names_of<LeftOut>()));
  const std::vector<PublishedFile> files = published_files(published);
  std::vector<Refit> fits;
  for (const FitPlan& plan : shipped_fits()) fits.push_back(refit(plan, files, read_file, left_out));
  return {.tables = [fits, left_out] { return refit_tables(fits, left_out); },
          .json = [fits] { return write_refits(fits); }};
}

Answer failures_answer(const std::optional<std::string>& published) {
  const std::optional<nlohmann::json> values = published ? std::optional(parse_file(*published)) : std::nullopt;
  const FailureRows rows = evaluate_failures(values ? &*values : nullptr, published.value_or(""));
  const auto json = [rows] {
    const std::vector<Table> tables = failure_tables(rows);
    const std::string open = tables.size() > 1 ? write_table(tables.back(), Format::kJson) : "[]\n";
    return fmt::format("{{\"rows\": {},\"inexpressible\": {}}}\n", write_table(tables.front(), Format::kJson), open);
  };
  return {.tables = [rows] { return failure_tables(rows); },
          .rows = [rows] { return failure_tables(rows).front(); },
          .json = json};
}

Answer table_answer(Table table) {
  return {.tables = [table = std::move(table)] { return std::vector<Table>{table}; }};
}

class Validate final : public Question {
 public:
  void declare(Form& form) override {
    form.add_option("--published", published_, "DIR", "published measurements, one JSON file per source");
    form.add_option("--runs", runs_, "DIR",
                    "saved results of flopcast run, or rows {id, job, measured, date} of your runs");
    form.add_option("--documented", documented_, "DIR", "jobs with published figures");
    form.add_option("--source", wanted_, "NAME", "only this source; repeatable");
    form.add_option("--max-error", max_error_, "F",
                    "exit with status 3 if a source's mean error is larger, such as 0.05");
    form.place_figure("draw forecasts against measurements");
    form.place_page();
    form.add_flag("--refit", refits_, "fit the catalogue's constants again, leaving out each model in turn");
    form.add_option("--leave-out", leave_out_, "models|sources", "with --refit: what to leave out (default: models)");
    form.add_flag("--constants", constants_, "list every constant of the forecast that was fitted to measurements");
    form.add_flag("--failures", failures_,
                  "compare with published figures of failures, checkpoints and stragglers, or with --published FILE");
    form.add_option("--profile", profile_, "FILE|NAME", "use a device profile for the rows of its device");
    form.add_output("--source-errors", source_errors_,
                    "file for the errors of every source, from which intervals are computed");
    form.add_flag("--markdown-page", markdown_, "print docs/validation.md: every table and every row");
    form.add_option("--append", appended_, "FILE", "with --markdown-page: Markdown file to append; repeatable");
    form.place_output();
  }

  Answer ask(const Context& context) override {
    refuse_if(leave_out_ && !refits_, "--leave-out", "applies only with --refit", "add --refit");
    const std::optional<double> limit = limit_of(max_error_);
    refuse_if(!appended_.empty() && !markdown_, "--append", "applies only with --markdown-page", "add --markdown-page");
    const bool draws = context.has_figure || context.has_page;
    const bool compares = !wanted_.empty() || markdown_ || draws || limit;  // asks for errors of rows
    if (constants_) {
      refuse_if(draws, "--constants", "prints only a table", "omit --svg and --html");
      return table_answer(constants_table());
    }
    if (failures_) {
      refuse_if(runs_ || documented_ || compares || refits_ || profile_, "--failures",
                "can be combined only with --published FILE and output options");
      return failures_answer(published_);
    }
    refuse_if(published_ && runs_, "--runs", "conflicts with --published", "give only one of them");
    if (documented_) {
      refuse_if(published_ || runs_ || compares || refits_, "--documented", "can be combined only with output options");
      return table_answer(documented_runs(json_files("--documented", *documented_)));
    }
    refuse_if(runs_ && !wanted_.empty(), "--source", "has no effect with --runs", "leave it out");
    if (refits_) {
      refuse_if(runs_ || compares || profile_, "--refit", "can be combined only with --published and output options");
      return refit_answer(published_, leave_out_.value_or("models"));
    }
    refuse_if(profile_ && (runs_ || markdown_), "--profile", "applies only to published rows",
              "omit --runs and --markdown-page");
    return errors_answer(limit);
  }

 private:
  Answer errors_answer(const std::optional<double>& limit) {
    shipped_ = !published_ && !runs_ && !profile_;
    sources_ = runs_ ? of_runs(*runs_) : of_published(published_, wanted_, profile_named(profile_));
    if (source_errors_) write_file(*source_errors_, source_errors_file(source_errors(sources_)));
    Answer answer{
        .tables = [this] { return validation_tables(sources_, shipped_); },
        .rows = [this] { return rows_table(sources_, 0); },
        .json = [this] { return write_validation(sources_); },
        .figure = [this](const FigureStyle& style) { return write_scatter_svg(validation_chart(sources_), style); },
        .page = [this](PageInfo info) { return page(std::move(info)); }};
    if (markdown_) answer.text = [this] { return markdown_page(); };
    if (limit) answer.finish = [this, limit = *limit] { check_limit(sources_, limit); };
    return answer;
  }

  std::string markdown_page() const {
    std::string text = validation_page(sources_);
    for (const std::string& file : appended_) text += "\n" + read_file(file);
    return text;
  }

  std::string page(PageInfo info) const {
    info.title = "Forecasts of measured steps";
    PageParts parts;
    parts.figures.push_back({"Forecast versus measurement", write_scatter_svg(validation_chart(sources_))});
    parts.tables = validation_tables(sources_, shipped_);
    parts.tables.push_back(rows_table(sources_, 0));
    parts.tables.back().title = "every row";
    return forecasts_page(info, {}, parts);
  }

  std::optional<std::string> published_;
  std::optional<std::string> runs_;
  std::optional<std::string> documented_;
  std::optional<std::string> max_error_;
  std::vector<std::string> wanted_;
  bool markdown_ = false;
  std::vector<std::string> appended_;
  bool refits_ = false;
  bool constants_ = false;
  bool failures_ = false;
  std::optional<std::string> source_errors_;
  std::optional<std::string> profile_;
  std::optional<std::string> leave_out_;

  bool shipped_ = false;
  std::vector<SourceSummary> sources_;
};

}  // namespace

QuestionInfo validate_question() {
  return {"validate",
          "compare forecasts with measured steps: errors of every row",
          "flopcast validate [options]",
          "Forecasts measured training steps and shows the error of every row. Without --published "
          "or --runs, it uses the published measurements shipped with flopcast.",
          {"flopcast validate", "flopcast validate --source zero_bubble --format csv",
           "flopcast validate --published measurements/ --max-error 0.1", "flopcast validate --runs results/",
           "flopcast validate --documented examples/documented-runs", "flopcast validate --refit",
           "flopcast validate --failures"},
          make_question<Validate>};
}

}  // namespace flopcast
