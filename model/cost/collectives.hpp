#pragma once

#include <optional>
#include <string_view>

#include "model/hardware/cluster.hpp"
#include "model/layout/rank_grid.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/training.hpp"

namespace flopcast {

struct CostLaws;

/// Along which pairs of nodes a collective's bytes go: a ring; a pair of binary trees; to switches that add up, and
/// back.
enum class CollectiveWay { kRing, kTree, kSwitches };

/// NCCL's own latency-bandwidth model: time = latency + bytes / algorithm bandwidth, the fastest of Ring, Tree, NVLS
/// and, between two nodes, NVLS-tree with the LL, LL128 and Simple protocols (NVIDIA/nccl 2.28, src/graph/tuning.cc;
/// formulas restated in collectives.cpp).
///
/// `bytes` is the size nccl-tests prints: the whole buffer of an all-reduce, the sum over ranks of an all-gather or a
/// reduce-scatter. algbw = bytes / time; busbw = algbw · 2(n-1)/n for all-reduce and · (n-1)/n for the others.
/// The ring inside a node reaches intra_bandwidth · intra_efficiency; across nodes a group has its share of the node's
/// network cards: cards / groups that use them at the same time.
/// To each hop between nodes NCCL adds the latency that its network plugin names (graph->latencyInter): the cluster's
/// hop_latency, which a ring pays nodes - 1 times and a tree 2·log2(nodes) times.
/// What is there depends on the release (Stack::nccl; NCCL's release notes): NVLS from 2.17 on, NVLS-tree from 2.18 on,
/// PAT from 2.23 on: gathers and reduce-scatters of groups with one rank a node along binomial trees, log2(nodes)
/// hops instead of nodes - 1 at 0.75 of the ring's bandwidth (tuning.cc, 2.23 and later). A release that is not told
/// has all but PAT.
/// CollNet: where the network's switches add up (Cluster::network_reduction; SHARP, Graham et al., COMHPC 2016), an
/// all-reduce sums inside each node, sends every byte of the sums out and in once over the node's cards, up and down
/// one tree of switches, and hands the result out: max(S / node's network, the node's own all-reduce) and one hop of a
/// tree up and one down, however many nodes.
/// Gloo and MPI: a ring (Patarasuk & Yuan 2009), steps · alpha + bytes sent / beta, from host memory, which is copied
/// to and from the device. Gloo: beta 1.15 GB/s a connection (measured between two 10 Gbit/s hosts at every size,
/// discuss.pytorch.org/t/194008), alpha 50 us, chosen. MPI: beta what the links carry, alpha 10 us, chosen.
/// A curve that the cluster's profile measured on a group of as many ranks and nodes stands in place of all of this,
/// whatever the transport, unless groups share network cards: the measured one had them to itself.
/// Where the cluster's network adds up in its switches (network_reduction, or its network's sharp), an all-reduce
/// between nodes may go to them and back. A network's hop_latency is added to a message and to each hop of a collective
/// once for each switch on the longest way. What groups of several axes do to each other on its links is
/// sim/forecast/wiring.hpp's.
/// Every other group, collective and size on the same links, those inside a node or those between nodes, follows what
/// was measured there: it takes
///   exp(sum(w ln t) / sum(w)),  w = 1 / (1 + d)^2,
///   d = |log2 of the ratio of ranks| + |log2 of that of nodes| + 1 for another collective,
///   t = measured + latency - latency'  at the size at which the measured group's ranks send as many bytes,
/// between nodes over each network card (a rank has one of its own, as far as there are any); the latencies being those
/// of a single byte, by the model, of a measured message or all-to-all its own. So bus bandwidth carries. In nodes
/// without a switch what is beyond the latency is multiplied by the links that the measured group fills over those that
/// the other fills (Cluster::ring_bandwidth), and a path through the host says nothing of links. Between nodes, where a
/// message has one card and an all-to-all fills the cards in another way than a ring, t is the model's time times
/// measured / model'. An all-reduce that is faster than rings because a switch adds up speeds nothing else up. Where
/// only links inside nodes were measured, they bound what a ring carries inside the nodes that it crosses.
/// Left out: gathers through CollNet; of NCCL's model the per-channel limits of trees, the
/// cost of posting to the network, and its size tables, for which one curve stands (collectives.cpp).
class CommunicationModel {
 public:
  /// `laws` may be null, and outlives the model.
  explicit CommunicationModel(const Cluster& cluster, Transport transport = Transport::kNccl, int nccl = 0,
                              const CostLaws* laws = nullptr);
  // The cluster is kept by reference.
  explicit CommunicationModel(Cluster&&, Transport = Transport::kNccl, int = 0, const CostLaws* = nullptr) = delete;

  /// An all-reduce, all-gather or reduce-scatter; zero for a group of one.
  Seconds collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;
  /// Of that, at least: what the network adds to the hops between nodes, of a tree for an all-reduce, else of a ring.
  Seconds network_latency(CollectiveKind kind, const GroupPlacement& placement) const;
  /// Every rank sends an equal part of its `bytes` to every rank, itself included (NCCL: n-1 sends and receives at
  /// once). What stays in the node and what leaves it flow side by side, each over its own link; `bytes` is one rank's
  /// buffer, as nccl-tests prints it.
  Seconds all_to_all(Bytes bytes, const GroupPlacement& placement) const;
  /// Tokens sent once to each node that wants them and once to each rank there, by kernels of their own (DeepEP,
  /// HybridEP): what a rank sends to ranks, `within`, and to other nodes, `between`, flow side by side, each at
  /// `share` of what its links carry.
  Seconds node_wise_exchange(Bytes within, Bytes between, double share, const GroupPlacement& placement) const;
  /// One message between two devices; `flows_sharing_nics` devices of the node send at the same time.
  Seconds point_to_point(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  /// Of a message between nodes, what it pays ahead of its bytes.
  Seconds message_latency() const { return cluster_.inter_latency + way_latency_; }
  /// How the bytes of a collective between nodes move: what collective() takes for the fastest.
  CollectiveWay way(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;

 private:
  struct Priced {
    Seconds time;
    CollectiveWay way = CollectiveWay::kRing;
  };
  Seconds hop_latency() const { return cluster_.hop_latency + way_latency_; }
  Priced priced(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const;
  Seconds all_to_all_time(Bytes bytes, const GroupPlacement& placement) const;
  Seconds message_time(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  Seconds by_law(std::string_view kind, Bytes bytes, const GroupPlacement& placement, Seconds ours) const;

  /// What a collective is, or a message where there is none.
  using Kind = std::optional<CollectiveKind>;

  Priced model_price(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const;
  Seconds modelled(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const {
    return model_price(kind, bytes, placement, rings_alone).time;
  }
  Seconds modelled_all_to_all(Bytes bytes, const GroupPlacement& placement) const;
  Seconds modelled_message(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const;
  Seconds modelled_any(Kind kind, Bytes bytes, const GroupPlacement& placement, bool rings_alone) const;
  /// What measurements on the same links multiply the model's time by; 1 where there are none.
  double carried(Kind kind, Bytes bytes, const GroupPlacement& placement, Seconds model) const;
  /// The same of links inside nodes for a group that leaves them.
  double carried_inside(Kind kind, Bytes bytes, const GroupPlacement& placement) const;
  bool measured_between() const;

  const Cluster& cluster_;
  Seconds way_latency_;  // of the network's switches
  Transport transport_;
  int nccl_;
  const CostLaws* laws_;
};

/// Bytes each rank sends: 2(n-1)/n · bytes for a ring all-reduce, (n-1)/n for the others (Patarasuk & Yuan 2009).
Bytes bytes_sent_per_rank(CollectiveKind kind, Bytes bytes, int ranks);

/// Of its buffer of `bytes` a rank keeps its own part: (n-1)/n · bytes.
Bytes all_to_all_sent_per_rank(Bytes bytes, int ranks);
/// Steps of a ring: 2(n-1) for an all-reduce, n-1 for the others.
int ring_steps(CollectiveKind kind, int ranks);

}  // namespace flopcast
