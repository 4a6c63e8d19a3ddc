#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// The trained parameters of an operator and the number of elements PowerSGD sends for them.
GradientAmount gradient_amount(const Operator& op, const Layout& layout);

/// Traffic of a replica group that sums its gradients.
///
///   all-reduce      2(n-1)/n · S sent per rank (Patarasuk & Yuan 2009), priced by CommunicationModel
///   ps, byteps      n GPU nodes, k spare hosts, S bytes per node, network bandwidth B of a node; after a
///   reduce-scatter inside the node
///     ps            k = 0: 2(n-1)/n · S/B, servers run on the workers; 0 < k < n: n/k · S/B, the servers' links are
///                   the bottleneck; k >= n: S/B
///     byteps        2n(n-1)/(n² + kn - 2k) · S/B; a GPU node serves (n-k)/(n² + kn - 2k) of S, a host 2(n-1)/(...)
///                   (Jiang et al., OSDI 2020, §4.1); k beyond n adds nothing
///   dataparallel    one process: GPU 0 receives (N-1)·S and sends (N-1) copies of the weights
///
/// Compression replaces S (ddp only); the bytes it reads and writes are priced at memory bandwidth:
///   8bit, 4bit      bits/8 bytes per gradient and one fp32 scale per 512 (QSGD, 1610.02132 §5); gradients read and
///                   codes written, then the reverse
///   topk:F          an all-gather of F·Ψ values with 4-byte indices from each rank (1704.05021, DGC 1712.01887 §3);
///                   gradients and residuals read, residuals written, gradients read again to select
///   powersgd:R      two all-reduces of R·rows and R·columns fp32 elements per matrix, vectors uncompressed (1905.13727
///                   §3); gradients and residuals read, residuals written, two products, one reconstruction
/// Not modelled: convergence, parameter priorities (ByteScheduler), incast, the Python time of nn.DataParallel.
///
/// With sharded optimizer state (ZeRO 1), only the reduce-scatter half; the new weights are gathered later.
Traffic reduce_gradients(const PricingContext& pricing, const GradientAmount& amount, const GroupPlacement& group);

/// Network time as a fraction of S/B, and the fraction of S that each server holds.
struct ServerShares {
  double time = 0.0;
  double gpu_node = 0.0;
  double spare_host = 0.0;
};
ServerShares byteps_shares(double gpu_nodes, double spare_hosts);
/// Time relative to S/B of parameter servers on the spare hosts, or on the workers if there are none.
double parameter_server_time(double gpu_nodes, double spare_hosts);

/// True if gradients are reduced in buckets during the last backward pass.
bool reduces_in_buckets(const Job& job);

/// Fills costs.buckets. Whole gradient tensors enter buckets of `bucket_mb` MiB in the order in which the last backward
/// pass finishes them; a bucket closes once it reaches its size, with the default size the first one at 1 MiB (Li et
/// al. 2006.15704 §3.2.3, §4.2). Earlier microbatches only accumulate. Expert gradients have separate buckets. `runs`
/// are the stage's, in forward order. Does nothing if gradients are not reduced in buckets.
void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs);

/// Bytes of weights, gradients and optimizer state on one rank, for Ψ parameters, N replicas, and e, g and K bytes of
/// weight, gradient and optimizer state per parameter:
///   ZeRO 0  e·Ψ + g·Ψ + K·Ψ      1  K·Ψ/N      2  and g·Ψ/N      3 (= fsdp)  and e·Ψ/N
/// For muon and galore, K comes from their MatrixUpdates; without them it is a lower bound. A copy of the model as
/// reference (holds_reference) counts as weights. hsdp splits all three into `shards` parts. Published for e = g = 2, K
/// = 12 (Rajbhandari et al. 1910.02054 §5, Table 1). Offloaded optimizer state counts as zero: it is in host memory,
/// whose size is not modelled.
struct ModelStates {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes total() const { return weights + gradients + optimizer; }
};
/// `expert_parameters` of the parameters are held only by every ep-th replica, and thus split into max(1, N/ep) or
/// max(1, shards/ep) parts. Frozen weights of either kind have neither gradients nor optimizer state and count in their
/// storage format; only ZeRO 3, fsdp and hsdp shard them.
ModelStates model_states(const Layout& layout, const Training& training, double parameters,
                         double expert_parameters = 0.0, const FrozenWeights& frozen = {},
                         const MatrixUpdates* matrices = nullptr);

/// Communication during the passes of a microbatch through `stage`: sharded weights (ZeRO 3, fsdp, hsdp), gradients
/// reduced in every microbatch (ZeRO 2), nn.DataParallel. `runs` are the stage's, in forward order; the weights of a
/// unit are gathered together.
///
/// ZeRO 3 and fsdp gather each unit's weights in the forward and again in the backward pass, and reduce-scatter its
/// gradients: 3Ψ(N-1)/N elements sent per rank and microbatch (1910.02054 §7.2), or 2Ψ(N-1)/N if weights stay gathered
/// after the forward pass (2304.11277 §3). The next unit is gathered while the current one computes (2304.11277
/// §3.3.2), so an isolated pass exposes
///   its first gather + Σ max(0, communication of the next unit - computation of this one) + its last reduce-scatter.
/// Of the k = m·vpp passes of a rank in each direction, all but one have neighbours whose computation also hides their
/// first gather and last reduce-scatter. Weights are needed before their pass, gradients only at the end of the step,
/// so these passes expose
///   max(0, gathers - computation) in either pass, and in the backward pass also
///   max(0, reduce-scatters - computation of both passes that the gathers leave free);
/// each pass is charged the mean over the k passes.
/// If all ranks run all m microbatches of a stage in a row (StageMap::passes_in_a_row: breadth-first, gpipe), a rank
/// keeps the stage's weights during the row and accumulates its gradients before scattering them: 3Ψ(N-1)/N per step
/// instead of per microbatch (Lamy-Poirier 2211.05953 §3). Rows of m passes then replace single passes above, and
/// memory holds the whole weights and gradients of the current stage and of one neighbour.
/// A unit's gather starts once its output buffer is allocated, after gather_allocation, unless the stack keeps its
/// buffers (2304.11277 §3.4: the caching allocator may have to wait for the device or ask the driver).
/// Not modelled: bubbles, which would hide more; waits for a single large unit within a pass, and the memory of
/// gradients that wait; differences between the stages of a rank; the slowdown of computation and pipeline transfers by
/// concurrent communication.
/// hsdp gathers and scatters inside its shards and all-reduces Ψ/shards across them: 2(R-1)/R·Ψ/shards more for every
/// microbatch, as PyTorch does by default (2304.11277 §3.2.2). Its experts are split into shards/ep parts, or kept
/// whole if ep >= shards.
/// ZeRO 2 reduce-scatters each unit's gradients in every microbatch, during the backward pass if the stack overlaps
/// them, otherwise after it.
/// Frozen weights are gathered in their storage format; only trained ones are scattered.
/// nn.DataParallel copies all weights from GPU 0, gathers the logits there and sums the gradients there, over one link.
/// The replicas' traffic is added to costs.sent.dp, with `sent_per_rank` of the busiest GPU.
void add_replica_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// Costs after the last microbatch, by pipeline rank: reducing its gradients over the replicas (unless buckets or
/// microbatches already did), then the rank's share of them over the two ranks that hold the same stages in both copies
/// of a bidirectional schedule, and the tied table over first and last stage; the gradient norm over the ranks of one
/// replica; the optimizer; and, with sharded optimizer state, distributing the new weights.
/// Weights gathered by one collective per parameter pay the latency of each, 16 at a time.
/// With sharded optimizer state, the matrix products of MatrixUpdates are distributed over the replicas as whole
/// matrices (Megatron Core's layer-wise optimizer). If gradients are also sharded within a matrix, the parts go to the
/// rank that owns it and the update comes back: two all-to-alls in the training format. An offloaded optimizer sends
/// its gradients to the host, updates there at host memory bandwidth and fetches the weights, one after the other
/// (ZeRO-Offload 2101.06840 §4, without its one-step delay).
std::vector<FlushCosts> price_flushes(const PricingContext& pricing, const StepCosts& costs);

/// The part of add_replica_passes (formulas in data_parallel.hpp) for ZeRO 2 and 3, fsdp and hsdp. `runs` must not be
/// empty.
void add_sharded_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// Completes stage `stage`, whose computation and other communication are already known, with the replicas'
/// communication during the passes and with activation offloading. `runs` are in forward order.
///
/// Offloaded activations leave during the forward pass and return during the backward pass, activation bytes /
/// host_bandwidth each; time not hidden by the pass is exposed. Two layers' worth stays on the device.
void finish_stage(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// The gradients of a run of operators, with the fraction of the backward pass after which each is finished.
std::vector<GradientPiece> gradient_pieces(const std::vector<Operator>& operators, const std::vector<Seconds>& backward,
                                           const Layout& layout);

}  // namespace flopcast
