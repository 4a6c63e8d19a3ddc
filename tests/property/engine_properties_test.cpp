// Random graphs of tasks, lags and collectives, compared with an evaluator that does not know in which order streams
// are served: it sweeps over all constraints until no start changes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "sim/engine/engine.hpp"
#include "tests/property/generators.hpp"

namespace flopcast {
namespace {

struct Plan {
  Ticks duration = 0;
  int collective = -1;
  std::vector<Dependency> dependencies;
};

// Tasks in an order in which each depends only on earlier ones, distributed over streams.
struct Plans {
  std::vector<std::vector<Plan>> streams;
  std::vector<Ticks> collectives;
};

struct Place {
  StreamId stream;
  std::size_t position;
  Ticks duration;
};

Plans random_plans() {
  Plans plans;
  plans.streams.resize(static_cast<std::size_t>(between(1, 6)));
  std::vector<Place> done;
  const int operations = between(0, 40);
  for (int operation = 0; operation < operations; ++operation) {
    std::vector<StreamId> members;
    const bool shared = plans.streams.size() > 1 &&
                        *rc::gen::weightedOneOf<bool>({{4, rc::gen::just(false)}, {1, rc::gen::just(true)}});
    for (StreamId stream = 0; stream < plans.streams.size(); ++stream) {
      if (shared && *rc::gen::arbitrary<bool>()) members.push_back(stream);
    }
    const int collective = members.empty() ? -1 : static_cast<int>(plans.collectives.size());
    if (members.empty()) members.push_back(static_cast<StreamId>(between<std::size_t>(0, plans.streams.size())));
    const Ticks duration = between(0, 20);
    if (collective >= 0) plans.collectives.push_back(duration);
    std::vector<Place> added;
    for (const StreamId member : members) {
      Plan plan;
      plan.duration = duration;
      plan.collective = collective;
      const int wanted = done.empty() ? 0 : between(0, 4);
      for (int index = 0; index < wanted; ++index) {
        const Place& place = done[between<std::size_t>(0, done.size())];
        const Ticks lag = between<Ticks>(-place.duration, 15);
        plan.dependencies.push_back(Dependency{static_cast<TaskId>(place.position), place.stream, lag});
      }
      added.push_back(Place{member, plans.streams[member].size(), duration});
      plans.streams[member].push_back(plan);
    }
    done.insert(done.end(), added.begin(), added.end());
  }
  return plans;
}

std::vector<TaskId> first_tasks(const Plans& plans) {
  std::vector<TaskId> first = {0};
  for (const auto& stream : plans.streams) first.push_back(first.back() + static_cast<TaskId>(stream.size()));
  return first;
}

TaskGraph graph_of(const Plans& plans) {
  TaskGraph graph;
  const std::vector<TaskId> first = first_tasks(plans);
  for (const Ticks duration : plans.collectives) graph.add_collective(duration);
  for (const auto& stream : plans.streams) {
    graph.begin_stream();
    for (const Plan& plan : stream) {
      std::vector<Dependency> dependencies = plan.dependencies;
      for (Dependency& dependency : dependencies) dependency.task += first[dependency.stream];
      if (plan.collective >= 0) {
        graph.add_part(static_cast<CollectiveId>(plan.collective), dependencies);
      } else if (dependencies.size() > 1) {
        graph.add_task(plan.duration, dependencies);
      } else if (dependencies.size() == 1) {
        graph.add_task(graph.add_cost(plan.duration, dependencies[0].lag), dependencies[0].task,
                       dependencies[0].stream);
      } else {
        graph.add_task(graph.add_cost(plan.duration, 0));
      }
    }
  }
  graph.finish();
  graph.check();
  return graph;
}

// Starts by stream and position, raised until every constraint holds: the least solution.
std::vector<std::vector<Ticks>> earliest_starts(const Plans& plans) {
  std::vector<std::vector<Ticks>> start;
  for (const auto& stream : plans.streams) start.emplace_back(stream.size(), 0);
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<Ticks> together(plans.collectives.size(), 0);
    const auto raise = [&](Ticks& value, Ticks bound) {
      if (value >= bound) return;
      value = bound;
      changed = true;
    };
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t stream = 0; stream < start.size(); ++stream) {
        for (std::size_t position = 0; position < start[stream].size(); ++position) {
          const Plan& plan = plans.streams[stream][position];
          Ticks& value = start[stream][position];
          if (position > 0) raise(value, start[stream][position - 1] + plans.streams[stream][position - 1].duration);
          for (const Dependency& dependency : plan.dependencies) {
            raise(value, start[dependency.stream][dependency.task] +
                             plans.streams[dependency.stream][dependency.task].duration + dependency.lag);
          }
          if (plan.collective < 0) continue;
          Ticks& shared = together[static_cast<std::size_t>(plan.collective)];
          shared = std::max(shared, value);
          raise(value, shared);
        }
      }
    }
  }
  return start;
}

RC_GTEST_PROP(EngineProperties, StartsAreTheLeastThatMeetEveryConstraint, ()) {
  const Plans plans = random_plans();
  const TaskGraph graph = graph_of(plans);
  const EngineResult result = run(graph);
  RC_ASSERT(!result.deadlocked());
  const std::vector<std::vector<Ticks>> expected = earliest_starts(plans);
  TaskId task = 0;
  Ticks makespan = 0;
  for (std::size_t stream = 0; stream < expected.size(); ++stream) {
    for (std::size_t position = 0; position < expected[stream].size(); ++position, ++task) {
      RC_ASSERT(result.start[task] == expected[stream][position]);
      RC_ASSERT(result.end[task] == expected[stream][position] + plans.streams[stream][position].duration);
      makespan = std::max(makespan, result.end[task]);
    }
  }
  RC_ASSERT(result.makespan == makespan);
  RC_TAG(plans.collectives.empty() ? "without collectives" : "with collectives");
}

RC_GTEST_PROP(EngineProperties, ACycleIsReportedAndNeverHangs, ()) {
  // Random dependencies that ignore the order: the engine finishes, or reports blocked streams whose first tasks really
  // wait.
  TaskGraph graph;
  const auto streams = between<StreamId>(1, 5);
  const auto length = between<TaskId>(1, 6);
  const CostId cost = graph.add_cost(1, 0);
  for (StreamId stream = 0; stream < streams; ++stream) {
    graph.begin_stream();
    for (TaskId position = 0; position < length; ++position) {
      const auto on = between<StreamId>(0, streams);
      if (*rc::gen::arbitrary<bool>()) {
        graph.add_task(cost);
      } else {
        graph.add_task(cost, on * length + between<TaskId>(0, length), on);
      }
    }
  }
  graph.finish();
  const EngineResult result = run(graph);
  std::vector<TaskId> head(streams, 0);
  for (StreamId stream = 0; stream < streams; ++stream) head[stream] = graph.first_task(stream + 1);
  for (const BlockedStream& blocked : result.blocked) head[blocked.stream] = blocked.head;
  for (const BlockedStream& blocked : result.blocked) {
    const std::vector<Dependency> dependencies = graph.dependencies_of(blocked.head);
    RC_ASSERT(dependencies.size() == 1U);
    RC_ASSERT(dependencies.front().task == blocked.awaited);
    RC_ASSERT(blocked.awaited >= head[dependencies.front().stream]);
  }
  RC_TAG(result.deadlocked() ? "deadlock" : "runs through");
}

}  // namespace
}  // namespace flopcast
