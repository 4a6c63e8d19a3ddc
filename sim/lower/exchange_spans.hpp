#pragma once

#include "model/cost/stage_costs.hpp"
#include "sim/timeline.hpp"

namespace flopcast {

/// Adds to a job's timeline what its passes exchange with the ranks of their experts: a dispatch and a combine for each
/// layer with experts and direction, on a stream of their own. A pass by itself computes nothing meanwhile; those of a
/// pair lie where paired_layers (model/cost/expert_costs.hpp) puts them. Layers of a stage are drawn as if alike: what
/// else it computes, and what its host adds, is spread over them. A pass that recomputes its exchanges shows them
/// twice. Nothing is added where more than `most` spans would be; returns how many there are.
std::size_t add_exchange_spans(const CostsByStage& stages, std::size_t most, Timeline& timeline);

}  // namespace flopcast
