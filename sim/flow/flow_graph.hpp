#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/flow/flow_program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// A graph of pieces of work, each of which takes either a fixed time or the time of its message on shared links. A
/// piece starts at the latest of the events that it waits for, or at 0 if there are none; only such waits form queues.
/// The size of a message is its time in ticks if nothing slows it down. It travels along a flow of a FlowProgram whose
/// cap is one tick per tick and whose weights are bytes per tick; a flow carries one message at a time.
class FlowGraph {
 public:
  using Piece = std::uint32_t;
  static constexpr FlowId kNoFlow = 0xffff'ffffU;

  Piece add_work(Ticks duration) { return add_message(kNoFlow, duration); }
  Piece add_message(FlowId flow, Ticks alone);
  /// `piece` starts no earlier than `lag` after the end of `before`. A negative lag is allowed after work only, and is
  /// at most as long as that work.
  void wait(Piece piece, Piece before, Ticks lag = 0) { waits_.push_back({piece, before, lag}); }

  std::size_t size() const { return alone_.size(); }
  FlowId flow(Piece piece) const { return flow_[piece]; }
  Ticks alone(Piece piece) const { return alone_[piece]; }

  struct Wait {
    Piece piece;
    Piece before;
    Ticks lag;
  };
  const std::vector<Wait>& waits() const { return waits_; }

 private:
  std::vector<FlowId> flow_;
  std::vector<Ticks> alone_;
  std::vector<Wait> waits_;
};

struct FlowGraphTimes {
  std::vector<Ticks> start;
  std::vector<Ticks> end;
  Ticks makespan = 0;
  /// Number of pieces that wait for each other, directly or indirectly; their times are undefined.
  std::size_t stuck = 0;
};

/// Computes all times, with messages sharing the links of `links` max-min fairly. Exact to the tick: a message that
/// nothing slows down takes its time alone. Work is done as far ahead as possible; messages begin and end in the order
/// of their times, all of one instant at once.
FlowGraphTimes play(const FlowGraph& graph, const FlowProgram& links);

/// The chain of pieces from the first to `last`, each of which waited until the one before ended.
std::vector<FlowGraph::Piece> longest_chain(const FlowGraph& graph, const FlowGraphTimes& times, FlowGraph::Piece last);

}  // namespace flopcast
