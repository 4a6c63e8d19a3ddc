#include "sim/files/result_json.hpp"

#include <cstddef>
#include <nlohmann/json.hpp>

#include "model/job/read_job.hpp"
#include "model/units/quantity.hpp"
#include "sim/files/result_file.hpp"
#include "sim/forecast/memory.hpp"

namespace flopcast {

using Json = nlohmann::ordered_json;

Json critical_path_json(const Timeline& timeline, const CriticalPath& path) {
  const auto seconds = [&timeline](Ticks ticks) { return static_cast<double>(ticks) * timeline.units_per_tick; };
  Json by_kind = Json::object();
  for (std::size_t kind = 0; kind < path.time_by_kind.size(); ++kind) {
    if (path.time_by_kind[kind] == 0) continue;
    by_kind[std::string(name_of(static_cast<SpanKind>(kind)))] = seconds(path.time_by_kind[kind]);
  }
  return {{"total_s", seconds(path.total())},
          {"steps", path.steps.size()},
          {"by_kind_s", std::move(by_kind)},
          {"transfers_s", seconds(path.lag)},
          {"waiting_s", seconds(path.wait)}};
}

Json result_json(const Forecast& forecast) {
  Json json = {{"schema", "flopcast.result/1"}, {"job", job_json(forecast.step.job)}};
  json.update(result_parts(forecast.result));
  return json;
}

Json simulation_json(const Forecast& forecast) {
  Json json = result_json(forecast);
  json["critical_path"] = critical_path_json(forecast.timeline, critical_path(forecast.timeline));
  return json;
}

Json memory_json(const Forecast& forecast, MemoryView view) {
  Json json = {{"schema", "flopcast.memory/1"},
               {"job", job_json(forecast.step.job)},
               {"memory", memory_part(forecast.result.memory)}};
  if (view == MemoryView::kOverTime) {
    Json ranks = Json::array();
    for (const RankMemory& rank : forecast.memory) {
      Json points = Json::array();
      for (const MemoryPoint& point : rank.points) {
        points.push_back(
            {static_cast<double>(point.time) * forecast.timeline.units_per_tick, gibibytes(Bytes(point.bytes))});
      }
      ranks.push_back(std::move(points));
    }
    json["over_time"] = std::move(ranks);
  }
  if (view == MemoryView::kTensors) {
    Json parts = Json::array();
    for (const MemoryPart& part : fullest_rank_parts(forecast.step, forecast.result.memory, forecast.memory)) {
      parts.push_back({{"kind", part.group},
                       {"tensor", part.name},
                       {"each_gib", gibibytes(part.each)},
                       {"count", part.count},
                       {"gib", gibibytes(part.total())}});
    }
    json["fullest_rank"] = {{"rank", fullest_rank(forecast.result.memory)}, {"tensors", std::move(parts)}};
  }
  json["assumptions"] = forecast.result.assumptions;
  json["warnings"] = forecast.result.warnings;
  return json;
}

}  // namespace flopcast
