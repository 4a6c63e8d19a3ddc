#include "calibrate/validation/run_result.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/config/document.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

std::optional<double> number_at(const Json& json, const std::string& field, const std::string& file) {
  const Json::json_pointer place(pointer_of(field));
  if (!json.contains(place) || json.at(place).is_null()) return std::nullopt;
  const Json& value = json.at(place);
  if (value.is_number() && value.get<double>() > 0.0) return value.get<double>();
  throw ConfigError({field, fmt::format("{} is not a number above zero", value.dump()),
                     fmt::format("{}:{}", file, pointer_of(field)), ""});
}

double required_at(const Json& json, const std::string& field, const std::string& file) {
  const auto value = number_at(json, field, file);
  if (value) return *value;
  throw ConfigError({field, "is missing: this is no result of flopcast run", file,
                     "write one with: flopcast run JOB --format json -o FILE"});
}

// The comparison that flopcast run prints: of the step's row the simulated replay and the measurement.
EvaluatedRow read_comparison(const Json& rows, const std::string& file) {
  EvaluatedRow row;
  for (std::size_t index = 0; index < rows.size(); ++index) {
    if (!rows[index].is_object() || rows[index].value("term", "") != "step time") continue;
    row.predicted_s = required_at(rows, fmt::format("{}.replay", index), file);
    row.measured_s = required_at(rows, fmt::format("{}.measured", index), file);
    return row;
  }
  throw ConfigError({"term", "has no row \"step time\": this is no result of flopcast run", file,
                     "write one with: flopcast run JOB --format json"});
}

}  // namespace

EvaluatedRow read_run_result(const nlohmann::json& json, const std::string& id, const std::string& source,
                             const std::string& file) {
  EvaluatedRow row;
  if (json.is_array()) row = read_comparison(json, file);
  row.id = id;
  row.source = source;
  if (json.is_array()) return row;
  row.predicted_s = required_at(json, "forecast.iteration.time_s", file);
  row.measured_s = required_at(json, "measured.iteration.time_s", file);
  row.memory_predicted_gib = number_at(json, "forecast.memory.peak_gib", file);
  row.memory_measured_gib = number_at(json, "measured.memory.peak_gib", file);
  const auto mfu = number_at(json, "forecast.iteration.hfu", file);
  // Time at the device's peak; the pipeline's ideal is not in a result.
  if (mfu) row.ideal_s = row.predicted_s * *mfu;
  return row;
}

}  // namespace flopcast
