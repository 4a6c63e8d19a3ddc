#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of expert-parallel ranks per microbatch and layer with experts: dispatch and combine in the forward
/// pass, and the same for the gradients in the backward pass. n nodes, ep ranks, T tokens of h features and b bytes
/// sent by a rank (1/tp of its microbatch with sequence parallelism), k experts per token:
///   alltoall          T·k·h·b·(ep-1)/ep per rank, each part over its own link (GShard 2006.16668 §2.2, DeepSpeed-MoE
///                     2201.05596 §5.2)
///   allgather         all tokens to all ranks, and a reduce-scatter back
///   deepep, hybridep  max(T·h·b·D(ep)·(1-1/ep) / links of a node, T·h·b·min(D(n), limit)·(1-1/n) / network), where D
///                     is the number of distinct places of k uniform choices (Experts::places_of_token; DeepSeek-V3
///                     2412.19437 §3.2.2)
/// b is the size given by experts_dispatch for a dispatch, and by the training format for a combine. With sequence
/// parallelism, the k copies of each token are also gathered before the experts over the etp ranks that share an
/// expert, and reduce-scattered after them.
/// A capacity factor makes all experts send and pad the same number of rows.
///
/// Experts::imbalance: the rank with most rows receives and returns that multiple of its share.
/// Overlap is determined for pairs of passes: see paired_layers.
void add_expert_exchange(const PricingContext& pricing, Section& block);
/// The part of it in which the ranks that share an expert gather and scatter in one pass.
Traffic gathers_of_routed_tokens(const PricingContext& pricing);

/// Fraction of the link bandwidth, inside and between nodes, reached by kernels that send each token once per node.
/// DeepEP: its tables of 8, 32 and 64 H800 and those of its second version (deepseek-ai/DeepEP: 43.5 and 44.6 of 50
/// GB/s excluding the own node; 134 of 165 on NVLink). HybridEP: its tables for the PyTorch interface, including copies
/// (16 to 64 H100: 0.5 to 0.75, 0.72 to 0.88 for the kernels alone; 8 B200: 0.63).
double node_wise_share(ExpertDispatcher dispatcher);

/// Splits a layer with experts, given the times of its operators after the dispatch, its exchanges (in its section) and
/// its whole passes: everything else, including collectives of other axes, precedes the dispatch.
ExpertLayer expert_layer(const Job& job, const Section& block);

/// A forward and a backward pass through `layers` layers with experts, overlapped on a compute and an exchange stream.
/// The order of the pieces is that of Megatron Core (models/common/model_chunk_schedule_plan.py) and of DualPipe's
/// public trace (deepseek-ai/profile-data), layer by layer:
///   computes   before the dispatch F        | experts B  | experts F        | before the dispatch B
///   exchanges  combine B                    | dispatch F | dispatch B      | combine F
/// Each piece starts as soon as its inputs are ready, in this order on either stream. Weight gradients are part of B;
/// if they are delayed (1f1b_delayed, dualpipe), they follow the input gradients and overlap with their exchange. While
/// both streams run, computation takes (1 + slower) times and an exchange (1 + exchange_slower) times as long: GEMMs
/// and attention have 20 multiprocessors fewer (2412.19437 §3.2.2), with correspondingly more waves of tiles, while
/// memory-bound kernels are not slowed. The trace agrees: the GEMMs of DeepSeek-V3's layer take 18 % longer than alone;
/// casts, norms and activations do not.
struct PairedLayers {
  struct Exchange {
    bool dispatches = false;  ///< towards the experts: a dispatch or the gradient of a combine
    bool forward = false;
    Seconds start;
    Seconds end;
  };
  Seconds time;
  Seconds exposed;                  ///< part of `time` in which an exchange runs but no computation
  std::vector<Exchange> exchanges;  ///< in order of time
};
PairedLayers paired_layers(const ExpertLayer& layer, int layers);

/// Overlap mode of a job's expert exchanges: training.overlap.experts, or else the mode its schedule is designed for.
ExpertOverlap overlap_of_experts(const Job& job);

/// add_host_floor for a layer with experts; also sets pair_saved and pair_hidden, the gain of running its passes as a
/// pair. The number of rows per expert is known only after the router has run, and in each layer the host waits for it.
/// With alltoall, allgather and deepep it waits before the exchange, so that little is launched ahead and the layer
/// takes max(host, device) + 0.5·min(host, device). With hybridep it waits after the exchange, so that the routed
/// operators are launched onto an idle device and their max(0, host - device) adds to the forward pass. Neither applies
/// if a capacity factor fixes the rows or the whole step is a CUDA graph. Both passes of a pair share one host, which
/// waits in the same way; each of the pair's eight pieces (except delayed weight gradients) is an autograd call that
/// waits for one event and records another, which costs the host as much as two launches.
void add_expert_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
