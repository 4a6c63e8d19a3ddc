#pragma once

#include <functional>
#include <vector>

#include "realrun/training/train.hpp"
#include "realrun/transport/mpi/mpi_transport.hpp"

namespace flopcast::realrun {

/// Trains as one of the processes, all of which call this; there are as many as the plan has ranks. Rank 0 collects
/// the results of all ranks between the steps, with times by its own clock, and at the end their weights: `results` by
/// rank there, and empty elsewhere. They keep the finished steps when this throws. `progress` is called at rank 0 when
/// another step has been added, and others follow.
void train_on_mpi(Processes& processes, const TrainingPlan& plan, const MpiOptions& options,
                  std::vector<RankResult>& results, const std::function<void()>& progress = {});

}  // namespace flopcast::realrun
