#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/flow/flow_program.hpp"
#include "sim/program/request.hpp"

namespace flopcast {

/// Work of which each piece takes a time of its own, or as long as its message takes on links that others share. Pieces
/// start at the latest of what they wait for, at 0 where that is nothing; there are no queues but those that such waits
/// make. A message is so many ticks long, its time where nothing slows it down, and travels along a flow of a
/// FlowProgram whose cap is one tick a tick and whose weights are bytes a tick; of one flow one message at a time.
class FlowGraph {
 public:
  using Piece = std::uint32_t;
  static constexpr FlowId kNoFlow = 0xffff'ffffU;

  Piece add_work(Ticks duration) { return add_message(kNoFlow, duration); }
  Piece add_message(FlowId flow, Ticks alone);
  /// `piece` starts no earlier than `lag` after the end of `before`. A lag below 0 is of work alone and at most as long
  /// as that.
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
  /// Pieces that wait for each other, or for such; their times mean nothing.
  std::size_t stuck = 0;
};

/// When everything happens, where messages share the links of `links` max-min fairly. Exact to the tick: a message that
/// nothing slows down takes its time alone.
/// Work is done as far ahead as it can be; messages begin and end in the order of their times, all of one instant at
/// once.
FlowGraphTimes play(const FlowGraph& graph, const FlowProgram& links);

/// The pieces of which each waited for the one before until that ended, from the first to `last`.
std::vector<FlowGraph::Piece> longest_chain(const FlowGraph& graph, const FlowGraphTimes& times, FlowGraph::Piece last);

}  // namespace flopcast
