#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// The parameters of an operator, and of them what PowerSGD sends.
GradientAmount gradient_amount(const Operator& op, const Layout& layout);

/// What ranks of a replica group send to add up their gradients.
///
///   all-reduce      2(n-1)/n · S sent per rank (Patarasuk & Yuan 2009), priced by CommunicationModel
///   ps, byteps      n GPU nodes, k spare hosts, S bytes a node, B of its network: after a reduce-scatter inside the
///   node
///     ps            k = 0: 2(n-1)/n · S/B, servers beside the workers; 0 < k < n: n/k · S/B, the servers' links are
///                   the bottleneck; k >= n: S/B
///     byteps        2n(n-1)/(n² + kn - 2k) · S/B; a GPU node serves (n-k)/(n² + kn - 2k) of S, a host 2(n-1)/(...)
///                   (Jiang et al., OSDI 2020, §4.1); k beyond n adds nothing
///   dataparallel    one process: GPU 0 receives (N-1)·S and sends (N-1) copies of the weights
///
/// Compression replaces S (ddp only); what it reads and writes is charged at memory bandwidth:
///   8bit, 4bit      bits/8 bytes a gradient and one fp32 scale for each 512 (QSGD, 1610.02132 §5); gradients read and
///                   codes written, then the reverse
///   topk:F          an all-gather of F·Ψ values with 4-byte indices from each rank (1704.05021, DGC 1712.01887 §3);
///                   gradients and residuals read, residuals written, gradients read again to select
///   powersgd:R      two all-reduces of R·rows and R·columns fp32 elements a matrix, vectors as they are (1905.13727
///                   §3); gradients and residuals read, residuals written, two products, one reconstruction
/// Left out: convergence, priorities of parameters (ByteScheduler), incast, the python time of nn.DataParallel.
///
/// With optimizer state sharded (ZeRO 1) only the reduce-scatter half; the new weights are gathered later.
Traffic reduce_gradients(const PricingContext& pricing, const GradientAmount& amount, const GroupPlacement& group);

/// The share of S/B that the network needs, and of S that each server holds.
struct ServerShares {
  double time = 0.0;
  double gpu_node = 0.0;
  double spare_host = 0.0;
};
ServerShares byteps_shares(double gpu_nodes, double spare_hosts);
/// Time over S/B of parameter servers on the spare hosts, beside the workers when there are none.
double parameter_server_time(double gpu_nodes, double spare_hosts);

/// Whether gradients are reduced during the last backward pass, bucket by bucket.
bool reduces_in_buckets(const Job& job);

/// Fills costs.buckets: gradients put into buckets of `bucket_mb` MiB in the order the last backward pass finishes
/// them, whole tensors, a bucket closing once it reaches its size; with the default size the first closes at 1 MiB (Li
/// et al. 2006.15704 §3.2.3, §4.2). Earlier microbatches only accumulate. Gradients of experts have buckets of their
/// own. `runs` are the stage's, in order of the forward pass. Nothing where gradients are not reduced in buckets.
void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs);

/// Weights, gradients and optimizer state of one rank, in bytes. Ψ parameters, N replicas, e bytes a weight, g a
/// gradient, K of optimizer state:
///   ZeRO 0  e·Ψ + g·Ψ + K·Ψ      1  K·Ψ/N      2  and g·Ψ/N      3 (= fsdp)  and e·Ψ/N
/// With muon and galore K is that of their MatrixUpdates; without these, the least it may be. A copy of the model as
/// reference (holds_reference) counts as weights. hsdp cuts all three in `shards` parts. Published for e = g = 2, K =
/// 12 (Rajbhandari et al. 1910.02054 §5, Table 1). Offloaded optimizer state counts nothing: it lives in the host's
/// memory, whose size is not modelled.
struct ModelStates {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;
  Bytes total() const { return weights + gradients + optimizer; }
};
/// `expert_parameters` of them are held by every ep-th replica only: max(1, N/ep) or max(1, shards/ep) parts.
/// What of both is frozen has neither gradients nor optimizer state and counts as it is stored; only ZeRO 3, fsdp and
/// hsdp cut it.
ModelStates model_states(const Layout& layout, const Training& training, double parameters,
                         double expert_parameters = 0.0, const FrozenWeights& frozen = {},
                         const MatrixUpdates* matrices = nullptr);

/// Communication inside the passes of a microbatch through `stage`: sharded weights (ZeRO 3, fsdp, hsdp), gradients
/// reduced by every microbatch (ZeRO 2), nn.DataParallel. `runs` are the stage's, in order of the forward pass; the
/// weights of a unit are gathered at once.
///
/// ZeRO 3 and fsdp gather each unit's weights forward and again backward, and reduce-scatter its gradients: 3Ψ(N-1)/N
/// elements sent per rank and microbatch (1910.02054 §7.2); 2Ψ when weights stay gathered after the forward pass
/// (2304.11277 §3). The next unit is gathered while the present one computes (2304.11277 §3.3.2), so a pass that
/// nothing surrounds exposes
///   its first gather + Σ max(0, communication of the next unit - computation of this one) + its last reduce-scatter.
/// Of the k = m·vpp passes of a rank in each direction, all but one have neighbours whose computation covers their ends
/// as well. Weights are needed before their pass, gradients not before the end of the step, so these expose
///   max(0, gathers - computation) in either pass, and in the backward pass also
///   max(0, reduce-scatters - what the gathers leave free of the computation of both passes);
/// the mean over the k is charged to each.
/// Where all ranks run all m microbatches of a stage in a row (StageMap::passes_in_a_row: breadth-first, gpipe), a rank
/// keeps the stage's weights for the row and adds its gradients up before it scatters them: 3Ψ(N-1)/N a step instead of
/// a microbatch (Lamy-Poirier 2211.05953 §3). The above then holds with rows of m passes for passes, and whole weights
/// and gradients of the stage at work and of one neighbour are in memory.
/// A unit's gather starts when its output is allocated, gather_allocation later, unless the stack keeps its buffers
/// (2304.11277 §3.4: the caching allocator may have to wait for the device, or ask the driver).
/// Left out: bubbles, which would cover more; waits for one large unit inside a pass, and the memory of gradients that
/// wait; stages of a rank that differ; the slowdown of computation, and of pipeline transfers, beside communication.
/// hsdp gathers and scatters inside its shards and all-reduces Ψ/shards across: 2(R-1)/R·Ψ/shards more (2304.11277
/// §3.2.2), for every microbatch, as PyTorch does by default; its experts in shards/ep parts, whole where ep >= shards.
/// ZeRO 2 reduce-scatters each unit's gradients in every microbatch, behind the backward pass where the stack overlaps
/// them, and otherwise after it.
/// Frozen weights are gathered as they are stored; only what is trained is scattered.
/// nn.DataParallel copies all weights from GPU 0, gathers the logits there and adds the gradients there, over one link.
/// What the replicas of a layout send is added to costs.sent.dp, `sent_per_rank` for the busiest GPU.
void add_replica_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// What follows the last microbatch, by pipeline rank: reduction of its gradients over the replicas (where no bucket
/// and no microbatch did it), with what is left of them over the two ranks that hold the same stages in the two copies
/// of a bidirectional schedule, of the tied table over first and last stage, the gradient norm over the ranks of one
/// replica, the optimizer and, where it is sharded, handing out the new weights.
/// Weights that are gathered by one collective a parameter take the latency of each, 16 at a time.
/// With sharded optimizer state the products of MatrixUpdates are shared out among the replicas, whole matrices to
/// each (Megatron Core's layer-wise optimizer); where gradients are sharded within a matrix as well, their parts go to
/// the rank that has it and the update comes back, two all-to-alls in the training format. An offloaded optimizer sends
/// its gradients to the host, updates there at the speed of the node's memory, and takes the weights back, one after
/// the other (ZeRO-Offload 2101.06840 §4, without its one-step delay).
std::vector<FlushCosts> price_flushes(const PricingContext& pricing, const StepCosts& costs);

/// The part of add_replica_passes (data_parallel.hpp, which has the formulas) that is for ZeRO 2 and 3, fsdp and hsdp.
/// `runs` is not empty.
void add_sharded_passes(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// Completes stage `stage`, whose computation and other communication are known: what its replicas send inside the
/// passes, and activations that go to the host and back. `runs` are in order of the forward pass.
///
/// Offloaded activations leave during the forward pass and return during the backward pass, each way activation bytes
/// over host_bandwidth; what the pass does not cover is exposed. Two layers' worth stays on the device.
void finish_stage(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// The gradients of a run of operators, given each one's share of the time in the backward pass.
std::vector<GradientPiece> gradient_pieces(const std::vector<Operator>& operators, const std::vector<Seconds>& backward,
                                           const Layout& layout);

}  // namespace flopcast
