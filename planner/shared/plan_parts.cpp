#include "planner/shared/crew.hpp"

#include <nlohmann/json.hpp>

#include "base/text/error.hpp"
#include "model/job/read_job.hpp"
#include "planner/plan/plan.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

Json layout_json(const nlohmann::json& root, const PlannedLayout& planned) {
  return {
      {"nodes", planned.nodes},
      {"devices", planned.devices},
      {"layout", layout_section_of(root, planned)},
      {"allocation",
       planned.allocation ? Json{planned.allocation->name, planned.allocation->nodes, planned.allocation->of} : Json()},
      {"time_s", planned.time_s},
      {"memory_share", planned.memory_share},
      {"memory_bytes", planned.memory_bytes},
      {"order", planned.order},
      {"score", {planned.score.primary, planned.score.time_s}}};
}

Layout layout_of(const nlohmann::json& root, int nodes, const nlohmann::json& section) {
  nlohmann::json job = root;
  PlannedLayout sized;
  sized.nodes = nodes;
  sized.layout.vpp = 1;
  job["cluster"] = job_file_of(root, sized).at("cluster");
  // The allocation is stored separately; the layout does not depend on the links of the nodes.
  job["cluster"].erase("network");
  job["layout"] = section;
  return read_job(job, Origins()).layout;
}

PlannedLayout planned_of(const nlohmann::json& root, const Json& json) {
  PlannedLayout planned;
  planned.nodes = json.at("nodes").get<int>();
  planned.devices = json.at("devices").get<int>();
  planned.layout = layout_of(root, planned.nodes, nlohmann::json(json.at("layout")));
  if (const Json& allocation = json.at("allocation"); !allocation.is_null()) {
    planned.allocation = {allocation.at(0).get<std::string>(), allocation.at(1).get<std::vector<int>>(),
                          allocation.at(2).get<int>()};
  }
  planned.time_s = json.at("time_s").get<double>();
  planned.memory_share = json.at("memory_share").get<double>();
  planned.memory_bytes = json.at("memory_bytes").get<double>();
  planned.order = json.at("order").get<std::uint64_t>();
  planned.score = {json.at("score").at(0).get<double>(), json.at("score").at(1).get<double>()};
  return planned;
}

Json closest_json(const nlohmann::json& root, const TightestMiss& miss) {
  PlannedLayout layout;
  layout.layout = miss.layout;
  return {
      {"nodes", miss.nodes}, {"layout", layout_section_of(root, layout)}, {"bytes", miss.bytes}, {"share", miss.share}};
}

SearchResult part_of(const nlohmann::json& root, const Json& part) {
  SearchResult result;
  for (const Json& one : part.at("ranked")) result.ranked.push_back(planned_of(root, one));
  for (const Json& one : part.at("pareto")) result.pareto.push_back(planned_of(root, one));
  for (const Json& one : part.at("rejected")) {
    result.rejected.push_back({one.at(0).get<std::string>(), one.at(1).get<std::int64_t>()});
  }
  const Json& space = part.at("space");
  result.space = {space.at(0).get<std::int64_t>(), space.at(1).get<std::int64_t>(), space.at(2).get<std::int64_t>()};
  const Json& closest = part.at("closest");
  if (closest.is_object()) {
    const int nodes = closest.at("nodes").get<int>();
    result.closest = TightestMiss{nodes, layout_of(root, nodes, nlohmann::json(closest.at("layout"))),
                                  closest.at("bytes").get<double>(), closest.at("share").get<double>()};
  }
  return result;
}

}  // namespace

std::string write_part(const nlohmann::json& root, const SearchResult& result) {
  Json ranked = Json::array();
  for (const PlannedLayout& planned : result.ranked) ranked.push_back(layout_json(root, planned));
  Json pareto = Json::array();
  for (const PlannedLayout& planned : result.pareto) pareto.push_back(layout_json(root, planned));
  Json rejected = Json::array();
  for (const RejectedLayouts& one : result.rejected) rejected.push_back({one.reason, one.count});
  const Json part = {{"ranked", std::move(ranked)},
                     {"pareto", std::move(pareto)},
                     {"rejected", std::move(rejected)},
                     {"space", {result.space.enumerated, result.space.pruned, result.space.simulated}},
                     {"closest", result.closest ? closest_json(root, *result.closest) : Json()}};
  return part.dump();
}

std::optional<SearchResult> read_part(const nlohmann::json& root, const std::string& line) {
  try {
    return part_of(root, Json::parse(line));
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace flopcast
