#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>

#include "calibrate/device/import/nccl_tests.hpp"
#include "model/config/document.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::json;

// The report prints times and bandwidths with six decimals.
constexpr double kPrecision = 0.5e-6;

[[noreturn]] void fail(const std::string& file, const std::string& pointer, const std::string& problem) {
  throw ConfigError({"", problem, file + ":" + pointer, "expected the report that nccl-tests writes with -J"});
}

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text_of(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

double number_of(const Json& object, const char* key, const std::string& file, const std::string& pointer) {
  const Json* value = member(object, key);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>())) {
    fail(file, fmt::format("{}/{}", pointer, key),
         value == nullptr ? "is missing" : fmt::format("{} is not a number", value->dump()));
  }
  return value->get<double>();
}

NcclTestsRow row_of(const Json& result, const std::string& file, const std::string& pointer, bool in_place) {
  NcclTestsRow row;
  row.where = file + ":" + pointer;
  row.bytes = number_of(result, "size", file, pointer);
  row.dtype = text_of(result, "type");
  const char* place = in_place ? "in_place" : "out_of_place";
  const Json* values = member(result, place);
  if (values == nullptr) return row;
  const std::string inner = fmt::format("{}/{}", pointer, place);
  row.time_us = number_of(*values, "time", file, inner);
  row.algbw = number_of(*values, "alg_bw", file, inner);
  row.busbw = number_of(*values, "bus_bw", file, inner);
  row.time_precision = kPrecision;
  row.busbw_precision = kPrecision;
  if (member(*values, "nwrong") != nullptr) row.wrong = number_of(*values, "nwrong", file, inner);
  return row;
}

void read_devices(const Json& root, NcclTestsRun& run) {
  const Json* config = member(root, "config");
  const Json* devices = config == nullptr ? nullptr : member(*config, "devices");
  if (devices == nullptr) devices = member(root, "devices");
  if (devices == nullptr || !devices->is_array()) return;
  std::set<std::string> hosts;
  for (const Json& device : *devices) {
    hosts.insert(text_of(device, "hostname"));
    if (run.device.empty()) run.device = text_of(device, "device_info");
  }
  run.ranks = static_cast<int>(devices->size());
  run.nodes = static_cast<int>(hosts.size());
}

}  // namespace

std::vector<NcclTestsRun> read_nccl_tests_json(std::string_view text, const std::string& file, bool in_place,
                                               Measurement& about) {
  const Json root = parse_json(text, file);
  NcclTestsRun run;
  run.where = file;
  read_devices(root, run);
  if (const Json* arguments = member(root, "args"); arguments != nullptr && arguments->is_array()) {
    for (const Json& argument : *arguments) {
      if (!run.kind && argument.is_string()) run.kind = kind_of_program(argument.get<std::string>());
    }
  }
  constexpr std::size_t kDate = 10;
  about.date = text_of(root, "start_time").substr(0, kDate);
  if (const Json* version = member(root, "nccl_version"); version != nullptr && version->is_number()) {
    about.libraries["nccl"] = version->dump();
  }
  const Json* results = member(root, "results");
  if (results == nullptr || !results->is_array()) fail(file, "/results", "is no list of results");
  for (std::size_t index = 0; index < results->size(); ++index) {
    run.rows.push_back(row_of((*results)[index], file, fmt::format("/results/{}", index), in_place));
  }
  return {run};
}

}  // namespace flopcast
