#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/program/request.hpp"

namespace flopcast {

using TaskId = std::uint32_t;
using StreamId = std::uint32_t;
using CostId = std::uint32_t;
using CollectiveId = std::uint32_t;

/// A constraint on a task's start: the end of `task` plus a lag. The lag may be as low as minus that task's duration,
/// which makes it a start-to-start constraint.
struct Dependency {
  TaskId task = 0;
  StreamId stream = 0;  ///< the stream of `task`
  Ticks lag = 0;
};

/// A duration, and the lag after the task's only dependency.
struct Cost {
  Ticks duration = 0;
  Ticks lag = 0;
};

/// Work for the engine, independent of what it represents. Streams are in-order queues of tasks; a task has a duration
/// and dependencies. A collective is one operation with a part in each of several streams: its parts start together,
/// when each is ready and at the head of its stream, and end together.
///
/// Graphs are built stream by stream; a task may depend on tasks of streams that are added later. The order within a
/// stream needs no dependency. A task with at most one dependency takes 12 bytes; others take 24 more, and 16 per
/// dependency.
class TaskGraph {
 public:
  /// A record for the engine's loop. A task without a dependency names the task and the stream past the last ones,
  /// which end at 0 and are always done.
  struct Task {
    TaskId dependency;  ///< or an index into joins()
    StreamId dependency_stream;
    CostId cost;  ///< or kJoin
  };
  static constexpr CostId kJoin = 0xffff'ffffU;
  static constexpr std::uint32_t kNone = 0xffff'ffffU;

  /// A task with several dependencies, or a part of a collective.
  struct Join {
    std::uint32_t first_dependency;
    std::uint32_t dependency_count;
    CollectiveId collective;  ///< kNone for an ordinary task
    Ticks duration;
  };
  struct Collective {
    Ticks duration;
    std::uint32_t parts;
  };

  void reserve(std::size_t tasks, std::size_t streams);
  /// Empties the graph but keeps its memory.
  void clear();

  /// Starts a new stream, to which the tasks added next belong.
  StreamId begin_stream();
  CostId add_cost(Ticks duration, Ticks lag);
  CollectiveId add_collective(Ticks duration);

  TaskId add_task(CostId cost) { return add_task(cost, kNone, kNone); }
  TaskId add_task(CostId cost, TaskId dependency, StreamId dependency_stream) {
    tasks_.push_back(Task{dependency, dependency_stream, cost});
    return static_cast<TaskId>(tasks_.size() - 1);
  }
  TaskId add_task(Ticks duration, const std::vector<Dependency>& dependencies);
  TaskId add_part(CollectiveId collective, const std::vector<Dependency>& dependencies);

  /// Closes the last stream; the engine requires a finished graph.
  void finish();
  /// Gives every task its own cost, as set_duration requires. Takes 16 more bytes per task.
  void separate_costs();
  /// Requires a finished graph with separate costs; `task` must not be part of a collective. A negative lag after the
  /// task must stay within its duration.
  void set_duration(TaskId task, Ticks duration);
  /// Throws InternalError unless every dependency names its task's stream, durations are >= 0 and every lag is at least
  /// minus the duration of the task it follows. Linear; for tests and new builders.
  void check() const;

  std::uint32_t stream_count() const { return static_cast<std::uint32_t>(first_of_stream_.size() - 1); }
  std::uint32_t task_count() const { return static_cast<std::uint32_t>(tasks_.size()); }
  /// The tasks of a stream are first_task(s) .. first_task(s + 1) - 1.
  TaskId first_task(StreamId stream) const { return first_of_stream_[stream]; }
  const std::vector<Task>& tasks() const { return tasks_; }
  const std::vector<Cost>& costs() const { return costs_; }
  const std::vector<Join>& joins() const { return joins_; }
  const std::vector<Dependency>& join_dependencies() const { return join_dependencies_; }
  const std::vector<Collective>& collectives() const { return collectives_; }

  Ticks duration_of(TaskId task) const;
  /// The dependencies of a task, however they are stored. For tests and reports; not for inner loops.
  std::vector<Dependency> dependencies_of(TaskId task) const;
  /// An upper bound of every start and end; negative if 64 bits might not hold it.
  Ticks horizon_bound() const;
  std::size_t bytes() const;

 private:
  TaskId add_join(Ticks duration, CollectiveId collective, const std::vector<Dependency>& dependencies);

  std::vector<Task> tasks_;
  std::vector<TaskId> first_of_stream_;
  std::vector<Cost> costs_;
  std::vector<Join> joins_;
  std::vector<Dependency> join_dependencies_;
  std::vector<Collective> collectives_;
};

}  // namespace flopcast
