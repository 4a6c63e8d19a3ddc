#include "sim/engine/engine.hpp"

#include <algorithm>

namespace flopcast {

void TickArray::resize(std::size_t size) {
  if (size > capacity_) {
    values_.reset(new Ticks[size]);
    capacity_ = size;
  }
  size_ = size;
}

TimeOverflow::TimeOverflow()
    : ConfigError(Diagnostic{"time", "the times add up to more than the simulated clock can represent (2^63 ticks)", "",
                             "a tick is a picosecond in a job (107 days at most) and 1/63,000,000 of the unit in a "
                             "bare schedule: use shorter times or fewer microbatches"}) {}

namespace {

constexpr std::uint32_t kNone = TaskGraph::kNone;

struct Stream {
  Ticks free_at;            // end of the last task that ran
  TaskId cursor;            // the next task; all before it are done
  TaskId last;              // one past the stream's last task
  TaskId awaited;           // the task that the head waits for while the stream sleeps
  StreamId next_waiter;     // links the streams that sleep on the same stream
  StreamId first_waiter;    // streams that sleep on this one
  TaskId earliest_awaited;  // no waiter needs anything before this task
};
static_assert(sizeof(Stream) == 32, "the streams of a node stay in the nearest cache");

// Dependencies of a join resolved so far.
struct JoinState {
  Ticks ready = 0;
  std::uint32_t resolved = 0;
};

struct CollectiveState {
  Ticks ready = 0;
  std::uint32_t arrived = 0;
};

template <bool kCheckOverflow>
Ticks add(Ticks time, Ticks amount) {
  if constexpr (kCheckOverflow) {
    Ticks sum = 0;
    if (__builtin_add_overflow(time, amount, &sum)) throw TimeOverflow();
    return sum;
  } else {
    return time + amount;
  }
}

template <bool kCheckOverflow>
class Loop {
 public:
  Loop(const TaskGraph& graph, EngineResult& result);
  void run();

 private:
  enum class Outcome { kDone, kWaiting, kCompleted };

  void serve(StreamId id);
  Outcome run_join(StreamId id, Stream& stream, const TaskGraph::Task& task);
  void complete(CollectiveId id);
  void sleep_on(StreamId id, Stream& stream, TaskId awaited, StreamId owner);
  void wake_waiters(Stream& stream);
  void enqueue(StreamId id) {
    queue_[tail_] = id;
    tail_ = tail_ + 1 == queue_.size() ? 0 : tail_ + 1;
    ++queued_;
  }
  void report_blocked();

  const TaskGraph& graph_;
  EngineResult& result_;
  const TaskGraph::Task* tasks_;
  const Cost* costs_;
  Ticks* start_;
  Ticks* end_;
  std::vector<Stream> streams_;
  std::vector<JoinState> joins_;
  std::vector<CollectiveState> collectives_;
  std::vector<std::uint32_t> first_part_;  // indexed by collective: its first entry in parts_
  std::vector<StreamId> parts_;            // streams that have arrived at each collective
  std::vector<StreamId> queue_;            // streams that may be able to run, each at most once
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  std::size_t queued_ = 0;
};

template <bool kCheckOverflow>
Loop<kCheckOverflow>::Loop(const TaskGraph& graph, EngineResult& result)
    : graph_(graph), result_(result), tasks_(graph.tasks().data()), costs_(graph.costs().data()) {
  const StreamId count = graph.stream_count();
  result.start.resize(graph.task_count() + std::size_t{1});
  result.end.resize(graph.task_count() + std::size_t{1});
  result.blocked.clear();
  start_ = result.start.data();
  end_ = result.end.data();
  start_[graph.task_count()] = end_[graph.task_count()] = 0;
  streams_.reserve(count + std::size_t{1});
  for (StreamId id = 0; id < count; ++id) {
    streams_.push_back(Stream{0, graph.first_task(id), graph.first_task(id + 1), 0, kNone, kNone, kNone});
  }
  streams_.push_back(Stream{0, kNone, kNone, 0, kNone, kNone, kNone});
  joins_.resize(graph.joins().size());
  collectives_.resize(graph.collectives().size());
  std::uint32_t parts = 0;
  for (const TaskGraph::Collective& collective : graph.collectives()) {
    first_part_.push_back(parts);
    parts += collective.parts;
  }
  parts_.resize(parts);
  queue_.resize(count);
}

template <bool kCheckOverflow>
void Loop<kCheckOverflow>::run() {
  for (StreamId id = 0; id < graph_.stream_count(); ++id) enqueue(id);
  while (queued_ > 0) {
    const StreamId id = queue_[head_];
    head_ = head_ + 1 == queue_.size() ? 0 : head_ + 1;
    --queued_;
    serve(id);
  }
  result_.makespan = 0;
  for (const Stream& stream : streams_) result_.makespan = std::max(result_.makespan, stream.free_at);
  report_blocked();
}

template <bool kCheckOverflow>
void Loop<kCheckOverflow>::serve(StreamId id) {
  Stream& stream = streams_[id];
  const Stream* const streams = streams_.data();
  const TaskGraph::Task* const tasks = tasks_;
  const Cost* const costs = costs_;
  Ticks* const starts = start_;
  Ticks* const ends = end_;
  const TaskId last = stream.last;
  Ticks free_at = stream.free_at;
  TaskId cursor = stream.cursor;
  while (cursor < last) {
    const TaskGraph::Task task = tasks[cursor];
    if (task.cost == TaskGraph::kJoin) {
      stream.free_at = free_at;
      stream.cursor = cursor;
      if (run_join(id, stream, task) == Outcome::kWaiting) break;
      free_at = stream.free_at;
      cursor = stream.cursor;
      continue;
    }
    if (task.dependency >= streams[task.dependency_stream].cursor &&
        (task.dependency_stream != id || task.dependency >= cursor)) {
      stream.free_at = free_at;
      stream.cursor = cursor;
      sleep_on(id, stream, task.dependency, task.dependency_stream);
      break;
    }
    const Cost cost = costs[task.cost];
    const Ticks start = std::max(free_at, add<kCheckOverflow>(ends[task.dependency], cost.lag));
    free_at = add<kCheckOverflow>(start, cost.duration);
    starts[cursor] = start;
    ends[cursor] = free_at;
    ++cursor;
  }
  stream.free_at = free_at;
  stream.cursor = cursor;
  if (stream.earliest_awaited < cursor) wake_waiters(stream);
}

// A join remembers the dependencies it has resolved, so that its cost is linear in their number.
template <bool kCheckOverflow>
typename Loop<kCheckOverflow>::Outcome Loop<kCheckOverflow>::run_join(StreamId id, Stream& stream,
                                                                      const TaskGraph::Task& task) {
  const TaskGraph::Join& join = graph_.joins()[task.dependency];
  JoinState& state = joins_[task.dependency];
  while (state.resolved < join.dependency_count) {
    const Dependency& dependency = graph_.join_dependencies()[join.first_dependency + state.resolved];
    if (dependency.task >= streams_[dependency.stream].cursor) {
      sleep_on(id, stream, dependency.task, dependency.stream);
      return Outcome::kWaiting;
    }
    state.ready = std::max(state.ready, add<kCheckOverflow>(end_[dependency.task], dependency.lag));
    ++state.resolved;
  }
  const Ticks ready = std::max(stream.free_at, state.ready);
  if (join.collective == kNone) {
    start_[stream.cursor] = ready;
    end_[stream.cursor] = stream.free_at = add<kCheckOverflow>(ready, join.duration);
    ++stream.cursor;
    return Outcome::kDone;
  }
  CollectiveState& collective = collectives_[join.collective];
  collective.ready = std::max(collective.ready, ready);
  parts_[first_part_[join.collective] + collective.arrived] = id;
  if (++collective.arrived < graph_.collectives()[join.collective].parts) {
    stream.awaited = stream.cursor;
    return Outcome::kWaiting;
  }
  complete(join.collective);
  return Outcome::kCompleted;
}

// Runs all parts of a collective. The stream that arrived last continues at once; the others are queued.
template <bool kCheckOverflow>
void Loop<kCheckOverflow>::complete(CollectiveId id) {
  const std::uint32_t parts = graph_.collectives()[id].parts;
  const Ticks start = collectives_[id].ready;
  const Ticks end = add<kCheckOverflow>(start, graph_.collectives()[id].duration);
  for (std::uint32_t part = 0; part < parts; ++part) {
    const StreamId member = parts_[first_part_[id] + part];
    Stream& stream = streams_[member];
    start_[stream.cursor] = start;
    end_[stream.cursor] = stream.free_at = end;
    ++stream.cursor;
    if (part + 1 < parts) enqueue(member);
  }
}

template <bool kCheckOverflow>
void Loop<kCheckOverflow>::sleep_on(StreamId id, Stream& stream, TaskId awaited, StreamId owner_id) {
  Stream& owner = streams_[owner_id];
  stream.awaited = awaited;
  stream.next_waiter = owner.first_waiter;
  owner.first_waiter = id;
  owner.earliest_awaited = std::min(owner.earliest_awaited, awaited);
}

template <bool kCheckOverflow>
void Loop<kCheckOverflow>::wake_waiters(Stream& stream) {
  StreamId id = stream.first_waiter;
  stream.first_waiter = kNone;
  stream.earliest_awaited = kNone;
  while (id != kNone) {
    Stream& waiter = streams_[id];
    const StreamId next = waiter.next_waiter;
    if (waiter.awaited < stream.cursor) {
      enqueue(id);
    } else {
      waiter.next_waiter = stream.first_waiter;
      stream.first_waiter = id;
      stream.earliest_awaited = std::min(stream.earliest_awaited, waiter.awaited);
    }
    id = next;
  }
}

template <bool kCheckOverflow>
void Loop<kCheckOverflow>::report_blocked() {
  for (StreamId id = 0; id < graph_.stream_count(); ++id) {
    const Stream& stream = streams_[id];
    if (stream.cursor < stream.last) result_.blocked.push_back(BlockedStream{id, stream.cursor, stream.awaited});
  }
}

}  // namespace

void run(const TaskGraph& graph, EngineResult& result) {
  if (graph.horizon_bound() >= 0) {
    Loop<false>(graph, result).run();
  } else {
    Loop<true>(graph, result).run();
  }
}

EngineResult run(const TaskGraph& graph) {
  EngineResult result;
  run(graph, result);
  return result;
}

}  // namespace flopcast
