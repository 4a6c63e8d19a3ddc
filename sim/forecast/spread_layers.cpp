#include "sim/forecast/spread_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "model/error/error.hpp"
#include "model/partition/balanced_split.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/forecast/step_profile.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

[[noreturn]] void fail(const Job& job, const std::string& field, const std::string& problem, const std::string& help) {
  throw ConfigError({field, problem, job.origins.where(field), help});
}

struct Candidate {
  std::vector<int> stage_layers;
  double time_s = 0.0;
  bool fits = false;
};

void simulate_candidate(PreparedStep step, Candidate& candidate) {
  step.job.layout.stage_layers = candidate.stage_layers;
  price(step);
  const Timeline timeline = simulate(step.program, step.times);
  std::vector<int> versions(static_cast<std::size_t>(step.program.rank_count()), 1);
  if (step.program.asynchronous) {
    candidate.time_s = profile_of_steady_step(step).step.time_s;
    for (std::size_t rank = 0; rank < versions.size(); ++rank) {
      versions[rank] = step.schedule->weights.versions(step.request, static_cast<int>(rank));
    }
  } else {
    candidate.time_s = profile_of_flushed_step(timeline).time_s;
  }
  candidate.fits = forecast_memory(step, timeline, versions).result.fits;
}

// The same costs as if every stage had a rank of its own: what fills and drains a pipeline fastest.
SplitCosts stage_by_stage(SplitCosts costs) {
  std::iota(costs.rank_of_stage.begin(), costs.rank_of_stage.end(), 0);
  return costs;
}

std::vector<int> balanced_by_simulation(const PreparedStep& step) {
  const Job& job = step.job;
  const int stages = step.stages.model_stages;
  std::vector<int> even = even_stage_layers(job.model.layers, stages);
  if (stages == 1) return even;
  const SplitCosts costs = split_costs(job, step.stages);
  std::vector<Candidate> candidates = {{even}};
  const auto add = [&candidates](std::vector<int> layers) {
    const auto same = [&layers](const Candidate& known) { return known.stage_layers == layers; };
    if (std::none_of(candidates.begin(), candidates.end(), same)) candidates.push_back({std::move(layers)});
  };
  add(balanced_split(costs, even));
  const bool one_chain = step.stages.stages() == stages;
  if (one_chain && stages > job.layout.pp) add(balanced_split(stage_by_stage(costs), even));
  if (candidates.size() == 1) return even;
  for (Candidate& candidate : candidates) simulate_candidate(step, candidate);
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.fits != b.fits ? a.fits : a.time_s < b.time_s;
  };
  return std::min_element(candidates.begin(), candidates.end(), better)->stage_layers;
}

void choose_layers(PreparedStep& step) {
  Job& job = step.job;
  const int stages = step.stages.model_stages;
  const bool balanced = job.layout.stage_split.value_or(job.profile ? StageSplit::kBalanced : StageSplit::kUniform) ==
                        StageSplit::kBalanced;
  std::vector<int>& layers = job.layout.stage_layers;
  if (balanced && job.profile) {
    layers = balanced_stage_layers(*job.profile, stages);
    job.assumptions.push_back(
        fmt::format("layout.stage_layers balances the profile's times: {}", fmt::join(layers, ", ")));
  } else if (balanced) {
    layers = balanced_by_simulation(step);
    job.assumptions.push_back(
        fmt::format("layout.stage_layers is balanced, the fastest of the splits tried: {}", fmt::join(layers, ", ")));
  } else {
    layers = even_stage_layers(job.model.layers, stages);
    if (job.layout.stage_split || job.model.layers % stages != 0) {
      job.assumptions.push_back(fmt::format("layout.stage_layers is {}", fmt::join(layers, ", ")));
    }
  }
}

void check_listed_layers(const Job& job, int stages) {
  const std::vector<int>& layers = job.layout.stage_layers;
  const std::string given = fmt::format("[{}]", fmt::join(layers, ", "));
  if (static_cast<int>(layers.size()) != stages) {
    fail(job, "layout.stage_layers", fmt::format("{} has {} entries for {} stages", given, layers.size(), stages),
         fmt::format("give {} numbers", stages));
  }
  const long sum = std::accumulate(layers.begin(), layers.end(), 0L);
  if (sum != job.model.layers) {
    fail(job, "layout.stage_layers",
         fmt::format("{} sums to {}, the model has {} layers", given, sum, job.model.layers), "");
  }
}

}  // namespace

void spread_layers(PreparedStep& step) {
  Job& job = step.job;
  const int stages = step.stages.model_stages;
  if (!job.layout.stage_layers.empty()) {
    check_listed_layers(job, stages);
    return;
  }
  if (stages > job.model.layers) {
    fail(job, "layout.pp",
         fmt::format("pp {} · vpp {} = {} stages for {} layers", job.layout.pp, *job.layout.vpp, stages,
                     job.model.layers),
         fmt::format("at most {} stages", job.model.layers));
  }
  choose_layers(step);
}

}  // namespace flopcast
