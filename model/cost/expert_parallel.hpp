#pragma once

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of expert-parallel ranks, per microbatch and layer with experts, at first order.
///
/// Two all-to-alls forward (dispatch, combine) and two backward, each sending b·s·k·h·(ep-1)/ep elements per rank
/// (GShard 2006.16668 §2.2, DeepSpeed-MoE 2201.05596 §5.2); sequence parallelism leaves each tensor-parallel rank 1/tp
/// of the tokens to send. Nothing of it is hidden behind compute. With sequence parallelism the k copies of each token
/// are also gathered over the tensor-parallel ranks before the experts and reduce-scattered behind them: what that adds
/// to a dense MLP's collectives is added here. A capacity factor sends and pads as many rows as the experts take.
/// Left out: imbalance, node-limited routing, overlap with shared experts.
void add_expert_exchange(const PricingContext& pricing, Section& block);

/// The ranks that hold the same experts, dp·cp/ep of them: expert gradients are summed over these.
GroupPlacement expert_replicas(const PricingContext& pricing);

}  // namespace flopcast
