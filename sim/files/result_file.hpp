#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "sim/forecast/forecast.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/result.hpp"

namespace flopcast {

template <class Owner>
struct Field;  // model/config/codec.hpp

inline constexpr const char* kResultName = "flopcast.result/1";
inline constexpr const char* kMemoryName = "flopcast.memory/1";
inline constexpr const char* kComparisonName = "flopcast.comparison/1";

/// Results as JSON, schema flopcast.result/1: iteration, breakdown, communication, bubble, memory, and
/// step_time_interval, training, steady, distribution and packing if present; each key ends with the unit of its
/// figure. Writing, the needs of readers and docs/schema/result-1.schema.json all derive from one table of fields, the
/// parts of the step's time and of memory from sim/forecast/terms.hpp. Later versions only add keys, so unknown keys
/// are ignored.
const std::vector<Field<Result>>& result_fields();
const std::vector<Field<MemoryResult>>& memory_fields();
const std::vector<Field<ByAxis<double>>>& by_axis_fields();
/// Readers that reject a result without a required field (FieldInfo::needed_by): a page, a comparison.
inline constexpr unsigned kPage = 1;
inline constexpr unsigned kComparison = 2;

/// The result with its "schema" and the "job" that it answers.
nlohmann::ordered_json result_json(const Forecast& forecast);
nlohmann::ordered_json result_json(const Job& job, const Result& result);
std::string write_result(const Forecast& forecast);
/// Same, with "critical_path": the composition of the makespan of the drawn timeline (one step, or a stretch of an
/// asynchronous schedule) in seconds by kind of work, transfers between ranks and waiting. This is the output of
/// `flopcast simulate`.
std::string write_simulation(const Forecast& forecast);

/// The links of a fabric as JSON: "links" [{"name", "gb_per_s", "utilisation", "share"}], the last two for a job's
/// step.
std::string write_links(const NetworkFabric& fabric, const std::vector<LinkLoad>& loads);

/// True if a file, or a part of one, declares that schema, such as "flopcast.result/1".
bool has_schema(const nlohmann::ordered_json& json, std::string_view schema);
/// Parts of a file written by `simulate --format json` that comparisons read: the parts of the step's time, bubbles and
/// other figures; nullopt if the text is not such a file. Throws ConfigError that names the missing field.
std::optional<Result> read_result(const std::string& text, const std::string& file);

/// Checks all fields of every flopcast.result/1 inside `json`, at any depth, that a page reads: figures must be
/// numbers, texts strings, ranks a list. Needed because files may come from people and other programs. Throws
/// ConfigError with the field.
void check_results(const nlohmann::ordered_json& json, const std::string& file);

/// docs/schema/result-1.schema.json.
nlohmann::ordered_json result_schema();
/// docs/schema/memory-1.schema.json.
nlohmann::ordered_json memory_file_schema();

/// Additional memory details besides the result's own part.
enum class MemoryView {
  kPeak,      ///< none
  kOverTime,  ///< "over_time": per rank [seconds, GiB] pairs
  kTensors,   ///< "fullest_rank": the tensors of the fullest rank at its fullest moment
};
struct FullestParts {
  int rank = 0;
  std::vector<MemoryPart> tensors;
};
/// A flopcast.memory/1 without its job.
struct MemoryFile {
  MemoryResult memory;
  std::optional<PackingResult> packing;
  std::optional<std::vector<std::vector<std::pair<double, double>>>> over_time;
  std::optional<FullestParts> fullest_rank;
  std::vector<std::string> assumptions;
  std::vector<std::string> warnings;
};
const std::vector<Field<MemoryFile>>& memory_file_fields();
std::string write_memory(const Forecast& forecast, MemoryView view);

/// One of the compared layouts, forecast now or read from a result.
struct ComparedLayout {
  std::string name;  ///< as given by the user
  Result result;
  std::string document;  ///< the whole result, flopcast.result/1
};

/// Schema flopcast.comparison/1, the output of `flopcast compare` for two layouts or more: a, b and the terms of the
/// first two, and others for the rest.
std::string write_comparison(const std::vector<ComparedLayout>& layouts);

/// A layout of a flopcast.comparison/1 as pages read it: its name and its whole result, which is part of `json`. Throws
/// ConfigError that names the invalid side.
struct NamedResult {
  std::string name;
  const nlohmann::ordered_json* result = nullptr;
};
std::vector<NamedResult> read_comparison(const nlohmann::ordered_json& json, const std::string& file);

}  // namespace flopcast
