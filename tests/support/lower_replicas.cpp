#include "tests/support/lower_replicas.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text/error.hpp"
#include "sim/lower/lower.hpp"
#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

constexpr std::uint32_t kNone = TaskGraph::kNone;
constexpr CostId kKinds = kActionKinds.size();

// One action, which is the same in every replica except for the numbers of tasks and streams.
struct Stamp {
  CostId cost = 0;
  std::uint32_t producer = kNone;       // position in the stream that the action waits for
  std::uint32_t producer_rank = kNone;  // pipeline rank of that stream
};

class ReplicaLowering {
 public:
  ReplicaLowering(const Program& program, const StepTimes& times, const Replicas& replicas)
      : program_(program),
        times_(times),
        replicas_(replicas),
        needs_(needs_of(program, times)),
        results_(program),
        tasks_per_action_(replicas.tensor_parallel > 1 ? 2 : 1),
        data_(static_cast<std::size_t>(replicas.data_parallel)),
        tensor_(static_cast<std::size_t>(replicas.tensor_parallel)) {}

  TaskGraph lower();

 private:
  void refuse_unsupported() const;
  void number_tasks();
  void add_costs();
  void add_flush_collectives();
  std::vector<Stamp> stamps_of(std::size_t rank) const;
  void add_stream(std::size_t rank, std::size_t data, std::size_t tensor, const std::vector<Stamp>& stamps,
                  CollectiveId first_collective);
  void add_flush(std::size_t rank, std::size_t data, std::size_t tensor);
  std::uint32_t first_rank() const { return needs_.rank_of(0, 0); }
  std::uint32_t last_rank() const { return needs_.rank_of(needs_.stage_count() - 1, 0); }
  TaskId first_task(std::size_t rank, std::size_t data, std::size_t tensor) const {
    return first_of_rank_[rank] + static_cast<TaskId>(data * tensor_ + tensor) * length_[rank];
  }

  const Program& program_;
  const StepTimes& times_;
  const Replicas& replicas_;
  Needs needs_;
  ResultTable results_;
  TaskId tasks_per_action_;
  std::size_t data_;
  std::size_t tensor_;
  std::vector<TaskId> first_of_rank_;
  std::vector<TaskId> length_;            // for each stream of a pipeline rank
  std::vector<CollectiveId> reductions_;  // by pipeline and tensor rank
  std::vector<CollectiveId> gathers_;     // by pipeline and tensor rank
  std::vector<CollectiveId> embeddings_;  // by data and tensor rank
  CollectiveId norm_ = kNone;
  TaskGraph graph_;
};

void ReplicaLowering::refuse_unsupported() const {
  FLOPCAST_CHECK(replicas_.data_parallel >= 1 && replicas_.tensor_parallel >= 1);
  FLOPCAST_CHECK(tensor_ == 1 || replicas_.collectives.size() == times_.stages.size());
  FLOPCAST_CHECK(times_.flush.empty() || times_.flush.size() == program_.ranks.size());
  FLOPCAST_CHECK(times_.overlapped_reductions.empty());
  FLOPCAST_CHECK(program_.replicas_of_stage.empty());
  bool pairs = false;
  for (const std::vector<Action>& actions : program_.ranks) {
    for (const Action& action : actions) pairs = pairs || action.overlaps_next;
  }
  if (!pairs && !times_.blocking_sends) return;
  throw ConfigError(Diagnostic{"schedule",
                               pairs ? "overlapped pairs cannot be simulated on all ranks of all replicas"
                                     : "blocking sends cannot be simulated on all ranks of all replicas",
                               "", "simulate one replica instead"});
}

void ReplicaLowering::number_tasks() {
  std::size_t next = 0;
  for (const std::vector<Action>& actions : program_.ranks) {
    for (std::size_t index = 0; index < actions.size(); ++index) {
      results_.enter(actions[index], static_cast<TaskId>((index + 1) * tasks_per_action_ - 1));
    }
    const std::size_t rank = length_.size();
    std::size_t length = actions.size() * tasks_per_action_;
    if (!times_.flush.empty()) {
      const bool shares_embedding = !embeddings_.empty() && (rank == first_rank() || rank == last_rank());
      length += 3 + (shares_embedding ? 1 : 0) + (norm_ == kNone ? 0 : 1);
    }
    first_of_rank_.push_back(static_cast<TaskId>(next));
    length_.push_back(static_cast<TaskId>(length));
    next += length * data_ * tensor_;
    FLOPCAST_CHECK(next < kNone);
  }
  graph_.reserve(next, program_.ranks.size() * data_ * tensor_);
}

void ReplicaLowering::add_costs() {
  for (std::size_t stage = 0; stage < needs_.stage_count(); ++stage) {
    for (const ActionKind kind : kActionKinds) {
      graph_.add_cost(times_.stages[stage].of(kind), needs_.input_latency(times_, kind, stage));
    }
  }
}

void ReplicaLowering::add_flush_collectives() {
  if (times_.flush.empty()) return;
  Ticks norm = 0;
  for (const FlushTimes& flush : times_.flush) {
    norm = std::max(norm, flush.gradient_norm);
    for (std::size_t tensor = 0; tensor < tensor_; ++tensor) {
      reductions_.push_back(graph_.add_collective(flush.gradient_reduction));
      gathers_.push_back(graph_.add_collective(flush.parameter_gather));
    }
  }
  if (norm > 0) norm_ = graph_.add_collective(norm);
  const std::uint32_t first = first_rank();
  const std::uint32_t last = last_rank();
  const Ticks embedding = std::max(times_.flush[first].embedding_reduction, times_.flush[last].embedding_reduction);
  if (first == last || embedding == 0) return;
  for (std::size_t group = 0; group < data_ * tensor_; ++group) embeddings_.push_back(graph_.add_collective(embedding));
}

std::vector<Stamp> ReplicaLowering::stamps_of(std::size_t rank) const {
  std::vector<Stamp> stamps;
  stamps.reserve(program_.ranks[rank].size());
  for (const Action& action : program_.ranks[rank]) {
    Stamp stamp;
    stamp.cost = CostId{action.stage} * kKinds + static_cast<CostId>(action.kind);
    const Needs::Neighbour& from = needs_.input_of(action);
    if (from.crosses) {
      stamp.producer = results_.find(action, from.stage, action.kind);
      stamp.producer_rank = from.rank;
    }
    stamps.push_back(stamp);
  }
  return stamps;
}

void ReplicaLowering::add_stream(std::size_t rank, std::size_t data, std::size_t tensor,
                                 const std::vector<Stamp>& stamps, CollectiveId first_collective) {
  FLOPCAST_CHECK(graph_.task_count() == first_task(rank, data, tensor));
  graph_.begin_stream();
  const std::vector<Dependency> none;
  for (std::size_t index = 0; index < stamps.size(); ++index) {
    const Stamp& stamp = stamps[index];
    if (stamp.producer == kNone) {
      graph_.add_task(stamp.cost);
    } else {
      const StreamId stream =
          stream_of(replicas_, static_cast<int>(stamp.producer_rank), static_cast<int>(data), static_cast<int>(tensor));
      graph_.add_task(stamp.cost, first_task(stamp.producer_rank, data, tensor) + stamp.producer, stream);
    }
    if (tensor_ > 1) graph_.add_part(first_collective + static_cast<CollectiveId>(index), none);
  }
  if (!times_.flush.empty()) add_flush(rank, data, tensor);
}

void ReplicaLowering::add_flush(std::size_t rank, std::size_t data, std::size_t tensor) {
  graph_.add_part(reductions_[rank * tensor_ + tensor], {});
  if (!embeddings_.empty() && (rank == first_rank() || rank == last_rank())) {
    graph_.add_part(embeddings_[data * tensor_ + tensor], {});
  }
  if (norm_ != kNone) graph_.add_part(norm_, {});
  graph_.add_task(times_.flush[rank].optimizer, {});
  graph_.add_part(gathers_[rank * tensor_ + tensor], {});
}

TaskGraph ReplicaLowering::lower() {
  refuse_unsupported();
  add_flush_collectives();
  number_tasks();
  add_costs();
  for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
    const std::vector<Stamp> stamps = stamps_of(rank);
    for (std::size_t data = 0; data < data_; ++data) {
      CollectiveId first_collective = kNone;
      for (std::size_t index = 0; tensor_ > 1 && index < stamps.size(); ++index) {
        const Action& action = program_.ranks[rank][index];
        const CollectiveId added = graph_.add_collective(replicas_.collectives[action.stage].of(action.kind));
        if (index == 0) first_collective = added;
      }
      for (std::size_t tensor = 0; tensor < tensor_; ++tensor) {
        add_stream(rank, data, tensor, stamps, first_collective);
      }
    }
  }
  graph_.finish();
  return std::move(graph_);
}

}  // namespace

TaskGraph lower_replicas(const Program& program, const StepTimes& times, const Replicas& replicas) {
  return ReplicaLowering(program, times, replicas).lower();
}

}  // namespace flopcast
