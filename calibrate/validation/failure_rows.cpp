#include "calibrate/validation/evaluate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "sim/run/run.hpp"

namespace flopcast {

namespace {

using RowJson = nlohmann::json;

std::string refuse_a_file(const std::string& path) {
  throw InternalError("a row's job reads no file: " + path);
}

// What a row reads of a run, by the keys of flopcast.result/1 below "run"; hours between interruptions and the points
// of MFU that were lost are told by sources and no key.
double figure_of(const std::string& reads, const Forecast& answer) {
  const RunResult& run = *answer.result.run;
  constexpr double kHoursOfDay = 24.0;
  if (reads == "interruptions_per_day") return run.interruptions_per_day;
  if (reads == "hours_between") return kHoursOfDay / run.interruptions_per_day;
  if (reads == "goodput.p50") return run.goodput.p50;
  if (reads == "ettr.p50") return run.ettr.p50;
  if (reads == "checkpoint_cost_s") return run.checkpoint_cost_s;
  FLOPCAST_CHECK(reads == "lost_mfu_points");
  return 100.0 * answer.result.iteration.mfu * (1.0 - run.goodput.p50);
}

double drawn_figure_of(const RowJson& row) {
  Forecast answer = forecast(read_job(row.at("job"), {}), refuse_a_file);
  add_run(answer, WithOptions::kNo);
  FLOPCAST_CHECK(answer.result.run.has_value());
  return row.value("scale", 1.0) * figure_of(row.at("reads"), answer);
}

std::optional<double> bound_at(const RowJson& row, const char* key) {
  return row.contains(key) ? std::optional<double>(row.at(key).get<double>()) : std::nullopt;
}

// The rows of a file by their ids.
const RowJson* row_named(const RowJson& rows, const std::string& id) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&id](const RowJson& row) {
    return row.is_object() && row.contains("id") && row.at("id") == id;
  });
  return found == rows.end() ? nullptr : &*found;
}

// Bounds as ">0.90".
std::optional<double> measured_of(const RowJson& value, const RowJson& known) {
  const bool listed = value.is_array() && known.contains("take");
  if (listed) {
    const auto take = known.at("take").get<std::size_t>();
    return take < value.size() ? measured_of(value.at(take), RowJson::object()) : std::nullopt;
  }
  if (value.is_number()) return value.get<double>();
  // What a text or another unit says is told by our own row.
  return known.contains("value") ? std::optional<double>(known.at("value").get<double>()) : std::nullopt;
}

// Empty where a row of somebody's has something else there.
std::string text_at(const RowJson& row, const char* key) {
  const RowJson value = row.value(key, RowJson());
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool speaks_of_runs(const RowJson& row) {
  const std::string check = text_at(row, "check");
  for (const char* word : {"failure", "straggler", "checkpoint", "slow phase", "detection", "replicas"}) {
    if (check.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

FailureRows evaluate_failures(const RowJson* published, const std::string& file) {
  const RowJson known = RowJson::parse(embedded_failure_rows().front().text);
  const RowJson nothing = RowJson::array();
  if (published != nullptr &&
      (!published->is_object() || !published->contains("rows") || !published->at("rows").is_array())) {
    throw ConfigError({"rows", "are missing", file, R"(expected {"rows": [{"id": …, "value": …}]})"});
  }
  const RowJson& given = published == nullptr ? nothing : published->at("rows");
  FailureRows answer;
  for (const RowJson& row : known.at("rows")) {
    const std::string id = row.at("id");
    double measured = row.at("value");
    if (published != nullptr) {
      const RowJson* own = row_named(given, id);
      if (own == nullptr) continue;
      const std::optional<double> value = own->contains("value") && row.at("unit") == text_at(*own, "unit")
                                              ? measured_of(own->at("value"), row)
                                              : measured;
      if (!value) throw ConfigError({"rows", fmt::format("{} has no value that is a number", id), file, ""});
      measured = *value;
    }
    FailureRow one;
    one.id = id;
    one.quantity = row.at("quantity").get<std::string>() + "; " + row.at("conditions").get<std::string>();
    one.unit = row.at("unit");
    one.measured = measured;
    one.forecast = drawn_figure_of(row);
    one.low = bound_at(row, "low");
    one.high = bound_at(row, "high");
    one.source = row.at("source").get<std::string>() + ", " + row.at("place").get<std::string>();
    one.assumed = row.value("assumed", "");
    if (!one.inside()) one.missed = row.value("missed", "not explained");
    answer.rows.push_back(std::move(one));
  }
  for (const RowJson& row : known.at("inexpressible")) {
    if (published != nullptr && row_named(given, row.at("id")) == nullptr) continue;
    answer.inexpressible.push_back({row.at("id"), row.at("quantity"), row.at("reason")});
  }
  for (const RowJson& row : given) {
    if (!row.is_object() || !row.contains("id") || !row.at("id").is_string()) continue;
    const std::string id = row.at("id");
    const bool told = row_named(known.at("rows"), id) != nullptr || row_named(known.at("inexpressible"), id) != nullptr;
    if (told || !speaks_of_runs(row)) continue;
    const bool of_a_cause = text_at(row, "quantity").rfind("unexpected interruptions by cause", 0) == 0;
    answer.inexpressible.push_back(
        {id, text_at(row, "quantity"), of_a_cause ? "a count of a preset's own causes" : "no job is known for it"});
  }
  return answer;
}

std::vector<Table> failure_tables(const FailureRows& rows) {
  Table table;
  table.columns = {text_column("row", "id"),     text_column("quantity"),     text_column("unit"),
                   number_column("measured"),    number_column("forecast"),   number_column("error %"),
                   number_column("from", "low"), number_column("to", "high"), text_column("inside")};
  const auto number = [](double value) { return fmt::format("{:.3g}", value); };
  int inside = 0;
  for (const FailureRow& row : rows.rows) {
    inside += row.inside() ? 1 : 0;
    table.rows.push_back({row.id, row.quantity, row.unit, number(row.measured), number(row.forecast),
                          fmt::format("{:.1f}", 100.0 * (row.forecast / row.measured - 1.0)),
                          row.low ? number(*row.low) : "", row.high ? number(*row.high) : "",
                          row.inside() ? "yes" : "no"});
    const std::string missed = row.missed.empty() ? "" : "; outside: " + row.missed;
    table.notes.push_back(fmt::format("{}: {}; assumed: {}{}", row.id, row.source, row.assumed, missed));
  }
  table.title = fmt::format("failures, checkpoints and stragglers: {} of {} published figures inside their bands",
                            inside, rows.rows.size());
  Table open;
  open.title = "not expressible as a run";
  open.columns = {text_column("row", "id"), text_column("quantity"), text_column("why", "reason")};
  for (const OpenFailureRow& row : rows.inexpressible) open.rows.push_back({row.id, row.quantity, row.reason});
  std::vector<Table> tables = {std::move(table)};
  if (!open.rows.empty()) tables.push_back(std::move(open));
  return tables;
}

}  // namespace flopcast
