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
/// own. `runs` are the stage's, in order of the forward pass.
void fill_buckets(const PricingContext& pricing, const std::vector<UnitRun>& runs, StageCosts& costs);

}  // namespace flopcast
