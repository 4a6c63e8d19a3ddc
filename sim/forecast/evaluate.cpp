#include "sim/forecast/evaluate.hpp"

#include <algorithm>
#include <utility>

#include "base/text/error.hpp"
#include "sim/forecast/memory.hpp"
#include "sim/lower/lower.hpp"

namespace flopcast {

namespace {

// Simulates a program with the step's times.
class Play {
 public:
  explicit Play(PlayBuffers& buffers) : lowered_(buffers.lowered), result_(buffers.result) {}

  Ticks makespan(const PreparedStep& step, const Program& program) {
    lower(program, step.times, lowered_);
    run(lowered_.graph, result_);
    // Reported by make_timeline, which names the actions that wait for each other.
    if (result_.deadlocked()) make_timeline(program, step.times, lowered_, result_);
    return result_.makespan;
  }

  /// The step repeats if all results that later actions may wait for, and the ends of all ranks, come a fixed time
  /// later than a number of blocks before.
  struct Repeats {
    int blocks = 0;
    Ticks time = 0;
  };
  std::optional<Repeats> repeats(const Program& program, const OrderPeriod& order) {
    find_tasks(program, order);
    for (int blocks = 1; blocks + order.reach <= order.blocks; ++blocks) {
      if (const std::optional<Ticks> time = shift_of(blocks, order.reach)) return Repeats{blocks, *time};
    }
    return std::nullopt;
  }

 private:
  // Position in a rank's compute stream: one past the last task before the cut, and the tasks of one block.
  struct Cut {
    TaskId end = 0;
    TaskId block = 0;
  };

  void find_tasks(const Program& program, const OrderPeriod& order) {
    cuts_.clear();
    for (StreamId stream = 0; stream < lowered_.graph.stream_count(); ++stream) {
      if (lowered_.streams[stream].kind != StreamKind::kCompute) continue;
      const auto rank = static_cast<std::size_t>(lowered_.streams[stream].rank);
      const TaskId first = lowered_.graph.first_task(stream);
      const TaskId block = tasks_of(program.ranks[rank], first, order.cut[rank] - order.length[rank]);
      const TaskId end = tasks_of(program.ranks[rank], first, order.cut[rank]);
      cuts_.push_back({first + end, end - block});
    }
  }

  // Number of tasks of the first `count` actions of a stream: a pair is one task, and each send is another.
  TaskId tasks_of(const std::vector<Action>& actions, TaskId first, std::size_t count) const {
    TaskId task = first;
    for (std::size_t index = 0; index < count; ++task) {
      if (lowered_.labels[task].kind == SpanKind::kSend) continue;
      index += actions[index].overlaps_next && index + 1 < actions.size() ? 2 : 1;
    }
    while (task < lowered_.labels.size() && lowered_.labels[task].kind == SpanKind::kSend) ++task;
    return task - first;
  }

  std::optional<Ticks> shift_of(int blocks, int reach) const {
    const Cut& front = cuts_.front();
    const auto of_blocks = static_cast<TaskId>(blocks);
    const Ticks shift = result_.end[front.end - 1] - result_.end[front.end - 1 - of_blocks * front.block];
    for (const Cut& cut : cuts_) {
      const TaskId compared = static_cast<TaskId>(reach) * cut.block;
      for (TaskId task = cut.end - compared; task < cut.end; ++task) {
        if (result_.end[task] - result_.end[task - of_blocks * cut.block] != shift) return std::nullopt;
      }
    }
    return shift;
  }

  LoweredStep& lowered_;
  EngineResult& result_;
  std::vector<Cut> cuts_;
};

Ticks later_by(Ticks time, std::int64_t periods, Ticks period) {
  Ticks more = 0;
  Ticks sum = 0;
  if (__builtin_mul_overflow(period, static_cast<Ticks>(periods), &more) || __builtin_add_overflow(time, more, &sum)) {
    throw TimeOverflow();
  }
  return sum;
}

/// The simulated part of a step: a program, and the number of periods that it omits.
struct Played {
  const Program* program = nullptr;
  int microbatches = 0;  ///< of the program
  int period = 0;        ///< microbatches per period; 0: none is omitted
  std::int64_t periods = 0;
  Ticks makespan = 0;  ///< of the whole step
};

/// Simulates a step: all microbatches, or only as many as it takes until the step repeats and the rest is a whole
/// number of periods. If no period shows within three quarters of the microbatches, simulates all of them.
class StepPlayer {
 public:
  explicit StepPlayer(const PreparedStep& step, PlayBuffers* buffers = nullptr)
      : step_(step), play_(buffers != nullptr ? *buffers : own_) {}

  Played play() {
    Played played{&step_.program, step_.program.microbatch_count()};
    if (!step_.repetition) {
      played.makespan = play_.makespan(step_, step_.program);
      return played;
    }
    const int all = step_.request.microbatches;
    OrderPeriod order = step_.repetition->order;
    while (true) {
      played.makespan = play_.makespan(step_, *played.program);
      const int left_out = all - played.microbatches;
      if (left_out == 0) return played;
      int more = order.blocks * order.microbatches;
      if (const auto repeats = play_.repeats(*played.program, order)) {
        const int period = repeats->blocks * order.microbatches;
        if (left_out % period == 0) {
          played.period = period;
          played.periods = left_out / period;
          played.makespan = later_by(played.makespan, played.periods, repeats->time);
          return played;
        }
        more = left_out % period;
      }
      if (4 * (played.microbatches + more) > 3 * all) more = left_out;
      played.microbatches += more;
      larger_ = program_with(step_, played.microbatches);
      played.program = &larger_;
      order = order.of(0, more);
    }
  }

 private:
  const PreparedStep& step_;
  PlayBuffers own_;
  Play play_;
  Program larger_;
};

std::size_t exchanges_in(const PreparedStep& step, Timeline timeline) {
  return step.job.model.experts ? add_exchange_spans(step.costs.stages, 0, timeline) : 0;
}

// Measures two programs that differ by one period, and extrapolates the difference.
StepHistory profile_as_it_repeats(const PreparedStep& step) {
  StepPlayer player(step);
  const Played played = player.play();
  Timeline shorter = simulate(*played.program, step.times);
  TimelineMetrics metrics = measure(shorter);
  StepHistory history;
  history.exchanges = exchanges_in(step, std::move(shorter));
  if (played.periods > 0) {
    Timeline longer = simulate(program_with(step, played.microbatches + played.period), step.times);
    metrics = repeated(metrics, measure(longer), played.periods);
    FLOPCAST_CHECK(metrics.makespan == played.makespan);
    const std::size_t more = exchanges_in(step, std::move(longer)) - history.exchanges;
    history.exchanges += static_cast<std::size_t>(played.periods) * more;
  }
  history.profile = profile_of_flushed_step(metrics);
  return history;
}

void take_time(const PreparedStep& step, const EvaluationOptions& options, Evaluation& answer) {
  if (step.program.asynchronous) {
    answer.time_s = profile_of_steady_step(step).step.time_s;
  } else if (step.job.cluster.shares_links()) {
    const std::vector<double> times = network_step_seconds(step, options.allocations);
    const auto fastest = std::min_element(times.begin(), times.end());
    answer.allocation = static_cast<std::size_t>(fastest - times.begin());
    answer.time_s = *fastest;
  } else {
    answer.time_s = static_cast<double>(StepPlayer(step, options.buffers).play().makespan) * kSecondsPerTick;
  }
}

StepHistory history_of(const PreparedStep& step) {
  if (step.repetition) return profile_as_it_repeats(step);
  StepHistory history;
  if (step.job.cluster.shares_links()) {
    history.network = simulate_on_network(step);
    history.timeline = std::move(history.network->timeline);
  } else {
    history.timeline = simulate(step.program, step.times);
  }
  if (step.program.asynchronous) {
    history.steady = profile_of_steady_step(step);
    history.profile = history.steady->step;
  } else {
    history.profile = profile_of_flushed_step(history.timeline);
  }
  history.memory = memory_over_time(step, history.timeline);
  history.exchanges = exchanges_in(step, history.timeline);
  return history;
}

}  // namespace

Evaluation evaluate(const PreparedStep& step, Detail detail, const EvaluationOptions& options) {
  Evaluation answer;
  answer.memory = step_memory(step);
  if (detail != Detail::kTime) {
    FLOPCAST_CHECK(detail == Detail::kProfile || !step.repetition);
    answer.history = history_of(step);
    answer.time_s = answer.history->profile.time_s;
  } else if (options.time_of_misfits || answer.memory.fits) {
    take_time(step, options, answer);
  }
  return answer;
}

FullestRank fullest_share(const MemoryResult& memory) {
  FullestRank fullest;
  for (const RankMemoryResult& rank : memory.per_pipeline_rank) {
    fullest.share = std::max(fullest.share, rank.shown_gib / rank.capacity_gib);
    fullest.bytes = std::max(fullest.bytes, rank.shown_gib * kGibibyte);
  }
  return fullest;
}

}  // namespace flopcast
