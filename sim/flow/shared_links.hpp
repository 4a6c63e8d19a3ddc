#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "sim/flow/flow_program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// The flows under way and their rates. Whoever holds the clock tells which flows begin, takes out those that end, and
/// has the links shared anew once an instant:
///   end_due(now), begin(flow, now)…, settle(now); then on to next_end(), or to an earlier event of one's own.
///
/// Progressive filling: the link with the least share of what is left for each unit of weight freezes its flows at that
/// rate, and so on; shares only grow. Only what a change can reach is filled anew: the links and flows connected with
/// it, without the flows whose rate is below the least one that left or could come, because up to there filling is the
/// same with the change and without it. A flow that is alone on all its links has its rate at once.
class SharedLinks {
 public:
  static constexpr Ticks kNever = std::numeric_limits<Ticks>::max();

  /// The program must outlive this.
  SharedLinks(const FlowProgram& program, double ticks_per_second);
  SharedLinks(FlowProgram&&, double) = delete;

  /// A flow with bytes and links that is not under way. It has a rate from settle on.
  void begin(FlowId flow, Ticks now) { begin(flow, now, program_.bytes(flow)); }
  /// With bytes of its own.
  void begin(FlowId flow, Ticks now, double bytes);
  /// The earliest end at the rates of the last settle; kNever when nothing is under way.
  Ticks next_end();
  /// Takes out the flows that have ended by `now` and appends them to `ended`.
  void end_due(Ticks now, std::vector<FlowId>& ended);
  /// Shares the links among the flows that are there now.
  void settle(Ticks now);

  /// Bytes per second since the last settle.
  double rate(FlowId flow) const { return rate_[flow]; }

 private:
  struct ActiveUse {
    FlowId flow;
    double weight;
    std::size_t use;  // among those of all flows
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
  // By link.
  std::vector<std::vector<ActiveUse>> active_;
  std::vector<double> active_weight_;   // of all its flows, as of the settlement that reached it
  std::vector<double> rest_;            // of its capacity, for the flows that are not yet frozen
  std::vector<double> open_weight_;     // of these flows
  std::vector<double> reached_weight_;  // of them when they were added up last
  std::vector<std::uint32_t> open_uses_;
  std::vector<std::uint32_t> link_reached_;  // in which settlement
  // By use.
  std::vector<std::size_t> place_;  // in active_ of its link
  // By flow.
  std::vector<double> rate_;
  std::vector<double> left_;  // bytes at `since_`
  std::vector<Ticks> since_;
  std::vector<Ticks> end_;
  std::vector<std::uint32_t> flow_reached_;  // in which settlement it is to be filled anew
  // Of this instant.
  std::vector<LinkId> touched_;
  std::vector<FlowId> begun_;
  std::vector<FlowId> begun_alone_;  // whose links were empty
  double slowest_left_ = FlowProgram::kNoCap;
  // Of this settlement.
  std::uint32_t settlement_ = 0;
  double lowest_moved_ = 0.0;
  std::vector<LinkId> links_reached_;
  std::vector<FlowId> flows_reached_;
  std::size_t open_flows_ = 0;  // of these, without a rate yet
  std::vector<FlowId> capped_;
  std::vector<FlowId> changed_;
  std::vector<Share> shares_;  // a heap, least first
  std::vector<End> ends_;      // a heap, earliest first; an end that a flow has no longer stays until it comes up
  std::size_t under_way_ = 0;
};

}  // namespace flopcast
