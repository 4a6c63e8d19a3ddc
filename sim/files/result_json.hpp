#pragma once

#include <nlohmann/json_fwd.hpp>

#include "sim/forecast/forecast.hpp"
#include "sim/forecast/result.hpp"
#include "sim/metrics/critical_path.hpp"

namespace flopcast {

/// The answer in the schema flopcast.result/1 (docs/schema/result-1.schema.json): iteration, breakdown, communication,
/// bubble, memory, training, steady, distribution, packing, assumptions and warnings, under "schema" and the "job" they
/// answer.
nlohmann::ordered_json result_json(const Forecast& forecast);

/// What the makespan is made of along the critical path: seconds by kind of work, transfers between ranks and waiting.
/// Of the timeline drawn: one step, or an asynchronous schedule's stretch.
nlohmann::ordered_json critical_path_json(const Timeline& timeline, const CriticalPath& path);

/// result_json with the critical path as "critical_path": what `flopcast simulate` prints.
nlohmann::ordered_json simulation_json(const Forecast& forecast);

/// What is told of memory beside the result's own part.
enum class MemoryView {
  kPeak,      ///< nothing
  kOverTime,  ///< "over_time": per rank [seconds, GiB] pairs
  kTensors,   ///< "fullest_rank": its tensors at its fullest moment
};
/// Schema flopcast.memory/1.
nlohmann::ordered_json memory_json(const Forecast& forecast, MemoryView view);

}  // namespace flopcast
