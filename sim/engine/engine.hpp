#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/text/error.hpp"
#include "sim/engine/task_graph.hpp"

namespace flopcast {

/// A grow-only array of times that does not initialize its elements.
class TickArray {
 public:
  void resize(std::size_t size);
  std::size_t size() const { return size_; }
  Ticks* data() { return values_.get(); }
  Ticks operator[](std::size_t index) const { return values_[index]; }

 private:
  std::unique_ptr<Ticks[]> values_;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
};

/// A stream that can never continue.
struct BlockedStream {
  StreamId stream = 0;
  TaskId head = 0;  ///< the task it cannot start
  /// A task that the head waits for; the head itself if it is a part of a collective and waits for the other parts.
  TaskId awaited = 0;
};

/// Reusing one result for many graphs saves the allocation of its arrays.
struct EngineResult {
  TickArray start;  ///< indexed by task; undefined from the heads of blocked streams on
  TickArray end;
  Ticks makespan = 0;
  std::vector<BlockedStream> blocked;  ///< not empty if the graph has a cycle

  bool deadlocked() const { return !blocked.empty(); }
};

/// The user's times are so long that a 64-bit tick counter cannot represent the end of the simulation.
class TimeOverflow : public ConfigError {
 public:
  TimeOverflow();
};

/// Computes the earliest start of every task: the latest of the end of its predecessor in the stream and of each
/// dependency's end plus lag, never below 0. A stream runs until its head must wait, registers with the stream it waits
/// for, and is woken once that stream has passed the awaited task; streams without work cost nothing. Time is linear in
/// tasks and dependencies as long as few streams sleep on one stream at a time: a stream scans its sleepers whenever it
/// passes a task that one of them awaits. The earliest starts are unique, so the order in which streams are served does
/// not affect the result.
///
/// A link whose bandwidth several flows share does not fit this loop, because the end of such a flow is not known when
/// it starts: it changes with every flow that joins or leaves. Flows need an event list of their own, ordered by (time,
/// priority with ends before starts, sequence number); a task that waits for a flow registers with it as it would with
/// a stream, and the list advances only when no stream can.
///
/// Throws TimeOverflow; a cycle is reported in `blocked`.
void run(const TaskGraph& graph, EngineResult& result);
[[nodiscard]] EngineResult run(const TaskGraph& graph);

}  // namespace flopcast
