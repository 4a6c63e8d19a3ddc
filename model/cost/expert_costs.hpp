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
///                     D the distinct places of k even choices (Experts::places_of_token; DeepSeek-V3 2412.19437
///                     §3.2.2)
/// b is experts_dispatch's of a dispatch and the training format's of a combine. With sequence parallelism the k copies
/// of each token are also gathered over the etp ranks that share an expert before
/// the experts and reduce-scattered behind them.
/// A capacity factor sends and pads as many rows as the experts take.
///
/// Experts::imbalance: the rank with most rows receives and returns as many times its share.
/// What of it hides is decided by pairs of passes: see paired_layers.
void add_expert_exchange(const PricingContext& pricing, Section& block);
/// Of it, what the ranks that share an expert gather and scatter in a pass.
Traffic gathers_of_routed_tokens(const PricingContext& pricing);

/// Of what links carry, in the node and between nodes, what kernels that send tokens once to a node reach: of DeepEP's
/// the tables of 8, 32 and 64 H800 and those of its second version (deepseek-ai/DeepEP: 43.5 and 44.6 of 50 GB/s
/// without the own node; on NVLink 134 of 165), of HybridEP's those through its PyTorch interface, copies included (16
/// to 64 H100: 0.5 to 0.75, 0.72 to 0.88 for the kernels alone; 8 B200: 0.63).
double node_wise_share(ExpertDispatcher dispatcher);

/// How a layer with experts runs, of what its operators behind the dispatch and its exchanges take (in its section) and
/// its whole passes: all else, collectives of other axes included, precedes the dispatch.
ExpertLayer expert_layer(const Job& job, const Section& block);

/// A forward and a backward pass through `layers` layers with experts beside each other, on a compute stream and one of
/// exchanges. The order of the pieces is that of Megatron Core (models/common/model_chunk_schedule_plan.py) and of
/// DualPipe's public trace (deepseek-ai/profile-data), layer by layer:
///   computes   what precedes the dispatch F | experts B | experts F        | what precedes the dispatch B
///   exchanges  combine B                    | dispatch F | dispatch B      | combine F
/// each as soon as what it reads is there, in this order on either stream. Weight gradients are part of B, or where
/// they are delayed (1f1b_delayed, dualpipe) follow its input gradients, beside the exchange of these. Where both
/// streams run, computation takes (1 + slower) times as long, and an exchange (1 + exchange_slower) times: products and
/// attention have 20 multiprocessors less (2412.19437 §3.2.2), on which tiles make waves of their own, while what
/// memory bounds takes as long as ever. So in the trace: of DeepSeek-V3's layer products take 18 % longer than by
/// themselves and casts, norms and activations no longer.
struct PairedLayers {
  struct Exchange {
    bool dispatches = false;  ///< towards the experts: a dispatch, or the gradient of a combine
    bool forward = false;
    Seconds start;
    Seconds end;
  };
  Seconds time;
  Seconds exposed;                  ///< of it, an exchange runs and nothing is computed
  std::vector<Exchange> exchanges;  ///< in order
};
PairedLayers paired_layers(const ExpertLayer& layer, int layers);

/// What runs beside the exchanges of a job's experts: training.overlap.experts, else what its schedule is made for.
ExpertOverlap overlap_of_experts(const Job& job);

/// add_host_floor of a layer with experts, and what its passes gain as a pair, which fills in pair_saved and
/// pair_hidden. How many rows each expert has is known when the router has run, and the host waits for that in each
/// layer. Before the exchange (alltoall, allgather, deepep) little is launched ahead any more: the layer takes
/// max(host, device) + 0.5·min(host, device). Behind it (hybridep) the routed operators are launched onto an idle
/// device: max(0, host - device) of theirs adds to the forward pass. Neither where a capacity factor fixes the rows, or
/// the whole step is a graph. A pair has one host for both of its passes, which waits in the same way; each of
/// its eight pieces (not delayed weight gradients) is a call into autograd that waits for an event and records one, to
/// the host as long as two launches.
void add_expert_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
