#include "planner/tables/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "model/config/document.hpp"

namespace flopcast {

namespace {

using Json = nlohmann::ordered_json;

double total_of(const PartitionAnswer& answer) {
  double total = 0.0;
  for (const PartitionStage& stage : answer.stages) total += stage.time;
  return total;
}

double share_of(const PartitionAnswer& answer, const PartitionStage& stage) {
  const double total = total_of(answer);
  return total > 0 ? stage.time / total : 0.0;
}

}  // namespace

std::string write_partition(const PartitionAnswer& answer) {
  Json stages = Json::array();
  for (std::size_t index = 0; index < answer.stages.size(); ++index) {
    const PartitionStage& stage = answer.stages[index];
    stages.push_back({{"stage", index},
                      {"layers", stage.layers},
                      {"time", stage.time},
                      {"share", share_of(answer, stage)},
                      {"replicas", stage.replicas}});
    if (stage.rank) stages.back()["rank"] = *stage.rank;
    if (!stage.last_layers.empty()) stages.back()["last_layers"] = stage.last_layers;
  }
  Json json = {{"schema", "flopcast.partition/1"},
               {"method", answer.method},
               {"time_unit", answer.in_seconds ? "s" : "as given"},
               {"stages", stages},
               {"bottleneck", answer.bottleneck},
               {"work", answer.work}};
  if (answer.bottleneck > 0) json["throughput"] = 1.0 / answer.bottleneck;
  if (answer.stage_layers) json["stage_layers"] = *answer.stage_layers;
  if (answer.step_s) json["step_s"] = *answer.step_s;
  if (answer.uniform_step_s) json["uniform_step_s"] = *answer.uniform_step_s;
  json["notes"] = answer.notes;
  return dumped(json, 2);
}

Table partition_table(const PartitionAnswer& answer) {
  const bool has_ranks = !answer.stages.empty() && answer.stages.front().rank.has_value();
  const bool has_cuts = !answer.stages.empty() && !answer.stages.front().last_layers.empty();
  Table table = {.title = answer.title, .columns = {number_column("stage")}};
  if (has_ranks) table.columns.push_back(number_column("rank"));
  table.columns.push_back(number_column("layers"));
  table.columns.push_back(answer.in_seconds ? number_column("time ms") : number_column("time"));
  table.columns.push_back(number_column("share %"));
  table.columns.push_back(number_column("replicas"));
  if (has_cuts) table.columns.push_back(text_column("ends behind", "last_layers"));
  for (std::size_t index = 0; index < answer.stages.size(); ++index) {
    const PartitionStage& stage = answer.stages[index];
    std::vector<std::string> row = {fmt::format("{}", index)};
    if (has_ranks) row.push_back(fmt::format("{}", *stage.rank));
    row.push_back(fmt::format("{}", stage.layers));
    row.push_back(answer.in_seconds ? fmt::format("{:.3f}", stage.time * 1e3) : fmt::format("{:.10g}", stage.time));
    row.push_back(fmt::format("{:.1f}", share_of(answer, stage) * 100.0));
    row.push_back(fmt::format("{}", stage.replicas));
    if (has_cuts) row.push_back(stage.last_layers);
    table.rows.push_back(std::move(row));
  }
  if (answer.bottleneck > 0) {
    table.notes.push_back(answer.in_seconds ? fmt::format("a {} every {:.3f} ms: {:.4g} a second", answer.work,
                                                          answer.bottleneck * 1e3, 1.0 / answer.bottleneck)
                                            : fmt::format("a {} every {:.10g}", answer.work, answer.bottleneck));
  }
  if (answer.step_s && answer.uniform_step_s) {
    table.notes.push_back(fmt::format("step time {:.4g} s, {:.4g} s with the uniform split ({:+.1f} %)", *answer.step_s,
                                      *answer.uniform_step_s, (*answer.step_s / *answer.uniform_step_s - 1.0) * 100.0));
  }
  if (answer.stage_layers) {
    table.notes.push_back(fmt::format("--layout.stage_layers {}", fmt::join(*answer.stage_layers, ",")));
  }
  table.notes.insert(table.notes.end(), answer.notes.begin(), answer.notes.end());
  return table;
}

}  // namespace flopcast
