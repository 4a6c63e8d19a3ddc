#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Whether gradients are reduced during the last backward pass, bucket by bucket.
bool reduces_in_buckets(const Job& job);

/// Fills costs.buckets: gradients put into buckets of `bucket_mb` MiB in the order the last backward pass finishes
/// them, whole tensors, a bucket closing once it reaches its size; with the default size the first closes at 1 MiB (Li
/// et al. 2006.15704 §3.2.3, §4.2). Earlier microbatches only accumulate. Gradients of experts have buckets of their
/// own. `runs` are the stage's, in order of the forward pass.
void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs);

}  // namespace flopcast
