#pragma once

#include <map>
#include <memory>
#include <vector>

#include "realrun/executor/training_state.hpp"
#include "realrun/parallel/shared_parameters.hpp"
#include "realrun/parallel/stage_weights.hpp"
#include "sim/program/program.hpp"

namespace flopcast::realrun {

/// The stages of one rank, and the sums over those ranks of its pipeline that hold copies of the same parameters.
class RankState : public TrainingState {
 public:
  /// `groups` by shared set: the ranks that hold it, this rank's replica only; of size 0 where it holds nothing.
  RankState(ParallelContext& context, const Program& program, int pipeline_rank,
            const std::vector<StageLayout>& layouts, SharedParameters shared, std::vector<Group> groups,
            const BucketRules& rules);

  void begin_step() override;
  UnitStore& open(int stage, const PassPlace& place) override;
  void update(int stage, int oldest_needed) override;
  void finish_step() override;

  std::map<int, std::unique_ptr<StageWeights>>& stages() { return stages_; }

 private:
  void sum_shared(std::size_t set);

  ParallelContext& context_;
  SharedParameters shared_;
  std::vector<Group> groups_;
  std::map<int, std::unique_ptr<StageWeights>> stages_;
};

/// By shared set: the pipeline ranks that hold it, ascending.
std::vector<std::vector<int>> holders_of(const SharedParameters& shared, const Program& program);

}  // namespace flopcast::realrun
