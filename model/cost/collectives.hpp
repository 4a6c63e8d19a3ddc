#pragma once

#include <optional>
#include <string_view>

#include "model/hardware/cluster.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

struct CostOverrides;

/// Path of a collective's bytes between nodes: a ring, a pair of binary trees, or to switches that reduce in the
/// network and back.
enum class CollectivePath { kRing, kTree, kSwitches };

/// NCCL's own latency-bandwidth model: time = latency + bytes / algorithm bandwidth, for the fastest of Ring, Tree,
/// NVLS and, between two nodes, NVLS-tree with the LL, LL128 and Simple protocols (NVIDIA/nccl 2.28,
/// src/graph/tuning.cc; formulas restated in collectives.cpp).
///
/// `bytes` is the size that nccl-tests prints: the whole buffer of an all-reduce, the sum over ranks for an all-gather
/// or a reduce-scatter. algbw = bytes / time; busbw = algbw · 2(n-1)/n for all-reduce and · (n-1)/n for the others.
/// A ring inside a node reaches intra_bandwidth · intra_efficiency. Between nodes a group gets its share of the node's
/// network cards: cards / groups that use them at the same time.
/// NCCL adds to each hop between nodes the latency reported by its network plugin (graph->latencyInter): the cluster's
/// hop_latency, which a ring pays nodes - 1 times and a tree 2·log2(nodes) times.
/// The available algorithms depend on the release (Stack::nccl; NCCL's release notes): NVLS from 2.17, NVLS-tree from
/// 2.18, and PAT from 2.23. PAT runs gathers and reduce-scatters of groups with one rank per node along binomial trees:
/// log2(nodes) hops instead of nodes - 1, at 0.75 of the ring's bandwidth (tuning.cc, 2.23 and later). An unspecified
/// release has everything except PAT.
/// CollNet: if the network's switches can reduce (Cluster::network_reduction or the network's sharp; SHARP, Graham et
/// al., COMHPC 2016), an all-reduce between nodes may sum inside each node, send every byte of the sums out and in once
/// over the node's cards, through one tree of switches, and distribute the result: max(S / node's network, the node's
/// own all-reduce) plus one tree hop up and one down, regardless of the number of nodes.
/// Gloo and MPI: a ring (Patarasuk & Yuan 2009), steps · alpha + bytes sent / beta, from host memory, with copies from
/// and to the device. Gloo: beta 1.15 GB/s per connection (measured between two 10 Gbit/s hosts at every size,
/// discuss.pytorch.org/t/194008), alpha 50 us (assumed). MPI: beta is the link rate, alpha 10 us (assumed).
/// A network's hop_latency is added to a message, and to each hop of a collective, once per switch on the longest path.
/// Contention between groups of several axes on its links is modelled in sim/forecast/wiring.hpp.
///
/// Measurements: a curve that the cluster's profile measured on a group with the same number of ranks and nodes
/// replaces all of the above, for any transport, unless groups share network cards: the measured group had them to
/// itself.
/// Every other group, collective and size on the same class of links, inside a node or between nodes, is scaled from
/// the measurements there. Its time is
///   exp(sum(w ln t) / sum(w)),  w = 1 / (1 + d)^2,
///   d = |log2 of the ratio of ranks| + |log2 of the ratio of nodes| + 1 for another collective,
///   t = measured - latency' + latency  at the size at which the measured group's ranks send as many bytes,
/// where between nodes the bytes are those over each network card (each rank has its own, as far as there are enough).
/// latency and latency' are the modelled times of a single byte for this and the measured group; a measured message or
/// all-to-all uses its own measured latency. Thus bus bandwidth carries over. In nodes without a switch, the time
/// beyond the latency is multiplied by the ratio of the links that the measured group fills to those that this group
/// fills (Cluster::ring_bandwidth), and a path through the host is never compared with direct links. Between nodes,
/// where a message uses one card and an all-to-all loads the cards differently from a ring, t is the model's time times
/// measured / model'. An all-reduce that beats rings thanks to a reducing switch speeds up nothing else. If only links
/// inside nodes were measured, they limit what a ring carries inside the nodes it crosses.
/// Not modelled: gathers through CollNet; of NCCL's model, the per-channel limits of trees, the cost of posting to the
/// network, and its size tables, which a single curve replaces (collectives.cpp).
class CommunicationModel {
 public:
  /// `laws` may be null; otherwise it must outlive the model.
  explicit CommunicationModel(const Cluster& cluster, Transport transport = Transport::kNccl, int nccl = 0,
                              const CostOverrides* laws = nullptr);
  // The cluster is held by reference, so temporaries are rejected.
  explicit CommunicationModel(Cluster&&, Transport = Transport::kNccl, int = 0,
                              const CostOverrides* = nullptr) = delete;

  /// Time of an all-reduce, all-gather or reduce-scatter; zero for a group of one.
  Seconds collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;
  /// Lower bound of the part of that time that the network adds to hops between nodes: of a tree for an all-reduce,
  /// otherwise of a ring.
  Seconds network_latency(CollectiveKind kind, const GroupPlacement& placement) const;
  /// Every rank sends an equal part of its `bytes` to every rank, itself included (NCCL: n-1 simultaneous sends and
  /// receives). Traffic inside the node and between nodes flows concurrently, each over its own links; `bytes` is one
  /// rank's buffer, as nccl-tests prints it.
  Seconds all_to_all(Bytes bytes, const GroupPlacement& placement) const;
  /// Each token is sent once to every node that needs it and from there once to each rank, by dedicated kernels
  /// (DeepEP, HybridEP). A rank's traffic inside the node, `within`, and to other nodes, `between`, flows concurrently,
  /// each at `share` of its links' bandwidth.
  Seconds node_wise_exchange(Bytes within, Bytes between, double share, const GroupPlacement& placement) const;
  /// One message between two devices while `flows_sharing_nics` devices of the node send at the same time.
  Seconds point_to_point(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  /// Latency of a message between nodes, before its bytes.
  Seconds message_latency() const { return cluster_.inter_latency + way_latency_; }
  /// Path of a collective's bytes between nodes in the fastest algorithm found by collective().
  CollectivePath way(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;

 private:
  struct Priced {
    Seconds time;
    CollectivePath way = CollectivePath::kRing;
  };
  Seconds hop_latency() const { return cluster_.hop_latency + way_latency_; }
  Priced priced(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;
  Seconds all_to_all_time(Bytes bytes, const GroupPlacement& placement) const;
  Seconds message_time(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  Seconds user_override(std::string_view kind, Bytes bytes, const GroupPlacement& placement, Seconds ours) const;

  /// Kind of a collective; none for a message.
  using Kind = std::optional<CollectiveKind>;

  Priced model_price(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const;
  Seconds modelled(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const {
    return model_price(kind, bytes, placement, rings_alone).time;
  }
  Seconds modelled_all_to_all(Bytes bytes, const GroupPlacement& placement) const;
  Seconds modelled_message(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  Seconds modelled_any(Kind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const;
  /// Factor by which measurements on the same links correct the model's time; 1 without measurements.
  double measured_correction(Kind kind, Bytes bytes, const GroupPlacement& placement, Seconds model) const;
  /// The same factor from links inside nodes, for a group that spans several nodes.
  double measured_correction_inside(Kind kind, Bytes bytes, const GroupPlacement& placement) const;
  bool measured_between() const;

  const Cluster& cluster_;
  Seconds way_latency_;  // of the network's switches on the longest path
  Transport transport_;
  int nccl_;
  const CostOverrides* laws_;
};

/// Bytes sent by each rank: 2(n-1)/n · bytes for a ring all-reduce, (n-1)/n for the others (Patarasuk & Yuan 2009).
Bytes bytes_sent_per_rank(CollectiveKind kind, Bytes bytes, int ranks);

/// A rank keeps its own part of its buffer of `bytes` and sends (n-1)/n · bytes.
Bytes all_to_all_sent_per_rank(Bytes bytes, int ranks);
/// Steps of a ring: 2(n-1) for an all-reduce, n-1 for the others.
int ring_steps(CollectiveKind kind, int ranks);

}  // namespace flopcast
