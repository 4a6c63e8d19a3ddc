#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "model/layout/layout.hpp"
#include "sim/flow/flow_program.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// What a step's messages put on the links between nodes.
///
/// A replica is a data-parallel index: its tensor- and context-parallel ranks do everything together, so what they send
/// at once is one coupled flow, one rate with a weight for each link. Flows, for each pipeline rank or stage:
///   boundary  activations or gradients of a stage boundary, of one replica
///   tp, cp    of one replica: rings of its ranks (all pairs for Ulysses)
///   ep        all pairs of each group of expert-parallel ranks, with the replicas that it spans
///   dp        of all replicas: rings over the ranks that hold the same weights, or what their price took for the
///             fastest (CommunicationModel::way)
/// Weights are bytes a picosecond of the time that the message takes alone, which is its price: with all its links to
/// itself it takes just that. By node edge of a ring, of n ranks and S bytes: 2(n-1)/n · S for an all-reduce, (n-1)/n ·
/// S for a gather or a scatter, in equal parts over the cards next to the group's ranks; of a pair of trees S/2 up and
/// S/2 down each edge of both (Sanders, Speck & Träff, Two-tree algorithms for full bandwidth broadcast, reduction and
/// scan, 2009, numbered as NCCL's trees.cc does); to switches that add up S over each link once, up and down; of all
/// pairs what a rank sends over n-1, for each pair, on the receiver's rail where rails are kept.
///
/// A card carries at least what one kind of message asks of it at its price: prices have divided it already. Links that
/// all flows together cannot fill are left out, and a flow without links is not in anybody's way.
/// Replicas that no flow tells apart are of one class (sim/flow/flow_program.hpp), of which the first stands for all.
/// Left out: NVLink, which no two axes of a job share at once; the gradients' norm and tied embeddings; experts'
/// gradients travel as the others' do; expert kernels that send a token once to a node (DeepEP) count as all pairs.
class Wiring {
 public:
  static constexpr FlowId kNone = 0xffff'ffffU;

  Wiring(const PreparedStep& step, const NetworkFabric& fabric);

  /// Classes of replicas.
  std::size_t classes() const { return replica_of_class_.size(); }
  /// The first of its replicas, and how many there are.
  int replica_of(std::size_t of_class) const { return replica_of_class_[of_class]; }
  int replicas_of(std::size_t of_class) const { return replicas_[of_class]; }

  /// Flows of a class's replicas. Several classes may share one; kNone where nothing is sent between nodes.
  FlowId boundary(std::size_t of_class, std::size_t boundary, bool forward) const {
    return boundaries_[(of_class * boundary_count_ + boundary) * 2 + (forward ? 0 : 1)];
  }
  FlowId inside_pass(std::size_t of_class, std::size_t stage, Axis axis) const {
    return inside_[(of_class * stage_count_ + stage) * kAxisCount + static_cast<std::size_t>(axis)];
  }
  /// Of what follows a rank's passes, or overlaps them in buckets: dp. Always there.
  FlowId replicas(std::size_t of_class, std::size_t rank) const { return flush_[of_class * rank_count_ + rank]; }

  /// Of the flows of all classes; bytes a picosecond.
  const FlowProgram& flows() const { return flows_; }
  bool has_links(FlowId flow) const { return flow != kNone && !flows_.uses_of(flow).empty(); }
  Axis axis_of(FlowId flow) const { return axis_of_[flow]; }

  /// The links of a class are alike: the first of the fabric's, and how many.
  struct LinkClass {
    std::uint32_t first = 0;
    int links = 0;
  };
  const std::vector<LinkClass>& link_classes() const { return link_classes_; }
  /// By link of the fabric its class; kNone where it cannot be full.
  const std::vector<std::uint32_t>& class_of_link() const { return class_of_link_; }

 private:
  friend class WiringBuilder;

  std::size_t boundary_count_ = 0;
  std::size_t stage_count_ = 0;
  std::size_t rank_count_ = 0;
  std::vector<int> replica_of_class_;
  std::vector<int> replicas_;
  std::vector<FlowId> boundaries_;
  std::vector<FlowId> inside_;
  std::vector<FlowId> flush_;
  FlowProgram flows_;
  std::vector<Axis> axis_of_;
  std::vector<LinkClass> link_classes_;
  std::vector<std::uint32_t> class_of_link_;
};

/// What a message over a stage boundary pays ahead of its bytes, where nodes differ.
Seconds boundary_latency(const PreparedStep& step);

}  // namespace flopcast
