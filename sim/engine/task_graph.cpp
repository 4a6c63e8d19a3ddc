#include "sim/engine/task_graph.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

void TaskGraph::reserve(std::size_t tasks, std::size_t streams) {
  tasks_.reserve(tasks);
  first_of_stream_.reserve(streams + 1);
}

void TaskGraph::clear() {
  tasks_.clear();
  first_of_stream_.clear();
  costs_.clear();
  joins_.clear();
  join_dependencies_.clear();
  collectives_.clear();
}

StreamId TaskGraph::begin_stream() {
  first_of_stream_.push_back(task_count());
  return static_cast<StreamId>(first_of_stream_.size() - 1);
}

CostId TaskGraph::add_cost(Ticks duration, Ticks lag) {
  costs_.push_back(Cost{duration, lag});
  return static_cast<CostId>(costs_.size() - 1);
}

CollectiveId TaskGraph::add_collective(Ticks duration) {
  collectives_.push_back(Collective{duration, 0});
  return static_cast<CollectiveId>(collectives_.size() - 1);
}

TaskId TaskGraph::add_join(Ticks duration, CollectiveId collective, const std::vector<Dependency>& dependencies) {
  joins_.push_back(Join{static_cast<std::uint32_t>(join_dependencies_.size()),
                        static_cast<std::uint32_t>(dependencies.size()), collective, duration});
  join_dependencies_.insert(join_dependencies_.end(), dependencies.begin(), dependencies.end());
  return add_task(kJoin, static_cast<TaskId>(joins_.size() - 1), kNone);
}

TaskId TaskGraph::add_task(Ticks duration, const std::vector<Dependency>& dependencies) {
  return add_join(duration, kNone, dependencies);
}

TaskId TaskGraph::add_part(CollectiveId collective, const std::vector<Dependency>& dependencies) {
  Collective& shared = collectives_.at(collective);
  ++shared.parts;
  return add_join(shared.duration, collective, dependencies);
}

void TaskGraph::finish() {
  FLOPCAST_CHECK(tasks_.size() < kNone && joins_.size() < kNone && join_dependencies_.size() < kNone);
  const StreamId streams = static_cast<StreamId>(first_of_stream_.size());
  first_of_stream_.push_back(task_count());
  for (Task& task : tasks_) {
    if (task.dependency_stream != kNone || task.cost == kJoin) continue;
    task.dependency = task_count();
    task.dependency_stream = streams;
  }
}

void TaskGraph::separate_costs() {
  std::vector<Cost> costs;
  costs.reserve(tasks_.size());
  for (Task& task : tasks_) {
    if (task.cost == kJoin) continue;
    costs.push_back(costs_[task.cost]);
    task.cost = static_cast<CostId>(costs.size() - 1);
  }
  costs_ = std::move(costs);
}

void TaskGraph::set_duration(TaskId task, Ticks duration) {
  const Task& record = tasks_[task];
  if (record.cost == kJoin) {
    joins_[record.dependency].duration = duration;
  } else {
    costs_[record.cost].duration = duration;
  }
}

Ticks TaskGraph::duration_of(TaskId task) const {
  const Task& record = tasks_.at(task);
  return record.cost == kJoin ? joins_[record.dependency].duration : costs_[record.cost].duration;
}

std::vector<Dependency> TaskGraph::dependencies_of(TaskId task) const {
  const Task& record = tasks_.at(task);
  if (record.cost != kJoin) {
    if (record.dependency == task_count()) return {};
    return {Dependency{record.dependency, record.dependency_stream, costs_[record.cost].lag}};
  }
  const Join& join = joins_[record.dependency];
  const auto begin = join_dependencies_.begin() + join.first_dependency;
  return std::vector<Dependency>(begin, begin + join.dependency_count);
}

void TaskGraph::check() const {
  FLOPCAST_CHECK(!first_of_stream_.empty() && first_of_stream_.back() == task_count());
  for (TaskId task = 0; task < task_count(); ++task) {
    FLOPCAST_CHECK(duration_of(task) >= 0);
    for (const Dependency& dependency : dependencies_of(task)) {
      FLOPCAST_CHECK(dependency.task < task_count() && dependency.stream < stream_count());
      FLOPCAST_CHECK(first_task(dependency.stream) <= dependency.task);
      FLOPCAST_CHECK(dependency.task < first_task(dependency.stream + 1));
      FLOPCAST_CHECK(dependency.lag >= -duration_of(dependency.task));
    }
  }
}

// No start or end exceeds the sum over all tasks of the longest duration plus the longest lag.
Ticks TaskGraph::horizon_bound() const {
  Ticks duration = 0;
  Ticks lag = 0;
  for (const Cost& cost : costs_) {
    duration = std::max(duration, cost.duration);
    lag = std::max(lag, cost.lag);
  }
  for (const Join& join : joins_) duration = std::max(duration, join.duration);
  for (const Dependency& dependency : join_dependencies_) lag = std::max(lag, dependency.lag);
  constexpr Ticks kLimit = std::numeric_limits<Ticks>::max();
  const Ticks tasks = static_cast<Ticks>(task_count()) + 1;
  if (duration > kLimit / 2 / tasks || lag > kLimit / 2 / tasks) return -1;
  return tasks * (duration + lag);
}

std::size_t TaskGraph::bytes() const {
  return tasks_.capacity() * sizeof(Task) + first_of_stream_.capacity() * sizeof(TaskId) +
         costs_.capacity() * sizeof(Cost) + joins_.capacity() * sizeof(Join) +
         join_dependencies_.capacity() * sizeof(Dependency) + collectives_.capacity() * sizeof(Collective);
}

}  // namespace flopcast
