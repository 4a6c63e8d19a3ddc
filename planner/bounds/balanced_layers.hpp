#pragma once

#include <vector>

#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"

namespace flopcast {

/// The layers of each stage, one stage a rank, whose dearest stage is cheapest; of those the most even, and then the
/// one with fewer layers in the first stage, which holds the most activations. Exact where all layers cost alike: then
/// only how much the first and the last stage hold is open. `uniform` are the costs of the even split on `stages`.
/// Models with two kinds of layers go to balanced_split (model/partition).
std::vector<int> balanced_layers(const Job& job, const StageMap& stages, const StepCosts& uniform);

}  // namespace flopcast
