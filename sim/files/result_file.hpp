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
/// step_time_interval, training, steady, distribution and packing where there are any; the unit of a figure is the
/// ending of its key. What is written, what readers need and docs/schema/result-1.schema.json all come from one table
/// of fields, the parts of the step's time and of memory from sim/forecast/terms.hpp. Later versions only add keys:
/// unknown ones are left alone.
const std::vector<Field<Result>>& result_fields();
const std::vector<Field<MemoryResult>>& memory_fields();
const std::vector<Field<ByAxis<double>>>& by_axis_fields();
/// The readers that refuse a result without a field (FieldInfo::needed_by): a page, a comparison.
inline constexpr unsigned kPage = 1;
inline constexpr unsigned kComparison = 2;

/// Under "schema" and the "job" that it answers.
nlohmann::ordered_json result_json(const Forecast& forecast);
nlohmann::ordered_json result_json(const Job& job, const Result& result);
std::string write_result(const Forecast& forecast);
/// The same with "critical_path", what the makespan of the timeline drawn (one step, or an asynchronous schedule's
/// stretch) is made of: seconds by kind of work, transfers between ranks and waiting. What `flopcast simulate` prints.
std::string write_simulation(const Forecast& forecast);

/// The links of a fabric as JSON: "links" [{"name", "gb_per_s", "utilisation", "share"}], the last two of a job's step.
std::string write_links(const NetworkFabric& fabric, const std::vector<LinkLoad>& loads);

/// Whether a file, or a part of one, calls itself that: "flopcast.result/1".
bool is_called(const nlohmann::ordered_json& json, std::string_view schema);
/// What comparisons read of a file that `simulate --format json` wrote: the parts of the step's time, bubbles, and the
/// figures beside them; nothing when the text is none. Throws ConfigError with the field that is missing.
std::optional<Result> read_result(const std::string& text, const std::string& file);

/// Checks what a page reads of every flopcast.result/1 inside `json`, wherever it lies: that figures are numbers, texts
/// texts, ranks a list. Files come from people and from other programs. Throws ConfigError with the field.
void check_results(const nlohmann::ordered_json& json, const std::string& file);

/// docs/schema/result-1.schema.json.
nlohmann::ordered_json result_schema();
/// docs/schema/memory-1.schema.json.
nlohmann::ordered_json memory_file_schema();

/// What is told of memory beside the result's own part.
enum class MemoryView {
  kPeak,      ///< nothing
  kOverTime,  ///< "over_time": per rank [seconds, GiB] pairs
  kTensors,   ///< "fullest_rank": its tensors at its fullest moment
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
  std::string name;  ///< as the user gave it
  Result result;
  std::string document;  ///< the whole result, flopcast.result/1
};

/// Schema flopcast.comparison/1, what `flopcast compare` prints of two layouts or more: a, b and the terms of the first
/// two, and others for what follows.
std::string write_comparison(const std::vector<ComparedLayout>& layouts);

/// A layout of a flopcast.comparison/1 as pages read it: its name and its whole result, which lies in `json`. Throws
/// ConfigError with the side that is not one.
struct NamedResult {
  std::string name;
  const nlohmann::ordered_json* result = nullptr;
};
std::vector<NamedResult> read_comparison(const nlohmann::ordered_json& json, const std::string& file);

}  // namespace flopcast
