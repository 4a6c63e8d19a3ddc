#pragma once

#include <vector>

#include "model/cost/data_parallel.hpp"

namespace flopcast {

/// The part of add_replica_passes (data_parallel.hpp, which has the formulas) that is for ZeRO 2 and 3, fsdp and hsdp.
/// `runs` is not empty.
void add_sharded_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

}  // namespace flopcast
