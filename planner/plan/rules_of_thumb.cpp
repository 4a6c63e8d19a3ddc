#include "planner/plan/rules_of_thumb.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/search/search.hpp"

namespace flopcast {

namespace {

// The least recomputation that fits beside full, all else the same.
std::optional<Recompute> less_that_fits(const Job& job) {
  for (const Recompute less : {Recompute::kNone, Recompute::kSelective}) {
    Job other = job;
    other.layout.recompute = less;
    other.layout.partition_checkpoints = false;
    if (evaluate_layout(other).fits) return less;
  }
  return std::nullopt;
}

RuleOfThumb recomputation_rule(const Job& job) {
  RuleOfThumb rule = {"activations are recomputed only when they do not fit otherwise", "2205.05198 section 5", true,
                      fmt::format("recompute {}", name_of(job.layout.recompute))};
  if (job.layout.recompute != Recompute::kFull) return rule;
  const std::optional<Recompute> less = less_that_fits(job);
  rule.followed = !less;
  rule.here += less ? fmt::format(", {} fits too", name_of(*less)) : ", less does not fit";
  return rule;
}

}  // namespace

std::vector<RuleOfThumb> rules_of_thumb(const Forecast& forecast) {
  const Job& job = forecast.step.job;
  const Layout& layout = job.layout;
  const MemoryResult& memory = forecast.result.memory;
  double states = 0.0;
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    states = std::max(states, (rank.weights_gib + rank.gradients_gib + rank.optimizer_gib) / rank.capacity_gib);
  }
  const int node = job.cluster.devices_per_node;
  const int microbatches = layout.microbatches();
  constexpr double kRoomForStates = 0.75;
  constexpr int kMicrobatchesPerRank = 4;
  std::vector<RuleOfThumb> rules;
  rules.push_back({"tensor parallelism stays inside a node", "2104.04473 takeaway 1", layout.tp <= node,
                   fmt::format("tp {} on nodes of {}", layout.tp, node)});
  rules.push_back({"a pipeline gets at least 4 microbatches a rank", "GPipe 1811.06965 section 2.3",
                   layout.pp == 1 || microbatches >= kMicrobatchesPerRank * layout.pp,
                   fmt::format("{} microbatches for pp {}", microbatches, layout.pp)});
  rules.push_back({"weights, gradients and optimizer take less than 75 % of the memory", "bigscience issue 15",
                   states < kRoomForStates, fmt::format("{:.0f} %", states * 100.0)});
  rules.push_back(recomputation_rule(job));
  rules.push_back({"weights are sharded (ZeRO 3) or pipelined, not both", "bigscience issue 15",
                   layout.pp == 1 || layout.weight_shards() == 1,
                   fmt::format("pp {}, weights in {} parts", layout.pp, layout.weight_shards())});
  return rules;
}

}  // namespace flopcast
