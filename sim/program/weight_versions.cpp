#include "sim/program/needs.hpp"

#include <algorithm>
#include <cstddef>

#include "base/text/error.hpp"

namespace flopcast {

int StageVersions::largest_delay() const {
  return delay.empty() ? 0 : *std::max_element(delay.begin(), delay.end());
}

namespace {

bool ends_a_backward(ActionKind kind) {
  return kind == ActionKind::kBackward || kind == ActionKind::kWeightGradient;
}

// Calls visit(action, updates so far) for each forward and each end of a backward of the stage, replica by replica.
template <class Visit>
void replay_stage(const Program& program, int stage, int accumulation, Visit visit) {
  const int first = program.rank_of_stage[stage];
  for (int rank = first; rank < first + program.replicas(stage); ++rank) {
    int backwards = 0;
    for (const Action& action : program.ranks[rank]) {
      if (action.stage != stage || action.kind == ActionKind::kInputGradient) continue;
      visit(action, backwards / accumulation);
      if (ends_a_backward(action.kind)) ++backwards;
    }
  }
}

// The newest version that a stage has at the forward of each microbatch, or at the end of its backward.
std::vector<int> newest_at(const Program& program, int stage, std::size_t microbatches, int accumulation,
                           bool backward) {
  std::vector<int> newest(microbatches, 0);
  replay_stage(program, stage, accumulation, [&](const Action& action, int updates) {
    if (ends_a_backward(action.kind) == backward) newest.at(action.microbatch) = updates;
  });
  return newest;
}

std::vector<int> versions_used(const Program& program, const Chain& chain, int stage, WeightPolicy policy,
                               int accumulation) {
  const auto microbatches = static_cast<std::size_t>(program.microbatches_of(chain));
  std::vector<int> used(microbatches, 0);
  switch (policy) {
    case WeightPolicy::kFlushed:
      break;
    case WeightPolicy::kStashed:
    case WeightPolicy::kNewest:
      return newest_at(program, stage, microbatches, accumulation, false);
    case WeightPolicy::kVerticalSync:
      FLOPCAST_CHECK(program.replicas(stage) == program.replicas(chain.first_stage));
      return newest_at(program, chain.first_stage, microbatches, accumulation, false);
    case WeightPolicy::kDoubleBuffered:
      for (std::size_t index = 0; index < microbatches; ++index) {
        used[index] = std::max(0, static_cast<int>(index) / program.replicas(stage) / accumulation - 1);
      }
      break;
  }
  return used;
}

// The most versions that a replica holds at once: the newest, and the older ones that its backwards still need.
int most_versions(const Program& program, int stage, int accumulation, const std::vector<int>& needed) {
  int most = 1;
  std::vector<int> pending;  // indexed by version: backwards of this replica that still need it
  std::size_t oldest = 0;
  int rank = -1;
  replay_stage(program, stage, accumulation, [&](const Action& action, int updates) {
    if (program.rank_of(stage, action.microbatch) != rank) {
      rank = program.rank_of(stage, action.microbatch);
      oldest = 0;
      pending.assign(needed.size() + 1, 0);
      for (std::size_t microbatch = 0; microbatch < needed.size(); ++microbatch) {
        const bool own = program.rank_of(stage, static_cast<std::uint32_t>(microbatch)) == rank;
        pending.at(static_cast<std::size_t>(needed[microbatch])) += own ? 1 : 0;
      }
    }
    const auto newest = static_cast<std::size_t>(updates);
    while (oldest < newest && pending[oldest] == 0) ++oldest;
    int held = 1;
    for (std::size_t older = oldest; older < newest; ++older) held += pending[older] > 0 ? 1 : 0;
    most = std::max(most, held);
    if (ends_a_backward(action.kind)) --pending[static_cast<std::size_t>(needed[action.microbatch])];
  });
  return most;
}

StageVersions versions_of(const Program& program, const Chain& chain, int stage, WeightPolicy policy,
                          int accumulation) {
  StageVersions weights;
  weights.version = versions_used(program, chain, stage, policy, accumulation);
  const std::vector<int> newest = newest_at(program, stage, weights.version.size(), accumulation, true);
  weights.backward_version = policy == WeightPolicy::kNewest ? newest : weights.version;
  weights.delay = newest;
  for (std::size_t index = 0; index < newest.size(); ++index) weights.delay[index] -= weights.version[index];
  weights.versions_kept = most_versions(program, stage, accumulation, weights.backward_version);
  return weights;
}

}  // namespace

std::vector<StageVersions> weight_versions(const Program& program, WeightPolicy policy, int accumulation) {
  FLOPCAST_CHECK(accumulation > 0);
  ByStage<StageVersions> stages(program.rank_of_stage.size());
  for (const Chain& chain : program.chains) {
    // With a flush the update waits for every microbatch.
    const int per_update =
        policy == WeightPolicy::kFlushed ? std::max(1, program.microbatches_of(chain)) : accumulation;
    for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
      stages[stage] = versions_of(program, chain, stage, policy, per_update);
    }
  }
  return stages;
}

}  // namespace flopcast
