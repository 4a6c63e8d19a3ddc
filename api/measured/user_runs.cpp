#include "api/measured/user_runs.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/options/job_options.hpp"
#include "base/host/files.hpp"
#include "base/text/error.hpp"
#include "calibrate/validation/evaluate.hpp"
#include "calibrate/validation/published_row.hpp"
#include "import/jobs/load_job.hpp"
#include "model/config/document.hpp"

namespace flopcast {

namespace {

// A job inside a row. Files that it names are relative to the row's file, and errors name file and row.
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

std::string relative_to(const std::string& file, const std::string& path) {
  const std::filesystem::path named(path);
  return named.is_absolute() ? path : (std::filesystem::path(file).parent_path() / named).string();
}

// Path of the log that the row names; nullopt if the row has a time.
std::optional<std::string> log_of(nlohmann::json& row, const std::string& file, const std::string& place) {
  nlohmann::json& measured = row["measured"];
  if (measured.is_number()) measured = {{"iteration_s", measured}};
  if (!measured.is_object()) {
    throw ConfigError(
        {"measured", "is neither a number nor an object", place, R"(give an object such as {"iteration_s": 14.2})"});
  }
  if (!measured.contains("log")) return std::nullopt;
  if (!measured.at("log").is_string())
    throw ConfigError({"measured.log", "is not a path", place, "give the path of a training log"});
  std::string log = relative_to(file, measured.at("log").get<std::string>());
  measured.erase("log");
  return log;
}

// "2026-05-03", or empty if there is no date.
std::string date_of(const nlohmann::json& row, const std::string& place) {
  if (!row.contains("date")) return "";
  const std::string date = row.at("date").is_string() ? row.at("date").get<std::string>() : row.at("date").dump();
  constexpr std::string_view kForm = "0000-00-00";
  bool dated = date.size() == kForm.size();
  for (std::size_t index = 0; dated && index < date.size(); ++index) {
    dated = kForm[index] == '-' ? date[index] == '-' : date[index] >= '0' && date[index] <= '9';
  }
  if (!dated) throw ConfigError({"date", fmt::format("\"{}\" is not a date", date), place, "give YYYY-MM-DD"});
  return date;
}

UserRun read_user_run(nlohmann::json row, const std::string& file) {
  const std::string id = row.at("id").is_string() ? row.at("id").get<std::string>() : row.at("id").dump();
  row["id"] = id;
  const std::string place = fmt::format("{}#{}", file, id);
  const std::optional<std::string> log = log_of(row, file, place);
  if (row.at("job").is_string()) {
    row["job"] = *load_job({relative_to(file, row.at("job").get<std::string>())}, {}, files_on_disk()).root;
  }
  const PublishedFile rows = read_published({{"rows", {row}}}, "own", file);
  MappedRow mapped = map_row(rows.rows.front(), "");
  if (!mapped.skip_reason.empty()) throw ConfigError({"job", mapped.skip_reason, place, "add a job to the row"});
  const RowAsFile files(place, mapped.job->dump());
  const LoadedJob loaded = load_job({place}, {}, files);
  mapped.job = loaded.root;
  UserRun run;
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
    throw ConfigError({"measured", "has no step time", place,
                       "give iteration_s, samples_per_s, tokens_per_s_per_gpu, or log: the path of a training log"});
  }
  run.measured_s = *measured;
  return run;
}

}  // namespace

std::vector<UserRun> read_user_runs(const std::string& file) {
  std::vector<UserRun> runs;
  for (nlohmann::json& row : user_rows(parse_json(read_file(file), file), file)) {
    runs.push_back(read_user_run(std::move(row), file));
  }
  return runs;
}

}  // namespace flopcast
