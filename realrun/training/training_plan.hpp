#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "model/layout/layout.hpp"
#include "model/layout/rank_grid.hpp"
#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/device/device.hpp"
#include "realrun/executor/executor.hpp"
#include "realrun/network/network.hpp"
#include "realrun/network/tensor_grid.hpp"
#include "realrun/parallel/rank_state.hpp"
#include "realrun/transport/transport.hpp"
#include "sim/program/program.hpp"

namespace flopcast::realrun {

/// Program that runs before the training to provide the inputs of its forecast: see RankCalibration.
struct CalibrationPlan {
  Program program;  ///< the run's own, or a shorter one of an asynchronous schedule
  int steps = 1;
};

/// Everything that determines a run, the same on all ranks. Ranks are numbered as in a RankGrid with tp innermost, then
/// cp, dp and pp.
struct TrainingPlan {
  NetworkSpec network;
  Program program;
  UpdateRules updates;
  std::vector<int> stage_blocks;  ///< blocks of each stage of a chain
  int dp = 1;
  int tp = 1;
  TensorParallel tensor_parallel = TensorParallel::k1d;
  int tensor_depth = 1;  ///< of 2.5d
  int cp = 1;            ///< ranks that hold parts of the same samples
  ContextParallel context_parallel = ContextParallel::kRing;
  bool zigzag = false;    ///< see ContextPart
  int context_inner = 1;  ///< adjacent ranks of a hierarchy that exchange heads
  int ep = 1;   ///< adjacent ranks, or groups of etp, that hold different experts; divides the number of experts
  int etp = 0;  ///< adjacent ranks that share each expert, with sequence parallelism; 0: tp
  bool sequence_parallel = false;
  int zero = 0;
  int shards = 0;  ///< with zero 3: adjacent replicas that share one copy of the states; 0: all replicas share it
  bool reshard_after_forward = true;  ///< with zero 3: see StageWeights
  /// Adjacent replicas on a node if gradients go through parameter servers; otherwise 0. Requires zero 0.
  int served_ranks_per_node = 0;
  int servers = 0;          ///< on spare hosts, per group of replicas with the same position on their nodes
  double rank_share = 0.0;  ///< part of such a group's sums that each rank serves in addition to the servers
  Offload offload = Offload::kNone;
  Compression compression;  ///< of gradients between replicas; requires zero 0
  int micro_batch_size = 1;
  int steps = 1;
  UpdateRule optimizer;
  std::vector<StageTimes> sleep;  ///< by stage: actions sleep for this time instead of computing; empty: they compute
  std::optional<CalibrationPlan> calibration;
  bool keeps_weights = true;        ///< return RankResult::weights at the end; downloading them takes time
  std::optional<int> bucket_bytes;  ///< absent: 25 MiB, and 1 MiB for the first bucket of a stage, as in PyTorch

  int pipeline_ranks() const { return program.rank_count(); }
  /// Ranks with the same weights; context-parallel ones are innermost.
  int replicas() const { return dp * cp; }
  int ranks() const { return replicas() * tp * pipeline_ranks(); }
  /// Server ranks on spare hosts; they follow the others and compute nothing.
  int server_ranks() const { return ranks() / replicas() * served_ranks_per_node * servers; }
  /// Grid of the tensor-parallel ranks; for 1d a line on which tokens are not split.
  TensorGrid grid() const {
    return tensor_parallel == TensorParallel::k1d ? TensorGrid{} : tensor_grid(tensor_parallel, tp, tensor_depth);
  }
  /// Number of parts that a block's heads and MLP are split into.
  int feature_parts() const { return tensor_parallel == TensorParallel::k1d ? tp : grid().q; }
  int expert_sharers() const { return etp == 0 ? tp : etp; }
  /// Ranks of a stage that hold the same parts of the same experts.
  int expert_replicas() const { return replicas() * tp / (expert_sharers() * ep); }
  int slices() const { return program.slices_per_microbatch; }
  /// Whole microbatches of one replica in a step, over all chains.
  int microbatches() const { return program.microbatch_count(); }
  /// Microbatches per update of the weights, over all replicas.
  int microbatches_per_update() const;
};

/// Throws ConfigError if the plan cannot be executed: an invalid program, indivisible sizes, tied embeddings without a
/// flush, ZeRO 2 and 3 without one, compression combined with ZeRO.
void check_plan(const TrainingPlan& plan);

/// Cost of messages between two neighbouring stages for the rank that receives them, in ticks of host_clock().
struct MessageTimes {
  MessageKey key;  ///< of the first message
  std::size_t bytes = 0;
  std::vector<Ticks> one_way;  ///< from the send to the arrival at a rank that does nothing but wait
  std::vector<Ticks> receive;  ///< time that receiving takes if the message arrived long before
};

/// Sends messages over every boundary between two ranks of the program, both ways, one boundary after the other. Called
/// by all ranks. Returns the measurements of this rank's receives. Assumes one clock for all ranks.
std::vector<MessageTimes> measure_messages(const Program& program, const RankPlace& place, const StageCompute& compute,
                                           RankTransport& transport, ComputeDevice& device);

// Groups and layouts that the ranks of a plan and the servers on spare hosts derive from it. All of them form the
// groups in the same order; each function returns the group that this rank is in.

RankGrid grid_of(const TrainingPlan& plan);

/// Forms all groups of the axis.
Group form_groups(RankTransport& transport, const RankGrid& grid, Axis axis);

/// Splits the replicas into groups of `neighbours` adjacent ones (kNeighbours), or groups the first, second, ...
/// members of all of them (kSamePlace). Their traffic counts under `axis`.
enum class Cut { kNeighbours, kSamePlace };
Group form_cut_groups(RankTransport& transport, const RankGrid& grid, int neighbours, Cut cut, Axis axis = Axis::kData);

/// Orders the ranks of each stage by tensor, context and data index, splits them into runs of ranks · every, and groups
/// those that are `every` apart.
Group form_strided_groups(RankTransport& transport, const RankGrid& grid, int ranks, int every, Axis axis);

/// The position of a server on a spare host among the ranks it serves.
struct ServerPlace {
  int worker = 0;             ///< the first of the served ranks
  int index = 0;              ///< among the servers of these ranks
  std::vector<Group> pushes;  ///< by peer
  Group pull;
};
/// The links of this rank with its servers, or of this server with its ranks.
struct ServerGroups {
  std::vector<ServerLink> links;
  ServerPlace place;
};
ServerGroups form_server_groups(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// The lines of tensor-parallel ranks that contain this rank; empty for 1d.
GridPlace form_tensor_grid(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// Groups by shared set, for this rank's replica.
std::vector<Group> form_shared_groups(RankTransport& transport, const RankGrid& grid,
                                      const std::vector<std::vector<int>>& holders);

/// The pairs of ranks with neighbouring stages in every pipeline, each pair once.
std::vector<std::pair<int, int>> neighbours_of(const TrainingPlan& plan, const RankGrid& grid);

/// Parts by stage of the program.
std::vector<StagePart> parts_of(const TrainingPlan& plan);

BucketRules bucket_rules(const TrainingPlan& plan);

/// Alignment of parameters: buckets are split among the replicas, or first among those of a node and then among nodes.
std::size_t alignment_of(const TrainingPlan& plan, ComputeDevice& device);

}  // namespace flopcast::realrun
