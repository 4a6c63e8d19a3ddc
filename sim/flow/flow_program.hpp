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

/// A link that a flow takes part of: `weight` bytes go through it for each byte of the flow. A flow that uses a link
/// twice has a weight of 2, or two uses.
struct LinkUse {
  LinkId link = 0;
  double weight = 1.0;
};

/// Flows on shared links, free of any meaning. A link carries its capacity in one direction, so a full-duplex cable is
/// two. A flow starts at its own time, or, when it has predecessors, at the latest of their ends whatever its own time,
/// and ends when its bytes are through. A coupled flow (a pipelined ring of n edges, an exchange of all pairs) is one
/// flow whose bytes are those of an edge and whose weights count the edges on each link.
/// Left out: latency (it belongs before the start), packets, slow start, head-of-line blocking, unfairness of round
/// trips.
class FlowProgram {
 public:
  static constexpr double kNoCap = std::numeric_limits<double>::infinity();

  /// `capacity` above 0, in bytes per second.
  LinkId add_link(double capacity);
  /// `bytes` of 0 or more, `start` in seconds, `cap` the highest rate of its own in bytes per second. Without links its
  /// cap is its rate.
  FlowId add_flow(double bytes, double start, double cap = kNoCap);
  /// Something that lasts `seconds` and needs no link.
  FlowId add_delay(double seconds, double start) { return add_flow(seconds, start, 1.0); }
  /// Of the flow added last; a weight above 0.
  void add_use(LinkId link, double weight = 1.0);
  void add_predecessor(FlowId flow);

  std::size_t links() const { return capacity_.size(); }
  std::size_t flows() const { return bytes_.size(); }
  std::size_t uses() const { return uses_.size(); }
  double capacity(LinkId link) const { return capacity_[link]; }
  double bytes(FlowId flow) const { return bytes_[flow]; }
  double start(FlowId flow) const { return start_[flow]; }
  double cap(FlowId flow) const { return cap_[flow]; }
  /// The first of the flow's uses among those of all flows; of the flow past the last one, their number.
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

/// Every flow after its predecessors, in the program's order where that allows it; flows that wait for each other, and
/// what waits for them, are missing.
std::vector<FlowId> in_order(const FlowProgram& program);

/// The end of every flow in seconds, when all flows share their links max-min fairly: no flow's rate could be higher
/// without lowering that of a flow that is no faster (Bertsekas & Gallager, Data Networks, 2nd ed., 6.5.2). Exact but
/// for the clock's whole ticks, to which ends are rounded up, so that flows alike end together: at most 1e-16 of the
/// time that the flows would take one after the other. Flows that are alike stand for each other (refine), where at
/// least half of them have a like. Throws std::invalid_argument when flows wait for each other.
std::vector<double> finish_times(const FlowProgram& program);
/// The same without looking for symmetry.
std::vector<double> finish_times_one_by_one(const FlowProgram& program);

/// A program in which one flow stands for all that are alike, and one link for all links alike.
struct FlowClasses {
  std::vector<std::uint32_t> class_of;       ///< by flow of the whole program, a flow of `program`
  std::vector<std::uint32_t> link_class_of;  ///< by link of the whole program, a link of `program`
  FlowProgram program;
};

/// Colours flows and links until nothing splits: flows alike have the same bytes, start, cap, colours of links with
/// weights, and colours of predecessors; links alike have the same capacity and, for each colour of flows, the same sum
/// of weights. Filling then gives all flows of a class the same rate at every moment, so one of them, using a link as
/// often as its whole class uses one, ends when each of them does in the whole program (Berkholz, Bonsma & Grohe, Tight
/// lower and upper bounds for the complexity of canonical colour refinement, 2017, for the partition). Colours are
/// hashes of 64 bits; the partition that they give is checked.
/// Predecessors may wait for each other in circles: such a program says who is alike, and never ends.
/// Nothing when more than half of the flows have no like.
std::optional<FlowClasses> refine(const FlowProgram& program);

}  // namespace flopcast
