#pragma once

#include <vector>

#include "model/cost/collectives.hpp"
#include "model/cost/compute.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// Data needed by all parts of the pricing. Holds references to the job and the map.
class PricingContext {
 public:
  PricingContext(const Job& job, const StageMap& map);

  const Job& job;
  const StageMap& map;
  RankGrid grid;
  ComputeModel compute;
  CommunicationModel communication;
  CommunicationModel replica_communication;  ///< for collectives of replicas
  GroupPlacement tp_group;
  GroupPlacement replicas;  ///< the dp·cp ranks that hold the same weights

  /// Traffic of `count` collectives of `bytes` each; none for a group of one.
  Traffic collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group, double count) const;
  /// Like collective(), among replicas: gradients and sharded weights.
  Traffic replica_collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group, double count) const;
  double tokens() const;       ///< S: tokens of one microbatch's context-parallel share
  Bytes hidden_bytes() const;  ///< hidden states of one microbatch, not split over tensor-parallel ranks
};

/// Number of gradients, and the number of elements that PowerSGD with the layout's rank sends for them.
struct GradientAmount {
  double parameters = 0.0;
  double low_rank_elements = 0.0;

  GradientAmount& operator+=(const GradientAmount& other);
};

/// One gradient tensor of a run of operators.
struct GradientPiece {
  GradientAmount amount;
  bool of_experts = false;
  double finished = 0.0;  ///< fraction of the run's backward pass completed when it is ready
};

/// Times of one collective each in the backward pass of linears whose input is gathered (see add_block_collectives),
/// and of the GEMMs of these linears.
struct TensorCollectives {
  struct Products {
    Seconds input_gradient;
    Seconds weight_gradient;
  };
  Seconds gather;       ///< gathers a linear's input again for its weight gradient; overlaps with the input gradient
  Seconds sum;          ///< sums the input gradient; overlaps with the weight gradient
  Products attention;   ///< linears whose input is gathered before attention
  Products mlp;         ///< linears whose input is gathered before the MLP
  bool has_mlp = true;  ///< false if there are none of the latter

  /// Part of the collectives that overlaps with a GEMM.
  Seconds beside() const;
};

/// Host time of a section's passes, and the part of it for which the device waits.
struct HostPasses {
  Seconds forward;
  Seconds backward;
  Seconds forward_wait;
  Seconds backward_wait;
};

/// A run of operators priced together for one microbatch.
struct Section {
  PassCost forward;
  PassCost input_gradient;
  PassCost weight_gradient;
  PassCost core;               ///< the part repeated by selective recomputation
  Seconds attention;           ///< forward pass of scores, softmax and context
  Seconds attention_backward;  ///< backward pass of the same
  Flops flops;
  Flops forward_flops;
  Flops core_flops;
  double parameters = 0.0;
  double expert_parameters = 0.0;
  FrozenWeights frozen;
  MatrixUpdates matrices;
  Bytes dequantised;         ///< largest weight that is widened just before it is multiplied
  TensorCollectives tensor;  ///< backward collectives that may overlap with GEMMs
  Seconds tp_hidden;         ///< hidden part of them in a full backward pass
  Seconds tp_in_pieces;      ///< forward collectives that are split into pieces overlapped with the GEMMs
  ExpertLayer expert_layer;
  PairGain pair_saved;
  PairGain pair_hidden;
  ByAxis<Traffic> sent;
  Traffic context_forward;  ///< part of sent.cp sent by the forward pass
  Traffic grid_forward;     ///< part of sent.tp sent by the forward pass on a grid
  double low_rank_elements = 0.0;
  HostPasses host;
  std::vector<GradientPiece> gradients;  ///< in the order in which the backward pass finishes them
};

/// Equal consecutive units of a stage: blocks, or one embedding or head.
struct UnitRun {
  const Section* section = nullptr;
  int count = 1;      ///< at least 1
  Seconds recompute;  ///< time per unit in its backward pass

  /// Time per unit, including its communication.
  Seconds forward() const { return section->forward.total(); }
  Seconds backward() const {
    return recompute + section->input_gradient.total() + section->weight_gradient.total() - section->tp_hidden;
  }
};

Traffic scaled(const Traffic& traffic, double times);

/// Relative slowdown of computation while it overlaps with communication: they share multiprocessors and memory
/// bandwidth. Network latency per hop (hop_latency) uses neither. Fitted to published FSDP steps, at the upper end of
/// the 0.19 to 0.4 in the literature; zero for CPUs. Applies equally to sharded weights, gradient buckets, updated
/// weights and pipeline transfers.
double overlap_slowdown(const Device& device);

/// Host time to launch the kernels and collectives of a block.
struct HostTime {
  Seconds forward;
  Seconds backward;
};
/// Scoped CUDA graphs cover about half of a dense block's launches, and in a block with experts all but the routed
/// operators'.
HostTime host_time(const PricingContext& pricing, const std::vector<Operator>& operators);

/// Time that waiting for the host adds to a pass of `device`: see add_host_floor.
Seconds waiting_for_host(Seconds host, Seconds device);

/// Adds the time by which the host slows down a block's passes. A pass takes at least as long as the host needs to
/// launch its kernels and collectives, and somewhat longer if both take similar time, because they alternately wait for
/// each other: (device^6 + host^6)^(1/6). The added time counts as computation, split equally between the two parts of
/// the backward pass. Collectives hidden by weight gradients take no device time, so a host-bound pass gains nothing
/// from hiding them. No effect for a stack without host times.
/// With Stack::host_waits_for_hops, the host's time includes the hops of the block's collectives, (nodes - 1) ·
/// hop_latency each; with Stack::collective_stall, and pipeline neighbours on other nodes, it includes tp times that
/// stall for each. With sequence parallelism these are 4 collectives in the forward and 6 in the backward pass
/// (Korthikanti et al. 2205.05198 §4.2.2: inputs are gathered again for the weight gradients).
void add_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
