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

/// What a task waits for: the task's end plus a lag. The lag may be negative down to minus that task's duration, which
/// makes it a start-to-start constraint.
struct Dependency {
  TaskId task = 0;
  StreamId stream = 0;  ///< the stream of `task`
  Ticks lag = 0;
};

/// A duration, and the lag after the task's one dependency.
struct Cost {
  Ticks duration = 0;
  Ticks lag = 0;
};

/// Work for the engine, free of any meaning: streams are in-order queues of tasks, a task has a duration and
/// dependencies, and a collective is one operation with a part in each of several streams: its parts start together,
/// when each is ready and at the head of its stream, and end together.
///
/// Built stream by stream; a task may depend on tasks of streams that are added later. The order within a stream needs
/// no dependency. 12 bytes per task with at most one dependency, 24 more and 16 per dependency for the others.
class TaskGraph {
 public:
  /// One record for the engine's loop. Without a dependency it names the task past the last one and the stream past the
  /// last one, which end at 0 and are always done.
  struct Task {
    TaskId dependency;  ///< or the index into joins()
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
  /// Back to an empty graph, keeping the memory.
  void clear();

  /// The tasks added from here on belong to a new stream.
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

  /// Closes the last stream; the engine takes finished graphs only.
  void finish();
  /// Gives every task a cost of its own, for set_duration. 16 more bytes per task.
  void separate_costs();
  /// Of a task of a finished graph with separate costs that is no part of a collective. A negative lag that someone
  /// has after the task must stay within its duration.
  void set_duration(TaskId task, Ticks duration);
  /// Throws InternalError unless every dependency names its task's stream, durations are >= 0 and every lag is at least
  /// minus the duration of the task it follows. Linear; for tests and for new builders.
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
  /// An upper bound of every start and end; negative when 64 bits might not hold it.
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
