#include "sim/lower/lower.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/text/error.hpp"
#include "sim/program/needs.hpp"
#include "sim/program/program.hpp"

namespace flopcast {
namespace {

constexpr std::uint32_t kNoTask = TaskGraph::kNone;

// Costs of a stage: its four kinds of actions, each with the latency of its input, then its two sends.
constexpr CostId kCostsPerStage = 6;
constexpr CostId kSendForward = 4;
constexpr CostId kSendBackward = 5;

// Calls visit with the kind as a constant, which saves a tenth of the work in a loop over millions of actions. I has
// the same dependencies as B.
template <class Visit>
void with_constant(ActionKind kind, const Visit& visit) {
  if (kind == ActionKind::kForward) {
    visit(ActionKind::kForward);
  } else if (kind == ActionKind::kWeightGradient) {
    visit(ActionKind::kWeightGradient);
  } else {
    visit(ActionKind::kBackward);
  }
}

// The tasks of a rank's flush: true if present.
struct FlushShape {
  bool reduction = false;
  bool embedding = false;
  bool norm = false;
  bool optimizer = false;
  bool gather = false;

  TaskId gradient_stream_tasks() const { return TaskId{reduction} + TaskId{embedding} + TaskId{norm} + TaskId{gather}; }
};

constexpr CostId cost_of(const Action& action) {
  return CostId{action.stage} * kCostsPerStage + static_cast<CostId>(action.kind);
}

class Lowering {
 public:
  Lowering(const Program& program, const StepTimes& times, LoweredStep& step)
      : program_(program),
        times_(times),
        needs_(needs_of(program, times)),
        results_(program),
        has_flush_(!times.flush.empty()),
        step_(step) {}

  void lower();

 private:
  void shape_flush();
  TaskId number_tasks();
  void add_costs();
  void add_rank(std::size_t rank);
  void add_action(const Action& action, TaskId id, std::uint32_t own_rank);
  void add_pair(const Action& first, const Action& second, TaskId id);
  void add_sends(const Action& action);
  void add_flush(std::size_t rank, TaskId last_action);
  void add_gradient_stream(std::size_t rank, const Dependency* after_actions);
  std::size_t overlapped_count(std::size_t rank) const {
    return times_.overlapped_reductions.empty() ? 0 : times_.overlapped_reductions[rank].size();
  }
  void add_overlapped_reductions(std::size_t rank);
  void collect_dependencies(const Action& action, TaskId id);
  bool sends(const Action& action) const { return needs_.result_of(action).crosses; }
  Ticks duration_of(const Action& action) const { return times_.stages[action.stage].of(action.kind); }
  StreamId stream_of(std::uint32_t rank) const { return has_flush_ ? 2 * rank : rank; }

  const Program& program_;
  const StepTimes& times_;
  Needs needs_;
  ResultTable results_;
  bool has_flush_;
  std::vector<FlushShape> flush_;
  CollectiveId embedding_ = kNoTask;
  CollectiveId norm_ = kNoTask;
  std::vector<Dependency> dependencies_;  // of the current task
  LoweredStep& step_;
};

void Lowering::shape_flush() {
  if (!has_flush_) return;
  FLOPCAST_CHECK(times_.flush.size() == program_.ranks.size() && program_.replicas_of_stage.empty());
  flush_.resize(times_.flush.size());
  Ticks norm = 0;
  Ticks embedding = 0;
  const std::uint32_t first = needs_.rank_of(0, 0);
  const std::uint32_t last = needs_.rank_of(needs_.stage_count() - 1, 0);
  for (std::size_t rank = 0; rank < flush_.size(); ++rank) {
    const FlushTimes& times = times_.flush[rank];
    flush_[rank].reduction = times.gradient_reduction > 0;
    flush_[rank].optimizer = times.optimizer > 0;
    flush_[rank].gather = times.parameter_gather > 0;
    norm = std::max(norm, times.gradient_norm);
    if (rank == first || rank == last) embedding = std::max(embedding, times.embedding_reduction);
  }
  if (embedding > 0 && first != last) {
    flush_[first].embedding = flush_[last].embedding = true;
    embedding_ = step_.graph.add_collective(embedding);
  }
  if (norm > 0) {
    for (FlushShape& shape : flush_) shape.norm = true;
    norm_ = step_.graph.add_collective(norm);
  }
}

// Assigns every action the id of its future task, and records which task makes its result available to consumers.
TaskId Lowering::number_tasks() {
  TaskId id = 0;
  for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const std::vector<Action>& actions = program_.ranks[rank];
    for (std::size_t index = 0; index < actions.size(); ++index) {
      const Action& action = actions[index];
      if (times_.blocking_sends || action.overlaps_next) {
        const bool pair = action.overlaps_next && index + 1 < actions.size();
        const bool first_sends = times_.blocking_sends && sends(action);
        results_.enter(action, id + TaskId{first_sends});
        if (pair) {
          const Action& second = actions[++index];
          const bool second_sends = times_.blocking_sends && sends(second);
          results_.enter(second, second_sends ? id + 1 + TaskId{first_sends} : id);
          id += TaskId{second_sends};
        }
        id += 1 + TaskId{first_sends};
      } else {
        results_.enter(action, id++);
      }
    }
    if (has_flush_) {
      id += TaskId{flush_[rank].optimizer} + flush_[rank].gradient_stream_tasks() +
            static_cast<TaskId>(overlapped_count(rank));
    }
  }
  return id;
}

void Lowering::add_costs() {
  TaskGraph& graph = step_.graph;
  for (std::size_t stage = 0; stage < needs_.stage_count(); ++stage) {
    for (const ActionKind kind : kActionKinds) {
      const Ticks lag = times_.blocking_sends ? 0 : needs_.input_latency(times_, kind, stage);
      graph.add_cost(times_.stages[stage].of(kind), lag);
    }
    graph.add_cost(needs_.result_latency(times_, ActionKind::kForward, stage), 0);
    graph.add_cost(needs_.result_latency(times_, ActionKind::kBackward, stage), 0);
  }
}

void Lowering::lower() {
  step_.graph.clear();
  step_.labels.clear();
  step_.streams.clear();
  step_.second_of_pair.clear();
  shape_flush();
  const TaskId tasks = number_tasks();
  const std::size_t streams = program_.ranks.size() * (has_flush_ ? 2 : 1);
  step_.graph.reserve(tasks, streams);
  step_.labels.reserve(tasks);
  step_.streams.reserve(streams);
  add_costs();
  for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) add_rank(rank);
  step_.graph.finish();
  FLOPCAST_CHECK(step_.graph.task_count() == tasks && step_.labels.size() == tasks);
}

void Lowering::add_rank(std::size_t rank) {
  step_.graph.begin_stream();
  TaskId id = step_.graph.task_count();
  const TaskId first = id;
  step_.streams.push_back(StreamLabel{static_cast<int>(rank), StreamKind::kCompute});
  const std::vector<Action>& actions = program_.ranks[rank];
  for (std::size_t index = 0; index < actions.size(); ++index) {
    const Action& action = actions[index];
    FLOPCAST_CHECK(needs_.rank_of(action) == rank);
    if (!action.overlaps_next || index + 1 == actions.size()) {
      add_action(action, id++, static_cast<std::uint32_t>(rank));
      if (!times_.blocking_sends) continue;
      add_sends(action);
    } else {
      const Action& second = actions[++index];
      add_pair(action, second, id);
      if (times_.blocking_sends) {
        add_sends(action);
        add_sends(second);
      }
    }
    id = step_.graph.task_count();
  }
  if (has_flush_) add_flush(rank, id == first ? kNoTask : id - 1);
}

// Fills dependencies_ with what the action waits for, except what the order of its stream implies.
void Lowering::collect_dependencies(const Action& action, TaskId id) {
  const std::uint32_t own = needs_.rank_of(action);
  const auto wait_for = [&](TaskId task, std::uint32_t rank, Ticks lag) {
    if (rank != own || task >= id) dependencies_.push_back(Dependency{task, stream_of(rank), lag});
  };
  if (const Needs::Neighbour& from = needs_.input_of(action)) {
    wait_for(results_.find(action, from.stage, action.kind), from.rank_of(action.microbatch),
             step_.graph.costs()[cost_of(action)].lag);
  }
  if (const auto needed = needed_on_stage(action.kind)) wait_for(results_.find(action, action.stage, *needed), own, 0);
}

// A valid program keeps at most one dependency per task, which goes straight into the graph.
void Lowering::add_action(const Action& action, TaskId id, std::uint32_t own_rank) {
  TaskId own = kNoTask;
  TaskId producer = kNoTask;
  std::uint32_t rank = own_rank;
  with_constant(action.kind, [&](ActionKind kind) {
    if (const auto needed = needed_on_stage(kind)) own = results_.find(action, action.stage, *needed);
    const Needs::Neighbour& from = needs_.input_of(kind, action.stage);
    if (!from) return;
    producer = results_.find(action, from.stage, kind);
    rank = from.rank_of(action.microbatch);
  });
  const bool is_local = rank == own_rank;
  const bool comes_too_early = (own != kNoTask && own >= id) || (is_local && producer != kNoTask && producer >= id);
  if (comes_too_early) {
    dependencies_.clear();
    collect_dependencies(action, id);
    step_.graph.add_task(duration_of(action), dependencies_);
  } else if (is_local) {
    step_.graph.add_task(cost_of(action));
  } else {
    step_.graph.add_task(cost_of(action), producer, stream_of(rank));
  }
  step_.labels.push_back(TaskLabel{action, span_kind(action.kind)});
}

void Lowering::add_pair(const Action& first, const Action& second, TaskId id) {
  dependencies_.clear();
  collect_dependencies(first, id);
  collect_dependencies(second, id);
  const Action& forward = first.kind == ActionKind::kForward ? first : second;
  const Ticks saved = std::min(times_.stages[first.stage].pair_saved, times_.stages[second.stage].pair_saved);
  const Ticks both = duration_of(first) + duration_of(second) - saved;
  step_.graph.add_task(times_.stages[forward.stage].fused.value_or(both), dependencies_);
  step_.labels.push_back(TaskLabel{first, span_kind(first.kind)});
  step_.second_of_pair.emplace_back(id, second);
}

void Lowering::add_sends(const Action& action) {
  if (!sends(action)) return;
  const CostId direction = action.kind == ActionKind::kForward ? kSendForward : kSendBackward;
  step_.graph.add_task(CostId{action.stage} * kCostsPerStage + direction);
  step_.labels.push_back(TaskLabel{action, SpanKind::kSend});
}

void Lowering::add_flush(std::size_t rank, TaskId last_action) {
  TaskGraph& graph = step_.graph;
  const FlushShape& shape = flush_[rank];
  const StreamId compute = stream_of(static_cast<std::uint32_t>(rank));
  const TaskId optimizer = graph.task_count();
  const TaskId first_gradient = optimizer + TaskId{shape.optimizer};
  const TaskId waits_for =
      shape.gradient_stream_tasks() - TaskId{shape.gather} + static_cast<TaskId>(overlapped_count(rank));
  if (shape.optimizer) {
    std::vector<Dependency> before;
    if (waits_for > 0) before.push_back(Dependency{first_gradient + waits_for - 1, compute + 1, 0});
    graph.add_task(times_.flush[rank].optimizer, before);
    step_.labels.push_back(TaskLabel{Action{}, SpanKind::kOptimizer});
  }
  const Dependency after_actions{last_action, compute, 0};
  add_gradient_stream(rank, last_action == kNoTask ? nullptr : &after_actions);
}

// The task that ends a stage's gradients is found by the labels of the rank's tasks, which are the last ones of the
// step so far.
void Lowering::add_overlapped_reductions(std::size_t rank) {
  if (overlapped_count(rank) == 0) return;
  TaskGraph& graph = step_.graph;
  const StreamId compute = stream_of(static_cast<std::uint32_t>(rank));
  struct Bound {
    TaskId task;
    const OverlappedReduction* reduction;
  };
  std::vector<Bound> bounds;
  for (const OverlappedReduction& reduction : times_.overlapped_reductions[rank]) {
    TaskId last = kNoTask;
    for (TaskId task = graph.task_count(); last == kNoTask && task-- > graph.first_task(compute);) {
      const TaskLabel& label = step_.labels[task];
      const bool ends_gradients = label.kind == SpanKind::kBackward || label.kind == SpanKind::kWeightGradient;
      if (ends_gradients && label.action.stage == reduction.stage) last = task;
    }
    for (const auto& [task, second] : step_.second_of_pair) {
      const bool ends_gradients = second.kind == ActionKind::kBackward || second.kind == ActionKind::kWeightGradient;
      if (task >= graph.first_task(compute) && ends_gradients && second.stage == reduction.stage) {
        last = last == kNoTask ? task : std::max(last, task);
      }
    }
    FLOPCAST_CHECK(last != kNoTask);
    bounds.push_back({last, &reduction});
  }
  std::stable_sort(bounds.begin(), bounds.end(), [](const Bound& a, const Bound& b) { return a.task < b.task; });
  for (const Bound& bound : bounds) {
    const Ticks early = std::min(bound.reduction->ready_before_end, graph.duration_of(bound.task));
    graph.add_task(bound.reduction->duration, {Dependency{bound.task, compute, -early}});
    step_.labels.push_back(TaskLabel{Action{}, SpanKind::kGradientReduction});
  }
}

void Lowering::add_gradient_stream(std::size_t rank, const Dependency* after_actions) {
  TaskGraph& graph = step_.graph;
  const FlushShape& shape = flush_[rank];
  const FlushTimes& times = times_.flush[rank];
  const StreamId compute = stream_of(static_cast<std::uint32_t>(rank));
  const TaskId optimizer = graph.task_count() - 1;
  graph.begin_stream();
  step_.streams.push_back(StreamLabel{static_cast<int>(rank), StreamKind::kGradient});
  std::vector<Dependency> before;
  if (after_actions != nullptr) before.push_back(*after_actions);
  const auto label = [&](SpanKind kind) {
    step_.labels.push_back(TaskLabel{Action{}, kind});
    before.clear();
  };
  add_overlapped_reductions(rank);
  if (shape.reduction) {
    graph.add_task(times.gradient_reduction, before);
    label(SpanKind::kGradientReduction);
  }
  if (shape.embedding) {
    graph.add_part(embedding_, before);
    label(SpanKind::kEmbeddingReduction);
  }
  if (shape.norm) {
    graph.add_part(norm_, before);
    label(SpanKind::kGradientNorm);
  }
  if (shape.gather) {
    if (shape.optimizer) before.assign(1, Dependency{optimizer, compute, 0});
    graph.add_task(times.parameter_gather, before);
    label(SpanKind::kParameterGather);
  }
}

// Rounds to the nearest tick. Nothing overflows, because `parts` is at most `whole`.
Ticks share_of(Ticks time, Ticks parts, Ticks whole) {
  return time / whole * parts + (time % whole * parts + whole / 2) / whole;
}

// Assigns the numbers of a list to the stages of a program.
class Spreader {
 public:
  Spreader(const Program& program, bool in_comparison) : program_(program), in_comparison_(in_comparison) {}

  std::vector<Ticks> spread(const char* name, const std::vector<Ticks>& list) const {
    std::vector<Ticks> times;
    for (const Chain& chain : program_.chains) {
      const std::vector<int> ranks = ranks_of_chain(program_, chain);
      for (int stage = chain.first_stage; stage <= chain.last_stage; ++stage) {
        times.push_back(time_of(name, list, chain, ranks, stage));
      }
    }
    return times;
  }

 private:
  Ticks time_of(const char* name, const std::vector<Ticks>& list, const Chain& chain, const std::vector<int>& ranks,
                int stage) const {
    const Ticks slices = program_.slices_per_microbatch;
    const auto stages = static_cast<std::size_t>(program_.stage_count());
    if (list.size() == 1) {
      if (!in_comparison_) return share_of(list.front(), 1, slices);
      const Ticks length = chain.last_stage - chain.first_stage + 1;
      return share_of(list.front(), static_cast<Ticks>(ranks.size()), length * slices);
    }
    if (list.size() == stages) return share_of(list[static_cast<std::size_t>(stage)], 1, slices);
    if (!in_comparison_ || list.size() != ranks.size()) refuse_list(name, list.size(), ranks.size());
    const int rank = program_.rank_of_stage[stage];
    const auto chunks = std::count(program_.rank_of_stage.begin() + chain.first_stage,
                                   program_.rank_of_stage.begin() + chain.last_stage + 1, rank);
    const auto index = std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return share_of(list[static_cast<std::size_t>(index)], 1, chunks * slices);
  }

  [[noreturn]] void refuse_list(const char* name, std::size_t numbers, std::size_t ranks) const {
    const bool by_rank = in_comparison_ && ranks > 1 && ranks != static_cast<std::size_t>(program_.stage_count());
    throw ConfigError({name,
                       fmt::format("{} numbers for {} stage{} of {}", numbers, program_.stage_count(),
                                   program_.stage_count() == 1 ? "" : "s", program_.schedule),
                       "",
                       by_rank ? fmt::format("give one number, one per stage, or one for each of the {} ranks", ranks)
                               : "give one number, or one per stage"});
  }

  const Program& program_;
  bool in_comparison_;
};

}  // namespace

ResultTable::ResultTable(const Program& program) {
  Action highest;
  for (const std::vector<Action>& actions : program.ranks) {
    for (const Action& action : actions) {
      FLOPCAST_CHECK(action.stage < program.stage_count());
      if (action.microbatch > highest.microbatch) highest = action;
    }
  }
  microbatches_ = std::size_t{highest.microbatch} + 1;
  const auto stages = static_cast<std::size_t>(program.stage_count());
  // Every stage must run at least the forward of each microbatch of its chain, and a schedule with two chains may
  // number the microbatches of both together.
  const std::size_t chains = std::max<std::size_t>(1, program.chains.size());
  if (stages * microbatches_ > chains * program.action_count() + stages) {
    throw ConfigError(
        Diagnostic{"schedule",
                   fmt::format("{} refers to microbatch {}, but the {} stages have only {} actions in total",
                               to_string(highest), highest.microbatch, stages, program.action_count()),
                   "", fmt::format("every stage must run all microbatches from 0 to {}", highest.microbatch)});
  }
  tasks_.assign(2 * stages * microbatches_, TaskGraph::kNone);
}

void ResultTable::refuse_twice(const Action& action) {
  throw ConfigError(Diagnostic{"schedule", fmt::format("{} is executed twice", to_string(action)), "",
                               "every stage must run F once and either B once or I and W once for each microbatch"});
}

void ResultTable::refuse_missing(const Action& action, std::uint16_t stage, ActionKind kind) {
  Action missing = action;
  missing.stage = stage;
  missing.kind = kind;
  const std::string either =
      kind == ActionKind::kForward
          ? to_string(missing)
          : fmt::format("{}B{} or {}I{}", missing.stage, missing.microbatch, missing.stage, missing.microbatch);
  throw ConfigError(Diagnostic{"schedule",
                               fmt::format("{} needs {}, which no rank executes", to_string(action), either), "",
                               "every stage must run F once and either B once or I and W once for each microbatch"});
}

void lower(const Program& program, const StepTimes& times, LoweredStep& step) {
  Lowering(program, times, step).lower();
}

LoweredStep lower(const Program& program, const StepTimes& times) {
  LoweredStep step;
  lower(program, times, step);
  return step;
}

std::vector<Ticks> spread_times(const char* name, const std::vector<Ticks>& list, const Program& program,
                                bool in_comparison) {
  return Spreader(program, in_comparison).spread(name, list);
}

}  // namespace flopcast
