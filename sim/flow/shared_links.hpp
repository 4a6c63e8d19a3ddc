#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/flow/flow_program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// The flows in progress and their rates. The owner of the clock begins flows, removes those that end, and lets the
/// links be shared anew once per instant:
///   end_due(now), begin(flow, now)…, settle(now); then advance to next_end() or to an earlier event of the owner.
///
/// Progressive filling: the link with the smallest share of its remaining capacity per unit of weight freezes its flows
/// at that rate, and so on; shares only grow. Only the links and flows that a change can affect are filled anew: those
/// connected with it, except flows with a rate below the lowest rate that left or could arrive, because up to there
/// filling is the same with and without the change. A flow that is alone on all its links gets its rate at once.
class SharedLinks {
 public:
  static constexpr Ticks kNever = std::numeric_limits<Ticks>::max();

  /// The program must outlive this.
  SharedLinks(const FlowProgram& program, double ticks_per_second);
  SharedLinks(FlowProgram&&, double) = delete;

  /// Begins a flow that has bytes and links and is not in progress. It has a rate after the next settle.
  void begin(FlowId flow, Ticks now) { begin(flow, now, program_.bytes(flow)); }
  /// With a given number of bytes.
  void begin(FlowId flow, Ticks now, double bytes);
  /// The earliest end at the rates of the last settle; kNever if no flow is in progress.
  Ticks next_end();
  /// Removes the flows that have ended by `now` and appends them to `ended`.
  void end_due(Ticks now, std::vector<FlowId>& ended);
  /// Shares the links among the flows now in progress.
  void settle(Ticks now);

  /// In bytes per second, since the last settle.
  double rate(FlowId flow) const { return rate_[flow]; }

 private:
  struct ActiveUse {
    FlowId flow;
    double weight;
    std::size_t use;  // index among the uses of all flows
  };
  using Share = std::pair<double, LinkId>;
  using End = std::pair<Ticks, FlowId>;

  void touch(FlowId flow);
  void settle_alone(Ticks now);
  void settle_touched(Ticks now);
  void weigh_touched();
  void collect();
  void add_reached(LinkId link);
  void fill(Ticks now);
  void freeze(FlowId flow, double rate, Ticks now);
  double rest_share(LinkId link);
  void forecast_ends(Ticks now);
  bool is_stale(const End& end) const { return end_[end.second] != end.first; }

  const FlowProgram& program_;
  double ticks_per_second_;
  // Indexed by link.
  std::vector<std::vector<ActiveUse>> active_;
  std::vector<double> active_weight_;   // of all its flows, as of the last settlement that reached it
  std::vector<double> rest_;            // remaining capacity for flows that are not frozen yet
  std::vector<double> open_weight_;     // of these flows
  std::vector<double> reached_weight_;  // their weight when it was last summed
  std::vector<std::uint32_t> open_uses_;
  std::vector<std::uint32_t> link_reached_;  // the settlement that reached it last
  // Indexed by use.
  std::vector<std::size_t> place_;  // in active_ of its link
  // Indexed by flow.
  std::vector<double> rate_;
  std::vector<double> left_;  // remaining bytes at `since_`
  std::vector<Ticks> since_;
  std::vector<Ticks> end_;
  std::vector<std::uint32_t> flow_reached_;  // the settlement in which it is to be filled anew
  // State of the current instant.
  std::vector<LinkId> touched_;
  std::vector<FlowId> begun_;
  std::vector<FlowId> begun_alone_;  // flows whose links were empty
  double slowest_left_ = FlowProgram::kNoCap;
  // State of the current settlement.
  std::uint32_t settlement_ = 0;
  double lowest_moved_ = 0.0;
  std::vector<LinkId> links_reached_;
  std::vector<FlowId> flows_reached_;
  std::size_t open_flows_ = 0;  // those of flows_reached_ without a rate yet
  std::vector<FlowId> capped_;
  std::vector<FlowId> changed_;
  std::vector<Share> shares_;  // a heap, smallest first
  std::vector<End> ends_;      // a heap, earliest first; an outdated end stays until it reaches the top
  std::size_t under_way_ = 0;
};

}  // namespace flopcast
