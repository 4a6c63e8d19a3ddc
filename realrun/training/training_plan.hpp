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

/// What is run before the training to know what its forecast needs: see RankCalibration.
struct CalibrationPlan {
  Program program;  ///< the run's own, or a shorter one of an asynchronous schedule
  int steps = 1;
};

/// Everything that determines a run, the same on all ranks. Ranks are numbered as RankGrid numbers those of a layout
/// with tp innermost, then cp, dp and pp.
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
  int context_inner = 1;  ///< of a hierarchy, neighbours that exchange heads
  int ep = 1;             ///< neighbours, or groups of etp, that hold different experts; divides them
  int etp = 0;            ///< with sequence parallelism, neighbours that share each expert; 0: tp
  bool sequence_parallel = false;
  int zero = 0;
  int shards = 0;  ///< with zero 3: neighbouring replicas that share one copy of the states; 0: all replicas share it
  bool reshard_after_forward = true;  ///< with zero 3: see StageWeights
  /// Neighbouring replicas on a node, where gradients go through parameter servers; 0: they do not. With zero 0.
  int served_ranks_per_node = 0;
  int servers = 0;          ///< on spare hosts, of each group of replicas with the same place on their nodes
  double rank_share = 0.0;  ///< of what such a group adds up, each rank serves so much beside the servers
  Offload offload = Offload::kNone;
  Compression compression;  ///< of gradients between replicas; with zero 0
  int micro_batch_size = 1;
  int steps = 1;
  UpdateRule optimizer;
  std::vector<StageTimes> sleep;  ///< by stage: actions sleep as long instead of computing; empty: they compute
  std::optional<CalibrationPlan> calibration;
  bool keeps_weights = true;        ///< RankResult::weights is wanted at the end; downloading them takes time
  std::optional<int> bucket_bytes;  ///< absent: 25 MiB, and 1 MiB for the first of a stage, as PyTorch does

  int pipeline_ranks() const { return program.rank_count(); }
  /// Ranks with the same weights, context-parallel ones innermost.
  int replicas() const { return dp * cp; }
  int ranks() const { return replicas() * tp * pipeline_ranks(); }
  /// Ranks behind the others that compute nothing: servers on spare hosts.
  int server_ranks() const { return ranks() / replicas() * served_ranks_per_node * servers; }
  /// Of the tensor-parallel ranks; of 1d a line without parts of the tokens.
  TensorGrid grid() const {
    return tensor_parallel == TensorParallel::k1d ? TensorGrid{} : tensor_grid(tensor_parallel, tp, tensor_depth);
  }
  /// Parts of a block's heads and MLP.
  int feature_parts() const { return tensor_parallel == TensorParallel::k1d ? tp : grid().q; }
  int expert_sharers() const { return etp == 0 ? tp : etp; }
  /// Ranks of a stage that hold the same parts of the same experts.
  int expert_replicas() const { return replicas() * tp / (expert_sharers() * ep); }
  int slices() const { return program.slices_per_microbatch; }
  /// Of one replica in a step, over all chains; whole ones.
  int microbatches() const { return program.microbatch_count(); }
  /// That make one update of the weights, over all replicas.
  int microbatches_per_update() const;
};

/// Throws ConfigError when the plan cannot be executed: a faulty program, sizes that do not divide, tied embeddings
/// without a flush, ZeRO 2 and 3 without one, compression that meets ZeRO.
void check_plan(const TrainingPlan& plan);

/// What messages between two neighbouring stages cost the rank that receives them, in ticks of host_clock().
struct MessageTimes {
  MessageKey key;  ///< of the first one
  std::size_t bytes = 0;
  std::vector<Ticks> one_way;  ///< from the send to the arrival at a rank that waits for nothing else
  std::vector<Ticks> receive;  ///< what receiving takes of the receiver's time when the message has long been there
};

/// Sends messages over every boundary between two ranks of the program, both ways, one boundary after the other.
/// Called by all ranks. Returns what this rank received. One clock for all ranks is assumed.
std::vector<MessageTimes> measure_messages(const Program& program, const RankPlace& place, const StageCompute& compute,
                                           RankTransport& transport, ComputeDevice& device);

// What the ranks of a plan, and the servers on spare hosts, make of it alike. Groups are made by all of them in the
// same order; returned is the one that this rank is in.

RankGrid grid_of(const TrainingPlan& plan);

/// All groups of the axis.
Group form_groups(RankTransport& transport, const RankGrid& grid, Axis axis);

/// Of the replicas, every so many neighbours: those of each of these groups, or the first, second, ... of all of them.
/// Their traffic counts under `axis`.
enum class Cut { kNeighbours, kSamePlace };
Group form_cut_groups(RankTransport& transport, const RankGrid& grid, int neighbours, Cut cut, Axis axis = Axis::kData);

/// Of the ranks of each stage in the order of their tensor, context and data places: in every run of ranks · every of
/// them, those that lie `every` apart.
Group form_strided_groups(RankTransport& transport, const RankGrid& grid, int ranks, int every, Axis axis);

/// What a server on a spare host needs to know of the ranks it serves.
struct ServerPlace {
  int worker = 0;             ///< the first of them
  int index = 0;              ///< among their servers
  std::vector<Group> pushes;  ///< by peer
  Group pull;
};
/// The links of this rank with its servers, or of this server with its ranks.
struct ServerGroups {
  std::vector<ServerLink> links;
  ServerPlace place;
};
ServerGroups form_server_groups(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// The lines of tensor-parallel ranks that this rank is part of; none where they are one line.
GridPlace form_tensor_grid(RankTransport& transport, const TrainingPlan& plan, const RankGrid& grid);

/// By shared set, for the replica this rank is in.
std::vector<Group> form_shared_groups(RankTransport& transport, const RankGrid& grid,
                                      const std::vector<std::vector<int>>& holders);

/// The pairs of ranks with neighbouring stages, of every pipeline, each once.
std::vector<std::pair<int, int>> neighbours_of(const TrainingPlan& plan, const RankGrid& grid);

/// By stage of the program.
std::vector<StagePart> parts_of(const TrainingPlan& plan);

BucketRules bucket_rules(const TrainingPlan& plan);

/// Of parameters: buckets are cut among the replicas, or among those of a node and then of the nodes.
std::size_t alignment_of(const TrainingPlan& plan, ComputeDevice& device);

}  // namespace flopcast::realrun
