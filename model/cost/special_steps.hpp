#pragma once

#include <vector>

#include "model/cost/stage_costs.hpp"

namespace flopcast {

/// Prices a step on a cluster whose nodes hold different devices. All ranks of a pipeline rank (its tensor-, context-
/// and data-parallel peers) wait for each other, so each stage, and what follows the last microbatch, takes the time of
/// the slowest device among them.
/// Left out: giving slower replicas fewer microbatches, and groups whose ends differ in NCCL's tuning.
StepCosts price_uneven_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

/// The memory of the smallest device among the ranks of a pipeline rank.
Bytes memory_capacity(const Job& job, int pipeline_rank);

/// The mean over all devices: what MFU is a share of.
FlopsPerSecond mean_peak(const Job& job);

/// price_step for a job whose model is a layer profile (job.profile).
///
///   stage      the sums of its layers' times, activations and parameters, times the microbatch's scale
///   boundary   the bytes that cross the cut, over the link between the two ranks
///   flush      as for any model, from the parameters; gradients are reduced after the last backward pass
/// Full recomputation keeps the stage's input only and runs its forward pass again (Chen et al. 1604.06174; a stage at
/// a time as in GPipe, Huang et al. 1811.06965 §2.3); the first stage's input is data and not counted.
StepCosts price_profile_step(const Job& job, const StageMap& map, const std::vector<int>& stage_layers);

}  // namespace flopcast
