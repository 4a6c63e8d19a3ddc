#pragma once

#include <vector>

#include "model/cost/collectives.hpp"
#include "model/cost/compute.hpp"
#include "model/cost/stage_costs.hpp"
#include "model/job.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/workload/operators.hpp"

namespace flopcast {

/// What every part of the pricing looks up. Borrows the job and the map.
class PricingContext {
 public:
  PricingContext(const Job& job, const StageMap& map);

  const Job& job;
  const StageMap& map;
  RankGrid grid;
  ComputeModel compute;
  CommunicationModel communication;
  CommunicationModel replica_communication;  ///< of the replicas' collectives
  GroupPlacement tp_group;
  GroupPlacement replicas;  ///< the dp·cp ranks that hold the same weights

  /// `count` collectives of `bytes` each; nothing for a group of one.
  Traffic collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group, double count) const;
  /// The same among replicas: gradients and sharded weights.
  Traffic replica_collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& group, double count) const;
  double tokens() const;       ///< S, of one microbatch's context-parallel share
  Bytes hidden_bytes() const;  ///< of one microbatch's hidden states, not split over tensor-parallel ranks
};

/// Gradients of some parameters, and what PowerSGD of the layout's rank sends of them.
struct GradientAmount {
  double parameters = 0.0;
  double low_rank_elements = 0.0;

  GradientAmount& operator+=(const GradientAmount& other);
};

/// One gradient of a run of operators.
struct GradientPiece {
  GradientAmount amount;
  bool of_experts = false;
  double finished = 0.0;  ///< share of the run's backward pass done when it is ready
};

/// Of one collective of a backward pass that brings linears their input (see add_block_collectives), and the products
/// of these linears.
struct TensorCollectives {
  struct Products {
    Seconds input_gradient;
    Seconds weight_gradient;
  };
  Seconds gather;       ///< of a linear's input, again for its weight gradient: beside the input gradient
  Seconds sum;          ///< of the input gradient: beside the weight gradient
  Products attention;   ///< of linears whose input is gathered before attention
  Products mlp;         ///< and before the MLP
  bool has_mlp = true;  ///< whether there is one of the latter

  /// What of them has a product beside it.
  Seconds beside() const;
};

/// A run of operators priced together, for one microbatch.
struct Section {
  PassCost forward;
  PassCost input_gradient;
  PassCost weight_gradient;
  PassCost core;               ///< the part selective recomputation redoes
  Seconds attention;           ///< forward, of scores, softmax and context
  Seconds attention_backward;  ///< of the same
  Flops flops;
  Flops forward_flops;
  Flops core_flops;
  double parameters = 0.0;
  double expert_parameters = 0.0;
  FrozenWeights frozen;
  MatrixUpdates matrices;
  Bytes dequantised;         ///< the largest weight that is widened where it is multiplied with
  TensorCollectives tensor;  ///< backward collectives that products may run beside
  Seconds tp_hidden;         ///< what of them does, in a full backward pass
  Seconds tp_in_pieces;      ///< forward collectives that are cut in pieces beside the products
  ExpertLayer expert_layer;
  PairGain pair_saved;
  PairGain pair_hidden;
  ByAxis<Traffic> sent;
  Traffic context_forward;  ///< of sent.cp, what the forward pass sends
  Traffic grid_forward;     ///< of sent.tp on a grid, the same
  double low_rank_elements = 0.0;
  std::vector<GradientPiece> gradients;  ///< in the order the backward pass finishes them
};

/// Equal units (blocks, or one embedding or head) that follow each other in a stage.
struct UnitRun {
  const Section* section = nullptr;
  int count = 1;      ///< 1 or more
  Seconds recompute;  ///< of one unit, in its backward pass

  /// Of one unit, communication of its own included.
  Seconds forward() const { return section->forward.total(); }
  Seconds backward() const {
    return recompute + section->input_gradient.total() + section->weight_gradient.total() - section->tp_hidden;
  }
};

Traffic scaled(const Traffic& traffic, double times);

/// What computation takes longer beside communication, of the time that the two run side by side: they share
/// multiprocessors and memory bandwidth. What a network adds to each hop (hop_latency) takes neither. Fitted to
/// published FSDP steps, at the upper end of the 0.19 to 0.4 of the literature; cores that only compute: nothing. The
/// same for sharded weights, gradient buckets, updated weights and pipeline transfers.
double overlap_slowdown(const Device& device);

/// What the host takes to launch a block's kernels and collectives.
struct HostTime {
  Seconds forward;
  Seconds backward;
};
/// Graphs of attention and what is around it take about half of a dense block's launches, and all but the routed
/// operators' of a block with experts.
HostTime host_time(const PricingContext& pricing, const std::vector<Operator>& operators);

/// What a pass of `device` takes longer: see add_host_floor.
Seconds waiting_for_host(Seconds host, Seconds device);

/// A pass takes no less than the host needs to launch its kernels and collectives, and somewhat more where both take
/// about as long, because now one and now the other waits: (device^6 + host^6)^(1/6). What that adds counts as
/// computation, half and half in the two parts of the backward pass. What weight gradients hide of collectives is no
/// time of the device: a pass that waits for its host gains nothing by it. Nothing for a stack without host times.
/// With Stack::host_waits_for_hops the host's time holds the hops of the block's collectives too, (nodes - 1) ·
/// hop_latency each; with Stack::collective_stall, where pipeline neighbours are on other nodes, tp times that each.
/// With sequence parallelism these are 4 forward and 6 backward (Korthikanti et al. 2205.05198 §4.2.2: inputs are
/// gathered again for the weight gradients).
void add_host_floor(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
