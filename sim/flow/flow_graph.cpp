#include "sim/flow/flow_graph.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "base/text/error.hpp"
#include "sim/flow/shared_links.hpp"

namespace flopcast {

FlowGraph::Piece FlowGraph::add_message(FlowId flow, Ticks alone) {
  flow_.push_back(flow);
  alone_.push_back(alone);
  return static_cast<Piece>(alone_.size() - 1);
}

namespace {

class GraphPlayer {
 public:
  GraphPlayer(const FlowGraph& graph, const FlowProgram& links)
      : graph_(graph), links_(links, 1.0), travels_(links.flows(), 0), missing_(graph.size(), 0) {
    times_.start.assign(graph.size(), 0);
    times_.end.assign(graph.size(), 0);
    index_waiters();
  }

  FlowGraphTimes play() {
    for (FlowGraph::Piece piece = 0; piece < graph_.size(); ++piece) {
      if (missing_[piece] == 0) ready_.push_back(piece);
    }
    std::vector<FlowId> ended;
    for (;;) {
      work_ahead();
      const Ticks begins = begins_.empty() ? SharedLinks::kNever : begins_.top().first;
      const Ticks now = std::min(begins, links_.next_end());
      if (now == SharedLinks::kNever) break;
      ended.clear();
      links_.end_due(now, ended);
      for (const FlowId flow : ended) finish(travels_[flow], now);
      work_ahead();
      for (; !begins_.empty() && begins_.top().first <= now; begins_.pop()) {
        const FlowGraph::Piece piece = begins_.top().second;
        travels_[graph_.flow(piece)] = piece;
        links_.begin(graph_.flow(piece), now, static_cast<double>(graph_.alone(piece)));
      }
      links_.settle(now);
    }
    times_.stuck = graph_.size() - done_;
    return std::move(times_);
  }

 private:
  void index_waiters() {
    first_waiter_.assign(graph_.size() + 1, 0);
    for (const FlowGraph::Wait& wait : graph_.waits()) ++first_waiter_[wait.before + 1];
    for (std::size_t piece = 0; piece < graph_.size(); ++piece) first_waiter_[piece + 1] += first_waiter_[piece];
    waiters_.resize(graph_.waits().size());
    std::vector<std::size_t> next(first_waiter_.begin(), first_waiter_.end() - 1);
    for (const FlowGraph::Wait& wait : graph_.waits()) {
      waiters_[next[wait.before]++] = {wait.piece, wait.lag};
      ++missing_[wait.piece];
    }
  }

  // Finishes work as early as possible; messages are queued with the time at which they begin.
  void work_ahead() {
    while (!ready_.empty()) {
      const FlowGraph::Piece piece = ready_.back();
      ready_.pop_back();
      const Ticks alone = graph_.alone(piece);
      if (graph_.flow(piece) == FlowGraph::kNoFlow || alone == 0) {
        Ticks end = 0;
        if (__builtin_add_overflow(times_.start[piece], alone, &end)) {
          throw ConfigError({"time", "the times add up to more than the simulated clock can represent (2^63 ticks)", "",
                             "a tick is a picosecond, so a step can last at most 107 days"});
        }
        finish(piece, end);
      } else {
        begins_.emplace(times_.start[piece], piece);
      }
    }
  }

  void finish(FlowGraph::Piece piece, Ticks end) {
    times_.end[piece] = end;
    times_.makespan = std::max(times_.makespan, end);
    ++done_;
    for (std::size_t index = first_waiter_[piece]; index < first_waiter_[piece + 1]; ++index) {
      const Waiter& waiter = waiters_[index];
      Ticks& start = times_.start[waiter.piece];
      start = std::max(start, end + waiter.lag);
      if (--missing_[waiter.piece] == 0) ready_.push_back(waiter.piece);
    }
  }

  struct Waiter {
    FlowGraph::Piece piece;
    Ticks lag;
  };
  using Begin = std::pair<Ticks, FlowGraph::Piece>;

  const FlowGraph& graph_;
  SharedLinks links_;
  std::vector<FlowGraph::Piece> travels_;  // indexed by flow
  std::vector<std::uint32_t> missing_;     // indexed by piece: number of events it is still waiting for
  std::vector<std::size_t> first_waiter_;
  std::vector<Waiter> waiters_;
  std::vector<FlowGraph::Piece> ready_;
  std::priority_queue<Begin, std::vector<Begin>, std::greater<>> begins_;
  FlowGraphTimes times_;
  std::size_t done_ = 0;
};

}  // namespace

FlowGraphTimes play(const FlowGraph& graph, const FlowProgram& links) {
  return GraphPlayer(graph, links).play();
}

std::vector<FlowGraph::Piece> longest_chain(const FlowGraph& graph, const FlowGraphTimes& times,
                                            FlowGraph::Piece last) {
  // Indexed by piece: the first of the pieces whose end determined its start.
  constexpr FlowGraph::Piece kNone = FlowGraph::kNoFlow;
  std::vector<FlowGraph::Piece> awaited(graph.size(), kNone);
  for (const FlowGraph::Wait& wait : graph.waits()) {
    const bool last_one = times.end[wait.before] + wait.lag == times.start[wait.piece];
    if (last_one && awaited[wait.piece] == kNone) awaited[wait.piece] = wait.before;
  }
  std::vector<FlowGraph::Piece> chain;
  for (FlowGraph::Piece piece = last; piece != kNone; piece = awaited[piece]) chain.push_back(piece);
  std::reverse(chain.begin(), chain.end());
  return chain;
}

}  // namespace flopcast
