#include "planner/plan/feasible.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "model/units/quantity.hpp"

namespace flopcast {

namespace {

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
  axes.push_back({"recompute", [](const SearchSpace& space) { return !space.recompute.empty(); },
                  [](SearchSpace& space) { space.recompute.clear(); },
                  [](const PlannedLayout& planned) {
                    return "recompute " + recompute_names()[static_cast<std::size_t>(planned.layout.recompute)];
                  }});
  axes.push_back(axis("zero", &SearchSpace::zero, &Layout::zero));
  axes.push_back(axis("mbs", &SearchSpace::micro_batch_size, &Layout::micro_batch_size));
  axes.push_back({"sequence parallelism", [](const SearchSpace& space) { return !space.sequence_parallel.empty(); },
                  [](SearchSpace& space) { space.sequence_parallel.clear(); },
                  [](const PlannedLayout& planned) {
                    return fmt::format("sequence parallelism {}", planned.layout.sequence_parallel);
                  }});
  axes.push_back(axis("pp", &SearchSpace::pp, &Layout::pp));
  axes.push_back(axis("tp", &SearchSpace::tp, &Layout::tp));
  axes.push_back(axis("cp", &SearchSpace::cp, &Layout::cp));
  axes.push_back(axis("ep", &SearchSpace::ep, &Layout::ep));
  axes.push_back(axis("dp", &SearchSpace::dp, &Layout::dp));
  return axes;
}

// The smallest cluster beyond those tried; nothing within eight times the largest.
std::optional<PlannedLayout> on_more_nodes(const Job& job, const SearchSpace& space, const PlanOptions& options,
                                           const ParallelFor& parallel_for) {
  if (job.cluster.uneven() || options.nodes.empty()) return std::nullopt;
  constexpr int kFarthest = 8;
  PlanOptions larger = options;
  larger.search.objective = Objective::kGpus;
  larger.nodes.clear();
  const int tried = options.nodes.back();
  for (int nodes = tried + 1; nodes <= kFarthest * tried; ++nodes) larger.nodes.push_back(nodes);
  return best_of(job, space, larger, parallel_for);
}

}  // namespace

std::vector<std::string> nearest_feasible(const Job& job, const SearchSpace& space, const PlanOptions& options,
                                          const SearchResult& nothing, const ParallelFor& parallel_for) {
  std::vector<std::string> changes;
  if (nothing.closest) {
    const TightestMiss& miss = *nothing.closest;
    changes.push_back(fmt::format(
        "the closest needs at least {:.1f} GiB of {:.1f} GiB: tp {} pp {} dp {} mbs {} zero {} recompute {}",
        gibibytes(Bytes(miss.bytes)), gibibytes(Bytes(miss.bytes / miss.share)), miss.layout.tp, miss.layout.pp,
        miss.layout.dp, miss.layout.micro_batch_size, miss.layout.zero,
        recompute_names()[static_cast<std::size_t>(miss.layout.recompute)]));
  }
  for (const FreedAxis& axis : freed_axes()) {
    if (!axis.is_fixed(space)) continue;
    SearchSpace wider = space;
    axis.free(wider);
    if (const std::optional<PlannedLayout> found = best_of(job, wider, options, parallel_for)) {
      changes.push_back(fmt::format("{} fits with {:.1f} GiB to spare", axis.chosen(*found), spare_gib(*found)));
    }
  }
  if (const std::optional<PlannedLayout> found = on_more_nodes(job, space, options, parallel_for)) {
    const int more = found->nodes - options.nodes.back();
    changes.push_back(fmt::format("needs {} more node{}: {} GPUs fit with {:.1f} GiB to spare", more,
                                  more == 1 ? "" : "s", found->devices, spare_gib(*found)));
  }
  return changes;
}

}  // namespace flopcast
