#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/hardware/network_fabric.hpp"
#include "model/layout/layout.hpp"
#include "sim/flow/flow_program.hpp"
#include "sim/forecast/prepare.hpp"

namespace flopcast {

/// Traffic of a step's messages on the links between nodes.
///
/// A replica is a data-parallel index: its tensor- and context-parallel ranks act together, so their simultaneous
/// messages are one coupled flow, with one rate and a weight for each link. Flows, for each pipeline rank or stage:
///   boundary  activations or gradients of a stage boundary, of one replica
///   tp, cp    of one replica: rings of its ranks (all pairs for Ulysses)
///   ep        all pairs of each group of expert-parallel ranks, with the replicas that it spans
///   dp        of all replicas: rings over the ranks that hold the same weights, or the algorithm that the cost model
///             found fastest (CommunicationModel::way)
/// Weights are bytes per picosecond of the time that the message takes alone, which is its price: with all its links to
/// itself it takes exactly that. Bytes per node edge, for n ranks and S bytes: in a ring, 2(n-1)/n · S for an
/// all-reduce and (n-1)/n · S for a gather or a scatter, in equal parts over the cards next to the group's ranks; in a
/// pair of trees, S/2 up and S/2 down each edge of both (Sanders, Speck & Träff, Two-tree algorithms for full bandwidth
/// broadcast, reduction and scan, 2009, numbered as in NCCL's trees.cc); to reducing switches, S over each link once,
/// up and down; between all pairs, a rank's sent bytes over n-1 for each pair, on the receiver's rail if rails are
/// kept.
///
/// A card carries at least the demand of one kind of message at its price, because prices have already divided its
/// rate. Links that all flows together cannot fill are left out, and a flow without links slows no other. Replicas that
/// have equivalent flows form a class (sim/flow/flow_program.hpp), represented by its first replica.
/// Left out: NVLink, which no two axes of a job share at once; the gradient norm and tied embeddings. Gradients of
/// experts travel like all others; expert kernels that send a token once per node (DeepEP) count as all pairs.
class Wiring {
 public:
  static constexpr FlowId kNone = 0xffff'ffffU;

  Wiring(const PreparedStep& step, const NetworkFabric& fabric);

  /// Number of classes of replicas.
  std::size_t classes() const { return replica_of_class_.size(); }
  /// The first replica of a class, and the number of its replicas.
  int replica_of(std::size_t of_class) const { return replica_of_class_[of_class]; }
  int replicas_of(std::size_t of_class) const { return replicas_[of_class]; }

  /// Flows of a class's replicas. Several classes may share one; kNone if nothing is sent between nodes.
  FlowId boundary(std::size_t of_class, std::size_t boundary, bool forward) const {
    return boundaries_[(of_class * boundary_count_ + boundary) * 2 + (forward ? 0 : 1)];
  }
  FlowId inside_pass(std::size_t of_class, std::size_t stage, Axis axis) const {
    return inside_[(of_class * stage_count_ + stage) * kAxisCount + static_cast<std::size_t>(axis)];
  }
  /// Flow of the data-parallel messages after a rank's passes, or overlapping them in buckets. Always exists.
  FlowId replicas(std::size_t of_class, std::size_t rank) const { return flush_[of_class * rank_count_ + rank]; }

  /// The flows of all classes, in bytes per picosecond.
  const FlowProgram& flows() const { return flows_; }
  bool has_links(FlowId flow) const { return flow != kNone && !flows_.uses_of(flow).empty(); }
  Axis axis_of(FlowId flow) const { return axis_of_[flow]; }

  /// The links of a class are equivalent: the first of them in the fabric, and their number.
  struct LinkClass {
    std::uint32_t first = 0;
    int links = 0;
  };
  const std::vector<LinkClass>& link_classes() const { return link_classes_; }
  /// Class of each link of the fabric; kNone if the link cannot be full.
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

/// Latency that a message over a stage boundary pays ahead of its bytes, if it crosses nodes.
Seconds boundary_latency(const PreparedStep& step);

}  // namespace flopcast
