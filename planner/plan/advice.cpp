#include "planner/plan/plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "model/cost/expert_costs.hpp"
#include "model/units/quantity.hpp"
#include "planner/search/search.hpp"

namespace flopcast {

namespace {

bool counts(const SearchResult& result, const char* reason) {
  return std::any_of(result.rejected.begin(), result.rejected.end(),
                     [reason](const RejectedLayouts& one) { return one.reason == reason; });
}

bool is_limited(const SearchResult& result) {
  return counts(result, kMissesDeadline) || counts(result, kExceedsBudget) || counts(result, kNeverFinishes);
}

double spare_gib(const PlannedLayout& planned) {
  const double capacity = planned.memory_bytes / planned.memory_share;
  return gibibytes(Bytes(capacity - planned.memory_bytes));
}

std::optional<PlannedLayout> best_of(const Job& job, const SearchSpace& space, PlanOptions options,
                                     const ParallelFor& parallel_for) {
  options.search.ranked = 1;
  options.search.pareto_reach = 1.0;
  const SearchResult result = plan(job, space, options, parallel_for);
  if (result.ranked.empty()) return std::nullopt;
  return result.ranked.front();
}

std::string length_text(const Job& job, const PlanOptions& options, const PlannedLayout& planned) {
  const std::optional<RunLength> length = run_length(job, planned.time_s, planned.devices, options.interruptions);
  std::string text = fmt::format("{} GPUs", planned.devices);
  if (!length) return text;
  text += fmt::format(" take {:.4g} days", length->days);
  if (length->cost_usd) text += fmt::format(" and ${:.0f}", *length->cost_usd);
  return text;
}

// Adds the best layouts on the requested sizes when deadline and budget are ignored.
void add_without_limits(const Job& job, const SearchSpace& space, const PlanOptions& options,
                        const ParallelFor& parallel_for, std::vector<std::string>& changes) {
  PlanOptions free = options;
  free.deadline_s.reset();
  free.budget_usd.reset();
  const auto add = [&](Objective objective, const char* word) {
    free.search.objective = objective;
    const std::optional<PlannedLayout> found = best_of(job, space, free, parallel_for);
    if (found) changes.push_back(fmt::format("the {} layout: {}", word, length_text(job, options, *found)));
  };
  add(Objective::kTime, "fastest");
  if (options.budget_usd) add(Objective::kCost, "cheapest");
}

struct FreedAxis {
  std::string name;
  std::function<bool(const SearchSpace&)> is_fixed;
  std::function<void(SearchSpace&)> free;
  std::function<std::string(const PlannedLayout&)> chosen;
};

template <class Values>
FreedAxis axis(const char* name, Values SearchSpace::*values, int Layout::*field) {
  return {name, [values](const SearchSpace& space) { return !(space.*values).empty(); },
          [values](SearchSpace& space) { (space.*values).clear(); },
          [name, field](const PlannedLayout& planned) { return fmt::format("{} {}", name, planned.layout.*field); }};
}

std::vector<FreedAxis> freed_axes() {
  std::vector<FreedAxis> axes;
  axes.push_back(
      {"recompute", [](const SearchSpace& space) { return !space.recompute.empty(); },
       [](SearchSpace& space) { space.recompute.clear(); },
       [](const PlannedLayout& planned) { return fmt::format("recompute {}", name_of(planned.layout.recompute)); }});
  axes.push_back(axis("zero", &SearchSpace::zero, &Layout::zero));
  axes.push_back(axis("mbs", &SearchSpace::micro_batch_size, &Layout::micro_batch_size));
  axes.push_back({"sequence parallelism", [](const SearchSpace& space) { return !space.sequence_parallel.empty(); },
                  [](SearchSpace& space) { space.sequence_parallel.clear(); },
                  [](const PlannedLayout& planned) {
                    return fmt::format("sequence parallelism {}", planned.layout.sequence_parallel);
                  }});
  constexpr std::array kListed = {Axis::kPipeline, Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData};
  static_assert(kListed.size() == kAxisCount);
  for (const Axis one : kListed) {
    axes.push_back(
        {std::string(name_of(one)), [one](const SearchSpace& space) { return !space[one].empty(); },
         [one](SearchSpace& space) { space[one].clear(); },
         [one](const PlannedLayout& planned) { return fmt::format("{} {}", name_of(one), planned.layout[one]); }});
  }
  return axes;
}

// Finds the smallest cluster larger than those tried, up to eight times the largest; nothing if none has a valid
// layout.
std::optional<PlannedLayout> on_more_nodes(const Job& job, const SearchSpace& space, const PlanOptions& options,
                                           const ParallelFor& parallel_for) {
  if (job.cluster.uneven() || options.nodes.empty()) return std::nullopt;
  constexpr int kFarthest = 8;
  PlanOptions larger = options;
  larger.search.objective = Objective::kGpus;
  larger.nodes.clear();
  const int tried = options.nodes.back();
  int most = kFarthest * tried;
  if (!space.free_nodes.empty()) most = std::min(most, static_cast<int>(space.free_nodes.size()));
  for (int nodes = tried + 1; nodes <= most; ++nodes) larger.nodes.push_back(nodes);
  if (larger.nodes.empty()) return std::nullopt;
  return best_of(job, space, larger, parallel_for);
}

std::string closest_text(const Job& job, const TightestMiss& miss) {
  Job closest = on_nodes(job, miss.nodes);
  closest.layout = miss.layout;
  const Layout& layout = miss.layout;
  const FullestRank memory = fullest_share(evaluate_layout(closest).memory);
  const std::string split =
      layout.stage_layers.empty() ? "" : fmt::format(" stage_layers {}", fmt::join(layout.stage_layers, ","));
  return fmt::format(
      "the closest layout needs {:.1f} GiB of {:.1f} GiB: tp {} cp {} pp {} vpp {} dp {} ep {} mbs {} zero {} sp {} "
      "recompute "
      "{} schedule {}{}",
      gibibytes(Bytes(memory.bytes)), gibibytes(Bytes(memory.bytes / memory.share)), layout.tp, layout.cp, layout.pp,
      *layout.vpp, layout.dp, layout.ep, layout.micro_batch_size, layout.zero, layout.sequence_parallel ? "yes" : "no",
      name_of(layout.recompute), layout.schedule, split);
}

std::string missed_limit(const SearchResult& nothing) {
  if (counts(nothing, kExceedsBudget)) {
    return counts(nothing, kMissesDeadline) ? "meets the deadline and the budget" : "meets the budget";
  }
  if (counts(nothing, kMissesDeadline)) return "meets the deadline";
  return "finishes the run";
}

}  // namespace

Refusal nearest_feasible(const Job& job, const SearchSpace& space, const PlanOptions& options,
                         const SearchResult& nothing, const ParallelFor& parallel_for) {
  Refusal refusal;
  std::vector<std::string>& changes = refusal.changes;
  if (is_limited(nothing)) add_without_limits(job, space, options, parallel_for, changes);
  const bool limited = !changes.empty();
  refusal.missed = limited ? missed_limit(nothing) : "fits";
  if (!limited && nothing.closest) {
    changes.push_back(closest_text(job, *nothing.closest));
  }
  const auto meets = [&](const PlannedLayout& found) {
    return limited ? "meets the limits: " + length_text(job, options, found)
                   : fmt::format("fits with {:.1f} GiB to spare", spare_gib(found));
  };
  for (const FreedAxis& axis : freed_axes()) {
    if (!axis.is_fixed(space)) continue;
    SearchSpace wider = space;
    axis.free(wider);
    if (const std::optional<PlannedLayout> found = best_of(job, wider, options, parallel_for)) {
      changes.push_back(fmt::format("{} {}", axis.chosen(*found), meets(*found)));
    }
  }
  if (const std::optional<PlannedLayout> found = on_more_nodes(job, space, options, parallel_for)) {
    const int more = found->nodes - options.nodes.back();
    const std::string how =
        limited ? length_text(job, options, *found)
                : fmt::format("{} GPUs fit with {:.1f} GiB to spare", found->devices, spare_gib(*found));
    changes.push_back(fmt::format("{} more node{}: {}", more, more == 1 ? "" : "s", how));
  }
  return refusal;
}

namespace {

// Returns the least recomputation that fits instead of full, everything else unchanged.
std::optional<Recompute> less_that_fits(const Job& job) {
  for (const Recompute less : {Recompute::kNone, Recompute::kSelective}) {
    Job other = job;
    other.layout.recompute = less;
    other.layout.partition_checkpoints = false;
    other.layout.recompute_layers.reset();
    other.layout.recompute_every.reset();
    if (evaluate_layout(other).memory.fits) return less;
  }
  return std::nullopt;
}

RuleOfThumb recomputation_rule(const Job& job) {
  RuleOfThumb rule = {"recompute activations only if they do not fit otherwise", "2205.05198 section 5", true,
                      fmt::format("recompute {}", name_of(job.layout.recompute))};
  if (job.layout.recompute != Recompute::kFull) return rule;
  const std::optional<Recompute> less = less_that_fits(job);
  rule.followed = !less;
  rule.here += less ? fmt::format(", {} also fits", name_of(*less)) : ", less does not fit";
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
  rules.push_back({"keep tensor parallelism inside a node", "2104.04473 takeaway 1", layout.tp <= node,
                   fmt::format("tp {} on nodes of {} GPUs", layout.tp, node)});
  rules.push_back({"run at least 4 microbatches per pipeline rank", "GPipe 1811.06965 section 2.3",
                   layout.pp == 1 || microbatches >= kMicrobatchesPerRank * layout.pp,
                   fmt::format("{} microbatches for pp {}", microbatches, layout.pp)});
  rules.push_back({"keep weights, gradients and optimizer under 75 % of the memory", "bigscience issue 15",
                   states < kRoomForStates, fmt::format("{:.0f} %", states * 100.0)});
  rules.push_back(recomputation_rule(job));
  rules.push_back({"shard weights (ZeRO 3) or pipeline them, not both", "bigscience issue 15",
                   layout.pp == 1 || layout.weight_shards() == 1,
                   fmt::format("pp {}, weights in {} shards", layout.pp, layout.weight_shards())});
  return rules;
}

std::optional<std::string> exchanges_compared(const Forecast& forecast) {
  const Job& job = forecast.step.job;
  if (!job.model.experts || job.layout.ep == 1) return std::nullopt;
  const auto outcome = [](const Job& other) {
    const Evaluation evaluated = evaluate_layout(other);
    return evaluated.memory.fits ? fmt::format("{:.4g} s", evaluated.time_s) : "does not fit in memory";
  };
  const Stack& stack = job.training.stack;
  std::vector<std::string> others;
  for (const ExpertDispatcher dispatcher :
       {ExpertDispatcher::kAlltoall, ExpertDispatcher::kDeepep, ExpertDispatcher::kHybridep}) {
    if (dispatcher == stack.experts_dispatcher) continue;
    Job other = job;
    other.training.stack.experts_dispatcher = dispatcher;
    others.push_back(fmt::format("{}: {}", name_of(dispatcher), outcome(other)));
  }
  const ExpertOverlap overlap = overlap_of_experts(job);
  if (overlap == ExpertOverlap::kNone && (job.layout.pp == 1 || job.layout.vpp.value_or(1) > 1)) {
    Job other = job;
    other.training.stack.overlap_experts = ExpertOverlap::k1f1bDelayed;
    others.push_back(fmt::format("training.overlap.experts 1f1b_delayed: {}", outcome(other)));
  }
  return fmt::format("expert dispatcher {} (training.experts_dispatch.dispatcher) with overlap {}: {:.4g} s; {}",
                     name_of(stack.experts_dispatcher), name_of(overlap), forecast.result.iteration.time_s,
                     fmt::join(others, "; "));
}

}  // namespace flopcast
