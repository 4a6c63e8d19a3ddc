#pragma once

#include <vector>

#include "realrun/compute/host_device.hpp"
#include "realrun/parallel/buckets.hpp"
#include "realrun/training/rank_groups.hpp"
#include "realrun/training/training_plan.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

/// A rank behind those of the plan: a parameter server on a spare host (TrainingPlan::servers). It takes part in the
/// making of all groups, and in every step adds up the buckets of the ranks it serves in the order in which these
/// complete them. `transport` is of the host's memory.
class ServerRank {
 public:
  ServerRank(const TrainingPlan& plan, RankTransport& transport);
  /// All steps of the plan.
  void run();

 private:
  SharedParameters lay_out(const RankGrid& grid);
  void serve_step();
  void serve(const Bucket& bucket);

  const TrainingPlan& plan_;
  RankTransport& transport_;
  HostDevice device_;
  ServerPlace place_;
  int pipeline_rank_ = 0;
  std::vector<std::vector<Bucket>> buckets_;  // by stage
};

}  // namespace flopcast::realrun
