#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/options/job_options.hpp"
#include "base/host/command_line.hpp"
#include "base/host/files.hpp"
#include "base/host/terminal.hpp"
#include "base/text/error.hpp"
#include "base/text/words.hpp"
#include "calibrate/runs/fit_runs.hpp"
#include "calibrate/tables/tables.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "cli/commands.hpp"
#include "cli/options/output.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

// A job that lies in a row: what it names lies beside the row's file, and complaints name file and row.
class RowAsFile : public Files {
 public:
  RowAsFile(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {}

  std::string read(const std::string& path) const override {
    return path == name_ ? text_ : files_on_disk().read(path);
  }
  Kind kind_of(const std::string& path) const override {
    return path == name_ ? Kind::kFile : files_on_disk().kind_of(path);
  }
  nlohmann::json parse_yaml(std::string_view text, const std::string& file) const override {
    return files_on_disk().parse_yaml(text, file);
  }
  nlohmann::json parse_toml(std::string_view text, const std::string& file) const override {
    return files_on_disk().parse_toml(text, file);
  }

 private:
  std::string name_;
  std::string text_;
};

std::string beside(const std::string& file, const std::string& path) {
  const std::filesystem::path named(path);
  return named.is_absolute() ? path : (std::filesystem::path(file).parent_path() / named).string();
}

// The row's own time, or the median of the log that it names.
std::optional<std::string> log_of(nlohmann::json& row, const std::string& file, const std::string& place) {
  nlohmann::json& measured = row["measured"];
  if (measured.is_number()) measured = {{"iteration_s", measured}};
  if (!measured.is_object()) {
    throw ConfigError({"measured", "is neither a number nor an object", place, R"(such as {"iteration_s": 14.2})"});
  }
  if (!measured.contains("log")) return std::nullopt;
  if (!measured.at("log").is_string()) throw ConfigError({"measured.log", "is no path", place, "name a training log"});
  std::string log = beside(file, measured.at("log").get<std::string>());
  measured.erase("log");
  return log;
}

// "2026-05-03", or nothing.
std::string date_of(const nlohmann::json& row, const std::string& place) {
  if (!row.contains("date")) return "";
  const std::string date = row.at("date").is_string() ? row.at("date").get<std::string>() : row.at("date").dump();
  constexpr std::string_view kForm = "0000-00-00";
  bool dated = date.size() == kForm.size();
  for (std::size_t index = 0; dated && index < date.size(); ++index) {
    dated = kForm[index] == '-' ? date[index] == '-' : date[index] >= '0' && date[index] <= '9';
  }
  if (!dated) throw ConfigError({"date", fmt::format("\"{}\" is no day", date), place, "expected YYYY-MM-DD"});
  return date;
}

OwnRun read_own_run(nlohmann::json row, const std::string& file) {
  const std::string id = row.at("id").is_string() ? row.at("id").get<std::string>() : row.at("id").dump();
  row["id"] = id;
  const std::string place = fmt::format("{}#{}", file, id);
  const std::optional<std::string> log = log_of(row, file, place);
  if (row.at("job").is_string()) {
    row["job"] = *load_job({beside(file, row.at("job").get<std::string>())}, {}, files_on_disk()).root;
  }
  const PublishedFile rows = read_published({{"rows", {row}}}, "own", file);
  MappedRow mapped = map_row(rows.rows.front(), "");
  if (!mapped.skip_reason.empty()) throw ConfigError({"job", mapped.skip_reason, place, "give the row a job"});
  const RowAsFile files(place, mapped.job->dump());
  const LoadedJob loaded = load_job({place}, {}, files);
  mapped.job = loaded.root;
  OwnRun run;
  run.id = id;
  run.date = date_of(row, place);
  run.root = loaded.root;
  run.job = JobOptions::read(loaded);
  if (log) {
    note_input(*log);
    run.measured_s = steps_of_log(read_training_log(read_file(*log), *log), *log, "measured.log", run.job).median_s;
    return run;
  }
  const std::optional<double> measured = evaluate_row(rows.rows.front(), mapped, read_file).measured_s;
  if (!measured || !(*measured > 0.0)) {
    throw ConfigError(
        {"measured", "tells no step time", place,
         "expected iteration_s, samples_per_s, tokens_per_s_per_gpu, or log: the path of a training log"});
  }
  run.measured_s = *measured;
  return run;
}

}  // namespace

std::vector<OwnRun> read_own_runs(const std::string& file) {
  std::vector<OwnRun> runs;
  for (nlohmann::json& row : own_rows(parse_json(read_file(file), file), file)) {
    runs.push_back(read_own_run(std::move(row), file));
  }
  return runs;
}

namespace {

std::vector<int> counts_of(const std::string& text) {
  constexpr int kMostCount = 1'000'000;
  std::vector<int> counts;
  for (const std::string& part : split(text)) {
    const std::optional<int> count = parse_digits(part, 1, kMostCount);
    if (!count)
      throw ConfigError({"--held-out", fmt::format("\"{}\" is no list of counts", text), "", "such as 1,2,4"});
    counts.push_back(*count);
  }
  return counts;
}

int repetitions_of(const std::optional<int>& repeat) {
  constexpr int kUsual = 20;
  constexpr int kMost = 1000;
  if (repeat && (*repeat < 1 || *repeat > kMost))
    throw ConfigError({"--repeat", fmt::format("{} is out of range", *repeat), "", fmt::format("1 to {}", kMost)});
  return repeat.value_or(kUsual);
}

// Answers name a run by its id.
void refuse_same_ids(const std::vector<OwnRun>& runs) {
  std::set<std::string> ids;
  for (const OwnRun& run : runs) {
    if (ids.insert(run.id).second) continue;
    throw ConfigError(
        {"id", fmt::format("\"{}\" is the id of two runs", run.id), "", "give each run an id of its own"});
  }
}

}  // namespace

int run_fit(const Arguments& arguments, const Streams& streams) {
  CommandLine command_line(
      streams, "fit", "flopcast fit RUNS… -o PROFILE [options]",
      "The few constants of device, links and software that steps of your own tell, from the catalogue's on: value and "
      "90 "
      "% interval of each, what the runs do not tell, and which run to make next. RUNS are JSON files of rows {\"id\", "
      "\"job\", \"measured\": {\"iteration_s\"}}; \"job\" may be a path, and \"measured\" may name a training \"log\". "
      "PROFILE is for --profile.",
      {"flopcast fit runs.json -o mine.json", "flopcast simulate job.json --profile mine.json"});
  std::vector<std::string> files;
  std::optional<std::string> profile;
  std::optional<std::string> name;
  std::optional<std::string> format_name;
  std::optional<std::string> held_out;
  std::optional<std::string> choose;
  std::optional<int> repeat;
  command_line.add_positional("RUNS", files, "files of rows {id, job, measured}");
  command_line.add_output("-o,--output", profile, "write the profile there");
  command_line.add_option("--held-out", held_out, "N[,N]",
                          "instead: fit so many of the runs, forecast the others, and tell how far off they are");
  command_line.add_option("--choose", choose, "random|advised", "which of them, with --held-out (default: random)");
  command_line.add_option("--repeat", repeat, "N", "choices that --held-out takes the mean of (default: 20)");
  command_line.add_option("--name", name, "NAME", "the profile's name (default: the device's)");
  command_line.add_option("--format", format_name, "FORMAT", listed_formats());
  if (!command_line.parse(arguments)) return 0;
  const Format format = format_name ? parse_format(*format_name) : Format::kTable;
  if (files.empty()) {
    throw ConfigError(
        {"fit", "needs runs", "", "flopcast fit RUNS… -o PROFILE, a JSON file of rows {id, job, measured}"});
  }
  if (held_out && (profile || name))
    throw ConfigError({"--held-out", "writes no profile", "", "leave -o and --name out"});
  if (!held_out && (choose || repeat)) {
    throw ConfigError({choose ? "--choose" : "--repeat", "goes with --held-out only", "", "give --held-out as well"});
  }
  std::vector<OwnRun> runs;
  for (const std::string& file : files) {
    for (OwnRun& run : read_own_runs(file)) runs.push_back(std::move(run));
  }
  refuse_same_ids(runs);
  constexpr std::size_t kMostTold = 5;
  const std::vector<std::string> contradictions = contradictions_of(runs);
  for (std::size_t index = 0; index < std::min(kMostTold, contradictions.size()); ++index) {
    warn(streams, contradictions[index]);
  }
  if (contradictions.size() > kMostTold) {
    warn(streams, fmt::format("and {} more pairs of runs contradict each other", contradictions.size() - kMostTold));
  }
  if (held_out) {
    const auto choice = static_cast<RunChoice>(choice_of("--choose", choose.value_or("random"), names_of<RunChoice>()));
    const std::vector<LearningPoint> curve =
        learning_curve(runs, counts_of(*held_out), choice, repetitions_of(repeat), read_file);
    write_output(streams, "", write_table(learning_table(curve, choice), format, table_style(streams)));
    return 0;
  }
  OwnFit fit = fit_own_runs(runs, read_file);
  if (name) fit.profile.name = *name;
  if (profile) {
    write_file(*profile, write_profile(fit.profile));
  } else {
    warn(streams, "no profile is written: give -o FILE");
  }
  if (format == Format::kJson) {
    write_output(streams, "", write_own_fit(fit) + "\n");
    return 0;
  }
  std::vector<Table> tables = own_fit_tables(fit);
  if (shown_by(format) != Shows::kPages) tables.resize(1);
  std::string text;
  for (const Table& table : tables)
    text += (text.empty() ? "" : "\n") + write_table(table, format, table_style(streams));
  write_output(streams, "", text);
  return 0;
}

}  // namespace flopcast
