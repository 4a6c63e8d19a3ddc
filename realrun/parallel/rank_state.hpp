#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/executor/executor.hpp"
#include "realrun/parallel/buckets.hpp"
#include "realrun/transport/transport.hpp"
#include "sim/program/program.hpp"

namespace flopcast::realrun {

/// A server rank on a spare host, which sums what `peers` push to it and returns the sum: broadcasts of the rank, and
/// of the server. Both count as traffic of the data axis.
struct ServerLink {
  Group push;  ///< this rank, then the server
  Group pull;  ///< the peers, then the server
};

/// Elements of each served share that the ranks serve for each other; the servers on spare hosts get the rest in nearly
/// equal parts.
std::size_t served_by_rank(std::size_t elements, double rank_share);

/// Context shared by the stages of a rank. All members must outlive the stages.
struct ParallelContext {
  ComputeDevice& device;
  RankTransport& transport;
  Recording& recording;
  StageCompute& compute;
  UpdateRule optimizer;
  Group data = {};     ///< replicas that share the weights, and the states if those are sharded
  Group copies = {};   ///< if groups of replicas share states: ranks that hold the same shard; one rank otherwise
  Group experts = {};  ///< members of `data` that hold the same experts; empty: all
  Group node = {};     ///< members of `data` on the same node; with parameter servers
  Group peers = {};    ///< ranks with the same position on the other nodes; each serves a part of the parameters
  std::vector<ServerLink> servers = {};  ///< on spare hosts
  double rank_share = 1.0;               ///< part of what `peers` reduce that each of them serves if there are servers
  Group tensor = {};                     ///< ranks that share each layer
  int zero = 0;  ///< 0 replicated, 1 optimizer state sharded over the replicas, 2 gradients too, 3 weights too
  bool reshards =
      true;  ///< with zero 3: weights are released after a forward pass, and gathered again for the backward pass
  /// Called with the number of bytes moved to the host or back, if the optimizer runs in host memory.
  std::function<void(std::size_t)> offloads = {};
  GradientCodec* codec = nullptr;       ///< with zero 0: gradients are sent compressed; null: uncompressed
  LowRankProducts* products = nullptr;  ///< with zero 0: matrices are sent as factors of `low_rank` columns
  int low_rank = 0;
};

/// Weights, gradients and optimizer state of one stage on one rank, and the data parallelism between its replicas.
///
///   ZeRO 0  every bucket is all-reduced once it is complete, overlapped with the computation, in the last backward
///           pass only; or summed in compressed form (CompressedSum, LowRankBuckets)
///   ZeRO 1  the same with reduce-scatter; each replica updates its share, and all-gathers the weights
///   ZeRO 2  every backward pass reduce-scatters every unit, and adds it to this replica's share
///   ZeRO 3  weights are all-gathered unit by unit, for each forward and each input gradient pass: each unit while the
///           previous one computes (Zhao et al. 2304.11277 §3.3.2). Without resharding, the weights that a forward pass
///           gathered also serve the microbatch's backward pass
///   servers gradients are reduce-scattered inside the node, pushed to the servers, which are the ranks themselves and
///           each sum a part, pulled back, and all-gathered inside the node (Jiang et al., OSDI 2020); servers on spare
///           hosts take a part, or everything
///   HSDP    ZeRO 3 among `data`; reduce-scattered gradients are then all-reduced over `copies` (2304.11277 §3.2.2)
/// If a rank runs all passes of a stage in a row, ZeRO 2 and 3 do this once per row (PassPlace::row_continues).
/// (Rajbhandari et al. 1910.02054 §5, §7; Li et al. 2006.15704 §3.2.)
/// With `offloads`, weights and optimizer state are in host memory: an update sends the gradients there and returns the
/// new weights (ZeRO-Offload, Ren et al. 2101.06840 §4). Gradients that tensor-parallel ranks hold in parts
/// (Parameter::partial) are summed first.
class StageWeights : public UnitStore {
 public:
  /// Starts from the stage's initial weights. Parameters are aligned to the number of replicas unless zero is 0.
  StageWeights(ParallelContext& context, int stage, StageLayout layout, std::vector<Bucket> buckets);

  void begin_step();
  UnitStore& open(const PassPlace& place);

  Buffer weights(int unit) override;
  Buffer gradients(int unit) override;
  void gradients_added(int unit) override;

  /// Waits until this replica's gradients are the sums over all replicas.
  void finish_reductions();
  /// The part of a bucket that this replica updates; valid after finish_reductions().
  Buffer reduced(std::size_t bucket) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }
  /// Clears the gradients afterwards. `in_place` overwrites the newest version; otherwise makes a new one.
  void update(bool in_place);
  void retire_below(int version) { versions_.erase(versions_.begin(), versions_.lower_bound(version)); }
  int versions_kept() const { return static_cast<int>(versions_.size()); }
  const StageLayout& layout() const { return layout_; }

 private:
  struct Reduction {
    Request request;
    std::size_t bucket = 0;
    Buffer received;  // to be added to the share, if passes reduce
  };

  /// Whole weights of a unit, valid once all requests are done.
  struct Gather {
    Buffer whole;
    std::vector<Request> requests;
  };
  /// Weights that a backward pass will use without gathering them again.
  struct Held {
    Buffer whole;
    int passes = 0;
  };

  int replicas() const { return context_.data.size(); }
  bool has_servers() const { return context_.node.size() > 1 || context_.peers.size() > 1; }
  bool shards(int level) const { return context_.zero >= level && replicas() > 1; }
  const Group& replicas_of(std::size_t bucket) const;
  std::size_t parts_of(std::size_t bucket) const;  // number of parts of the bucket's states
  Buffer flat(const Buffer& buffer, std::size_t offset, std::size_t count) const;
  Buffer share_of(const Buffer& shares, std::size_t bucket) const;
  Buffer gradients_of(std::size_t bucket) const;
  Buffer own_part(const Buffer& whole, std::size_t bucket) const;
  Buffer owned_weights(const Buffer& weights, std::size_t bucket) const;
  Buffer gathered(int unit);
  void start_gather(int unit);
  void prefetch(int unit);
  void sum_partial_gradients(int unit);
  void reduce(std::size_t bucket);
  Request start_through_servers(const Buffer& gradients);
  Request start_between_nodes(const Buffer& of_node);
  void collect(Reduction& reduction);
  void update_on_host(std::size_t bucket, const std::vector<Buffer>& states, const Buffer& updated);
  void gather_weights(const Buffer& weights);

  ParallelContext& context_;
  StageLayout layout_;
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> unit_starts_;
  std::vector<std::size_t> gradient_starts_;
  std::vector<std::size_t> share_starts_;  // by bucket, offsets in a buffer of shares in elements, frozen ones last
  std::map<int, Buffer> versions_;         // whole weights, or this replica's shares of them
  Buffer gradients_;                       // of trained parameters, whole; empty if gradients are sharded
  Buffer shares_;                          // reduced gradients; empty if nothing is sharded
  std::vector<Buffer> states_;
  Buffer host_weights_;  // shares as the optimizer holds them, if it is offloaded
  std::optional<CompressedBuckets> compressed_;
  std::optional<LowRankBuckets> low_rank_;
  std::map<int, Buffer> unit_gradients_;  // by unit, whole, if gradients are sharded; of the current row
  std::map<int, Buffer> gathered_;        // by unit, whole weights that the next pass of the row also needs
  std::map<int, Gather> on_their_way_;    // by unit
  std::map<int, Held> held_;              // by unit, without resharding
  std::deque<Reduction> pending_;
  PassPlace place_;
  int updates_ = 0;
};

/// The stages of one rank, and the sums over the ranks of its pipeline that hold copies of the same parameters.
class RankState : public TrainingState {
 public:
  /// `groups` by shared set: the ranks of this rank's replica that hold it; of size 0 if this rank holds none of it.
  RankState(ParallelContext& context, const Program& program, int pipeline_rank,
            const std::vector<StageLayout>& layouts, SharedParameters shared, std::vector<Group> groups,
            const BucketRules& rules);

  void begin_step() override;
  UnitStore& open(int stage, const PassPlace& place) override { return stages_.at(stage)->open(place); }
  void update(int stage, int oldest_needed) override;
  void finish_step() override;

  std::map<int, std::unique_ptr<StageWeights>>& stages() { return stages_; }

 private:
  void sum_shared(std::size_t set);

  ParallelContext& context_;
  SharedParameters shared_;
  std::vector<Group> groups_;
  std::map<int, std::unique_ptr<StageWeights>> stages_;
};

/// Pipeline ranks that hold each shared set, ascending.
std::vector<std::vector<int>> holders_of(const SharedParameters& shared, const Program& program);

}  // namespace flopcast::realrun
