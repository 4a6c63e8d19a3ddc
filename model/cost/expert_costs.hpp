#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of expert-parallel ranks, per microbatch and layer with experts: dispatch and combine forward, and the
/// same of the gradients backward. n nodes, ep ranks, T tokens of h features and b bytes that a rank sends (1/tp of its
/// microbatch with sequence parallelism), k experts a token:
///   alltoall          T·k·h·b·(ep-1)/ep a rank, each part over its own link (GShard 2006.16668 §2.2, DeepSpeed-MoE
///                     2201.05596 §5.2)
///   allgather         all tokens to all ranks, and a reduce-scatter back
///   deepep, hybridep  max(T·h·b·D(ep)·(1-1/ep) / links of a node, T·h·b·min(D(n), limit)·(1-1/n) / network), with
///                     D(x) = x·(1 - (1-1/x)^k), the distinct places of k even choices (DeepSeek-V3 2412.19437 §3.2.2)
/// b is experts_dispatch's of a dispatch and the training format's of a combine. With sequence parallelism the k copies
/// of each token are also gathered over the etp ranks that share an expert before
/// the experts and reduce-scattered behind them.
/// A capacity factor sends and pads as many rows as the experts take.
///
/// Of all that, Training::overlap.experts hides a share behind computation of other microbatches, of which the first
/// has none: measured steps with and without it (Megatron-Bridge: Qwen3 30B on 16 H100, 24.7 -> 21.0 s with 8.25 s of
/// exchanges, 41.3 -> 31.3 s with 17.7 s), and the public trace of DeepSeek-V3's pairs of passes (deepseek-ai/
/// profile-data: 114 ms of exchanges and 118 ms of kernels in 129 ms). What computation takes longer meanwhile is in
/// the shares of the former; DualPipe's exchanges hold 20 multiprocessors, which the others miss. Left out: imbalance.
void add_expert_exchange(const PricingContext& pricing, Section& block);

/// Of the cards' rate, what kernels that send tokens once to a node reach: of DeepEP's the tables of 32 and 64 H800
/// (deepseek-ai/DeepEP: 43.5 and 44.6 of 50 GB/s without the own node), of HybridEP's those through its PyTorch
/// interface, copies included (16 to 64 H100: 0.5 to 0.75; 0.72 to 0.88 for the kernels alone).
double expert_network_share(ExpertDispatcher dispatcher);

/// add_host_floor of a layer with experts. How many rows each expert has is known when the router has run, and the host
/// waits for that in each layer.
/// Before the exchange (alltoall, allgather, deepep) little is launched ahead any more: the layer takes
/// max(host, device) + 0.5·min(host, device). Behind it (hybridep) the routed operators are launched onto an idle
/// device: max(0, host - device) of theirs adds to the forward pass. Neither where a capacity factor fixes the rows, or
/// the whole step is a graph.
void add_expert_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
