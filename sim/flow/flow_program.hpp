#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace flopcast {

using LinkId = std::uint32_t;
using FlowId = std::uint32_t;

/// A flow's use of a link: `weight` bytes go through the link for each byte of the flow. A flow that uses a link twice
/// has a weight of 2, or two uses.
struct LinkUse {
  LinkId link = 0;
  double weight = 1.0;
};

/// Flows on shared links, independent of what they represent. A link carries its capacity in one direction, so a
/// full-duplex cable is two. A flow starts at its own time or, if it has predecessors, at the latest of their ends
/// regardless of its own time, and ends when its bytes have been sent. A coupled flow (a pipelined ring of n edges, an
/// exchange of all pairs) is one flow with the bytes of one edge and weights that count the edges on each link.
/// Left out: latency (add it before the start), packets, slow start, head-of-line blocking, unfairness due to
/// round-trip times.
class FlowProgram {
 public:
  static constexpr double kNoCap = std::numeric_limits<double>::infinity();

  /// `capacity` must be positive, in bytes per second.
  LinkId add_link(double capacity);
  /// `bytes` must be 0 or more; `start` is in seconds, `cap` the flow's highest rate in bytes per second. Without links
  /// the flow runs at its cap.
  FlowId add_flow(double bytes, double start, double cap = kNoCap);
  /// Adds a delay of `seconds`, which needs no link.
  FlowId add_delay(double seconds, double start) { return add_flow(seconds, start, 1.0); }
  /// For the flow added last; the weight must be positive.
  void add_use(LinkId link, double weight = 1.0);
  void add_predecessor(FlowId flow);

  std::size_t links() const { return capacity_.size(); }
  std::size_t flows() const { return bytes_.size(); }
  std::size_t uses() const { return uses_.size(); }
  double capacity(LinkId link) const { return capacity_[link]; }
  double bytes(FlowId flow) const { return bytes_[flow]; }
  double start(FlowId flow) const { return start_[flow]; }
  double cap(FlowId flow) const { return cap_[flow]; }
  /// Index of the flow's first use among the uses of all flows; for the flow past the last one, their number.
  std::size_t first_use(FlowId flow) const { return first_use_[flow]; }
  std::span<const LinkUse> uses_of(FlowId flow) const {
    return {uses_.data() + first_use_[flow], uses_.data() + first_use_[flow + 1]};
  }
  std::span<const FlowId> predecessors_of(FlowId flow) const {
    return {predecessors_.data() + first_predecessor_[flow], predecessors_.data() + first_predecessor_[flow + 1]};
  }
  std::size_t predecessors() const { return predecessors_.size(); }

 private:
  std::vector<double> capacity_;
  std::vector<double> bytes_;
  std::vector<double> start_;
  std::vector<double> cap_;
  std::vector<std::size_t> first_use_ = {0};
  std::vector<LinkUse> uses_;
  std::vector<std::size_t> first_predecessor_ = {0};
  std::vector<FlowId> predecessors_;
};

/// Every flow after its predecessors, in the program's order where possible; flows that wait for each other, and flows
/// that wait for those, are missing.
std::vector<FlowId> in_order(const FlowProgram& program);

/// The end of every flow in seconds if all flows share their links max-min fairly: no flow's rate could be higher
/// without lowering that of a flow at most as fast (Bertsekas & Gallager, Data Networks, 2nd ed., 6.5.2). Exact
/// except that ends are rounded up to whole clock ticks, so that identical flows end together: at most 1e-16 of the
/// time that the flows would take one after the other. If at least half of the flows have equivalents, one flow
/// represents all its equivalents (refine). Throws std::invalid_argument if flows wait for each other.
std::vector<double> finish_times(const FlowProgram& program);
/// Same, without using symmetry.
std::vector<double> finish_times_one_by_one(const FlowProgram& program);

/// A program in which one flow represents all equivalent flows, and one link all equivalent links.
struct FlowClasses {
  std::vector<std::uint32_t> class_of;       ///< for each flow of the whole program, a flow of `program`
  std::vector<std::uint32_t> link_class_of;  ///< for each link of the whole program, a link of `program`
  FlowProgram program;
};

/// Colours flows and links until no class splits any further: equivalent flows have the same bytes, start, cap, colours
/// of links with weights, and colours of predecessors; equivalent links have the same capacity and, for each colour of
/// flows, the same sum of weights. Filling then gives all flows of a class the same rate at every moment, so one of
/// them, using a link as often as its whole class does, ends when each of them ends in the whole program (Berkholz,
/// Bonsma & Grohe, Tight lower and upper bounds for the complexity of canonical colour refinement, 2017, for the
/// partition). Colours are 64-bit hashes; the resulting partition is checked. Predecessors may form cycles: such a
/// program shows which flows are equivalent, but never ends. Returns nullopt if more than half of the flows have no
/// equivalent.
std::optional<FlowClasses> refine(const FlowProgram& program);

}  // namespace flopcast
