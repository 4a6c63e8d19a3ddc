#include "sim/search/order_times.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <tuple>
#include <vector>

#include "sim/program/needs.hpp"

namespace flopcast {

namespace {

using Time = std::int64_t;

// Work that is ready, or the moment at which it will be. Smaller is more urgent: the tuple's first elements decide.
struct Task {
  int unit = 0;  // forward: a group of microbatches; backward: one microbatch
  int depth = 0;
  int stage = 0;

  friend bool operator>(const Task& a, const Task& b) {
    return std::tuple(a.unit, -a.depth, a.stage) > std::tuple(b.unit, -b.depth, b.stage);
  }
};
using Urgent = std::priority_queue<Task, std::vector<Task>, std::greater<>>;

struct Arrival {
  Time time = 0;
  int rank = 0;
  bool is_work = false;  // otherwise the rank just becomes free
  bool is_forward = false;
  Task task;

  friend bool operator>(const Arrival& a, const Arrival& b) { return a.time > b.time; }
};

class GreedyScheduler {
 public:
  GreedyScheduler(Program& program, const GreedyRule& rule)
      : program_(program), needs_(program), rule_(rule), ranks_(program.ranks.size()), entries_(program.chains.size()) {
    for (std::size_t chain = 0; chain < program.chains.size(); ++chain) {
      const auto [first, last] = program.chains[chain];
      chain_of_stage_.resize(static_cast<std::size_t>(last) + 1, chain);
      ranks_[index_of_rank(first)].chains.push_back(chain);
      for (int stage = first; stage <= last; ++stage) {
        std::vector<Urgent>& forwards = ranks_[index_of_rank(stage)].forwards;
        chunk_of_stage_.push_back(forwards.size());
        forwards.emplace_back();
      }
      entries_[chain].backwards_left.assign(static_cast<std::size_t>(rule.microbatches / rule.together), rule.together);
    }
  }

  void run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) start_next(rank, 0);
    while (!arrivals_.empty()) {
      const Time now = arrivals_.top().time;
      touched_.clear();
      for (; !arrivals_.empty() && arrivals_.top().time == now; arrivals_.pop()) {
        const Arrival& arrival = arrivals_.top();
        Rank& rank = ranks_[arrival.rank];
        if (arrival.is_work)
          (arrival.is_forward ? queue_of(rank, arrival.task.stage) : rank.backwards).push(arrival.task);
        touched_.push_back(static_cast<std::size_t>(arrival.rank));
      }
      for (const std::size_t rank : touched_) start_next(rank, now);
    }
  }

 private:
  struct Rank {
    std::vector<Urgent> forwards;  // indexed by stage of the rank
    Urgent backwards;
    int held = 0;
    std::vector<std::size_t> chains;  // chains that begin here
    Time free_at = 0;
  };
  struct Entry {  // groups at the chain's first stage
    int offered = 0;
    int started = 0;
    int finished = 0;
    std::vector<int> backwards_left;  // indexed by group
  };

  std::size_t index_of_rank(int stage) const { return static_cast<std::size_t>(program_.rank_of_stage[stage]); }
  Entry& entry_of(int stage) { return entries_[chain_of_stage_[stage]]; }

  Urgent& queue_of(Rank& rank, int stage) { return rank.forwards[chunk_of_stage_[stage]]; }

  bool has_room(const Rank& rank, std::size_t chunk) const {
    if (!rule_.most_held) return true;
    const auto later = static_cast<int>(rank.forwards.size() - 1 - chunk);
    return rank.held + (1 + later) * rule_.together <= *rule_.most_held;
  }

  // The most urgent forward for which there is room; null if there is none.
  Urgent* next_forward(Rank& rank) const {
    Urgent* best = nullptr;
    for (std::size_t chunk = 0; chunk < rank.forwards.size(); ++chunk) {
      Urgent& line = rank.forwards[chunk];
      if (line.empty() || !has_room(rank, chunk)) continue;
      if (best == nullptr || best->top() > line.top()) best = &line;
    }
    return best;
  }

  // Admits one group at a time to the queue, and only while there is room for it.
  void admit(Rank& rank) {
    for (const std::size_t chain : rank.chains) {
      Entry& entry = entries_[chain];
      const bool any_left = entry.offered < static_cast<int>(entry.backwards_left.size());
      const bool has_room = entry.started - entry.finished < rule_.most_in_flight;
      if (any_left && has_room && entry.offered == entry.started) {
        const int stage = program_.chains[chain].first_stage;
        queue_of(rank, stage).push({entry.offered++, 0, stage});
      }
    }
  }

  void start_next(std::size_t index, Time now) {
    Rank& rank = ranks_[index];
    if (rank.free_at > now) return;
    admit(rank);
    if (!rank.backwards.empty()) {
      const Task task = rank.backwards.top();
      rank.backwards.pop();
      run_backward(rank, task, now);
    } else if (Urgent* const line = next_forward(rank)) {
      const Task task = line->top();
      line->pop();
      run_forward(rank, task, now);
    } else {
      return;
    }
    arrivals_.push({rank.free_at, static_cast<int>(index), false, false, {}});
  }

  void push_action(ActionKind kind, StageIndex stage, MicrobatchIndex microbatch) {
    program_.ranks[index_of_rank(stage)].push_back(action_of(kind, stage, microbatch));
  }

  void arrive(Time time, int stage, bool is_forward, int unit) {
    const Task task{unit, stage - program_.chains[chain_of_stage_[stage]].first_stage, stage};
    arrivals_.push({time, static_cast<int>(index_of_rank(stage)), true, is_forward, task});
  }

  void run_forward(Rank& rank, const Task& task, Time now) {
    rank.free_at = now + Time{rule_.forward} * rule_.together;
    rank.held += rule_.together;
    for (int offset = 0; offset < rule_.together; ++offset) {
      push_action(ActionKind::kForward, StageIndex(task.stage), MicrobatchIndex(task.unit * rule_.together + offset));
    }
    if (needs_.is_first(task.stage)) ++entry_of(task.stage).started;
    if (const auto& next = needs_.result_of(ActionKind::kForward, task.stage)) {
      arrive(rank.free_at, next.stage, true, task.unit);
      return;
    }
    for (int offset = 0; offset < rule_.together; ++offset) {
      arrive(rank.free_at, task.stage, false, task.unit * rule_.together + offset);
    }
  }

  void run_backward(Rank& rank, const Task& task, Time now) {
    rank.free_at = now + rule_.backward;
    --rank.held;
    push_action(ActionKind::kBackward, StageIndex(task.stage), MicrobatchIndex(task.unit));
    if (const auto& previous = needs_.result_of(ActionKind::kBackward, task.stage)) {
      arrive(rank.free_at, previous.stage, false, task.unit);
      return;
    }
    Entry& entry = entry_of(task.stage);
    if (--entry.backwards_left[static_cast<std::size_t>(task.unit / rule_.together)] == 0) ++entry.finished;
  }

  Program& program_;
  Needs needs_;
  const GreedyRule& rule_;
  ByRank<Rank> ranks_;
  std::vector<Entry> entries_;
  ByStage<std::size_t> chain_of_stage_;
  ByStage<std::size_t> chunk_of_stage_;  // position among its rank's stages
  std::priority_queue<Arrival, std::vector<Arrival>, std::greater<>> arrivals_;
  std::vector<std::size_t> touched_;
};

}  // namespace

void fill_greedily(Program& program, const GreedyRule& rule) {
  GreedyScheduler(program, rule).run();
}

}  // namespace flopcast
