#include "tests/realrun/queued/order_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

namespace flopcast::realrun {

namespace {

thread_local std::vector<MemoryUse> uses_of_next;

using Kind = OrderLog::Entry::Kind;
using Clock = std::map<int, std::size_t>;  // by queue: number of its works that come before

void join(Clock& clock, const Clock& other) {
  for (const auto& [queue, count] : other) clock[queue] = std::max(clock[queue], count);
}

struct Stamp {
  int queue = 0;
  std::size_t count = 0;

  bool is_before(const Clock& clock) const {
    const auto found = clock.find(queue);
    return count == 0 || (found != clock.end() && found->second >= count);
  }
};

/// The last users of each piece of memory: a write, and the reads since then.
class Shadow {
 public:
  /// Returns the queue of a use that is not before `clock`, or -1.
  int conflict(const MemoryUse& use, const Clock& clock) {
    int found = -1;
    over(use, [&](Cell& cell) {
      if (cell.written && !cell.write.is_before(clock)) found = cell.write.queue;
      for (const Stamp& read : cell.reads) {
        if (use.writes && !read.is_before(clock)) found = read.queue;
      }
    });
    return found;
  }
  void keep(const MemoryUse& use, const Stamp& stamp) {
    over(use, [&](Cell& cell) {
      std::erase_if(cell.reads, [&](const Stamp& read) { return use.writes || read.queue == stamp.queue; });
      if (use.writes) {
        cell.written = true;
        cell.write = stamp;
      } else {
        cell.reads.push_back(stamp);
      }
    });
  }

 private:
  struct Cell {
    std::uintptr_t end = 0;
    bool written = false;
    Stamp write = {};
    std::vector<Stamp> reads = {};
  };

  void split(std::uintptr_t at) {
    auto after = cells_.upper_bound(at);
    if (after == cells_.begin()) return;
    auto& [begin, cell] = *std::prev(after);
    if (begin == at || cell.end <= at) return;
    cells_.emplace(at, cell);
    cell.end = at;
  }
  template <class Action>
  void over(const MemoryUse& use, const Action& action) {
    if (use.begin == use.end) return;
    split(use.begin);
    split(use.end);
    for (std::uintptr_t at = use.begin; at < use.end;) {
      const auto next = cells_.lower_bound(at);
      const std::uintptr_t known = next == cells_.end() ? use.end : std::min(next->first, use.end);
      Cell& cell = known > at ? cells_.emplace(at, Cell{.end = known}).first->second : next->second;
      action(cell);
      at = cell.end;
    }
  }

  std::map<std::uintptr_t, Cell> cells_;
};

void find_races(int rank, const std::vector<OrderLog::Entry>& entries, std::set<std::string>& faults) {
  constexpr int kCompute = 0;
  std::map<int, Clock> queues;
  std::map<std::size_t, Clock> moments;
  Clock host;
  Clock seen;  // works that the host happened to find completed; another run might not
  Shadow memory;
  for (const OrderLog::Entry& entry : entries) {
    Clock& clock = queues[entry.queue];
    switch (entry.kind) {
      case Kind::kSaw:
        join(seen, moments[entry.moment]);
        break;
      case Kind::kWaited:
        join(host, moments[entry.moment]);
        break;
      case Kind::kWait:
        join(clock, moments[entry.moment]);
        break;
      case Kind::kRecord:
        join(clock, host);
        moments[entry.moment] = clock;
        break;
      case Kind::kReleased: {
        Clock next = queues[kCompute];
        join(next, host);
        join(next, seen);
        for (const MemoryUse& use : entry.uses) {
          const int queue = memory.conflict(use, next);
          if (queue >= 0)
            faults.insert(fmt::format("rank {}: memory is released while queue {} may use it", rank, queue));
          // Its next user comes after the computation so far, and after no other work, because that is complete.
          memory.keep(use, {kCompute, next[kCompute]});
        }
        break;
      }
      case Kind::kWork:
      case Kind::kNccl: {
        join(clock, host);
        const Stamp stamp{entry.queue, ++clock[entry.queue]};
        for (const MemoryUse& use : entry.uses) {
          const int queue = memory.conflict(use, clock);
          if (queue >= 0)
            faults.insert(fmt::format("rank {}: queues {} and {} use the same memory, and no moment orders them", rank,
                                      entry.queue, queue));
        }
        for (const MemoryUse& use : entry.uses) memory.keep(use, stamp);
        break;
      }
    }
  }
}

/// Replays all ranks' logs on the narrow GPU. Runs whatever can run, in any order: the order does not change whether
/// everything completes.
class Replay {
 public:
  Replay(const std::vector<std::vector<OrderLog::Entry>>& ranks, const NarrowGpu& gpu) : gpu_(gpu) {
    for (const std::vector<OrderLog::Entry>& entries : ranks) ranks_.emplace_back().entries = &entries;
  }

  void find(std::set<std::string>& faults) {
    for (bool moves = true; moves;) {
      moves = false;
      for (Rank& rank : ranks_) moves = advance(rank) || moves;
    }
    faults.insert(mismatches_.begin(), mismatches_.end());
    for (std::size_t index = 0; index < ranks_.size(); ++index) {
      const Rank& rank = ranks_[index];
      for (const auto& [queue, waiting] : rank.queues) {
        if (waiting.empty()) continue;
        const OrderLog::Entry& first = (*rank.entries)[waiting.front()];
        faults.insert(fmt::format("rank {}: queue {} is stuck at {}", index, queue,
                                  first.kind != Kind::kNccl ? "a moment"
                                  : first.part.message      ? "a message"
                                                            : first.part.what));
      }
    }
  }

 private:
  struct Rank {
    const std::vector<OrderLog::Entry>* entries = nullptr;
    std::size_t host = 0;
    std::map<int, std::deque<std::size_t>> queues;
    std::map<int, std::deque<std::size_t>> connections;  // not begun
    std::deque<std::size_t> collectives;                 // not completed
    std::set<std::size_t> reached;
    std::set<std::size_t> arrived;
    std::map<const void*, std::size_t> operations;  // begun, by communicator
    int held = 0;
  };
  struct Operation {
    std::vector<std::pair<Rank*, std::size_t>> here;
  };

  bool advance(Rank& rank) {
    bool moves = false;
    while (rank.host < rank.entries->size()) {
      const OrderLog::Entry& entry = (*rank.entries)[rank.host];
      if (entry.kind == Kind::kWaited && rank.reached.count(entry.moment) == 0) break;
      if (entry.kind != Kind::kWaited && entry.kind != Kind::kSaw && entry.kind != Kind::kReleased) {
        rank.queues[entry.queue].push_back(rank.host);
        rank.connections[entry.queue % gpu_.connections].push_back(rank.host);
        if (entry.kind == Kind::kNccl && !entry.part.message) rank.collectives.push_back(rank.host);
      }
      ++rank.host;
      moves = true;
    }
    for (auto& [queue, waiting] : rank.queues) {
      while (!waiting.empty() && begin(rank, waiting.front())) moves = true;
    }
    return moves;
  }

  // Returns true if the first work of its queue has advanced: to its end, or into an operation in which it waits.
  bool begin(Rank& rank, std::size_t index) {
    const OrderLog::Entry& entry = (*rank.entries)[index];
    std::deque<std::size_t>& connection = rank.connections[entry.queue % gpu_.connections];
    if (rank.arrived.count(index) > 0 || connection.front() != index) return false;
    if (entry.kind == Kind::kWait && rank.reached.count(entry.moment) == 0) return false;
    if (entry.kind == Kind::kNccl && !arrive(rank, index)) return false;
    connection.pop_front();
    if (entry.kind == Kind::kRecord) rank.reached.insert(entry.moment);
    if (entry.kind != Kind::kNccl) rank.queues[entry.queue].pop_front();
    if (entry.kind == Kind::kNccl) complete(entry.part);
    return true;
  }

  int blocks_of(const NcclPart& part) const { return part.blocks > 0 ? part.blocks : gpu_.collective_blocks; }

  bool arrive(Rank& rank, std::size_t index) {
    const NcclPart& part = (*rank.entries)[index].part;
    if (!part.message && rank.collectives.front() != index) return false;
    if (rank.held + blocks_of(part) > gpu_.multiprocessors) return false;
    rank.held += blocks_of(part);
    rank.arrived.insert(index);
    operations_[{part.communicator, rank.operations[part.communicator]++}].here.emplace_back(&rank, index);
    return true;
  }

  void complete(const NcclPart& part) {
    std::size_t& number = ended_[part.communicator];
    const auto found = operations_.find({part.communicator, number});
    if (found == operations_.end() || found->second.here.size() < static_cast<std::size_t>(part.members)) return;
    ++number;
    compare(found->second);
    for (const auto& [rank, index] : found->second.here) {
      const OrderLog::Entry& entry = (*rank->entries)[index];
      rank->held -= blocks_of(entry.part);
      rank->queues[entry.queue].pop_front();
      if (!entry.part.message) rank->collectives.pop_front();
    }
    operations_.erase(found);
  }

  void compare(const Operation& operation) {
    std::vector<std::tuple<int, int, std::size_t>> sends;
    std::vector<std::tuple<int, int, std::size_t>> receives;
    const auto part_of = [](const auto& place) -> const NcclPart& {
      return (*place.first->entries)[place.second].part;
    };
    const std::string& what = part_of(operation.here.front()).what;
    for (const auto& place : operation.here) {
      const NcclPart& part = part_of(place);
      if (part.what != what) mismatches_.insert(fmt::format("members meet with {} and with {}", what, part.what));
      sends.insert(sends.end(), part.sends.begin(), part.sends.end());
      receives.insert(receives.end(), part.receives.begin(), part.receives.end());
    }
    std::sort(sends.begin(), sends.end());
    std::sort(receives.begin(), receives.end());
    if (sends != receives) mismatches_.insert("members send messages that are not received, or of another size");
  }

  NarrowGpu gpu_;
  std::deque<Rank> ranks_;
  std::map<std::pair<const void*, std::size_t>, Operation> operations_;
  std::map<const void*, std::size_t> ended_;
  std::set<std::string> mismatches_;
};

}  // namespace

thread_local int OrderLog::open_groups = 0;

void OrderLog::note_use(const void* address, std::size_t bytes, bool writes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  if (bytes > 0) uses_of_next.push_back({begin, begin + bytes, writes});
}

std::vector<MemoryUse> OrderLog::take_uses() {
  return std::exchange(uses_of_next, {});
}

void OrderLog::add(Entry entry) {
  if (open_groups > 0 && entry.kind != Entry::Kind::kReleased && entry.kind != Entry::Kind::kSaw) {
    misuses_.push_back(fmt::format("work is added to queue {} while an NCCL group is open", entry.queue));
  }
  entries_.push_back(std::move(entry));
}

void OrderLog::work(int queue, std::vector<MemoryUse> uses) {
  const std::lock_guard lock(mutex_);
  add({.kind = Entry::Kind::kWork, .queue = queue, .uses = std::move(uses)});
}

void OrderLog::nccl(int queue, std::vector<MemoryUse> uses, NcclPart part) {
  const std::lock_guard lock(mutex_);
  add({.kind = Entry::Kind::kNccl, .queue = queue, .uses = std::move(uses), .part = std::move(part)});
}

std::size_t OrderLog::record(int queue) {
  const std::lock_guard lock(mutex_);
  add({.kind = Entry::Kind::kRecord, .queue = queue, .moment = ++moments_});
  return moments_;
}

bool OrderLog::wait(int queue, const OrderLog* recorded_by, std::size_t moment) {
  const std::lock_guard lock(mutex_);
  if (recorded_by != this) {
    misuses_.push_back(fmt::format("queue {} waits for a moment that was not recorded", queue));
    return false;
  }
  add({.kind = Entry::Kind::kWait, .queue = queue, .moment = moment});
  return true;
}

void OrderLog::saw(std::size_t moment, bool waited) {
  const std::lock_guard lock(mutex_);
  add({.kind = waited ? Entry::Kind::kWaited : Entry::Kind::kSaw, .moment = moment});
}

void OrderLog::released(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(mutex_);
  add({.kind = Entry::Kind::kReleased, .uses = {{begin, begin + bytes, true}}});
}

std::vector<OrderLog::Entry> OrderLog::entries() const {
  const std::lock_guard lock(mutex_);
  return entries_;
}

std::vector<std::string> OrderLog::misuses() const {
  const std::lock_guard lock(mutex_);
  return misuses_;
}

std::vector<std::string> order_faults(const std::vector<std::shared_ptr<OrderLog>>& ranks, const NarrowGpu& gpu) {
  std::set<std::string> faults;
  std::vector<std::vector<OrderLog::Entry>> logs;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    logs.push_back(ranks[rank]->entries());
    for (const std::string& misuse : ranks[rank]->misuses()) faults.insert(fmt::format("rank {}: {}", rank, misuse));
    find_races(static_cast<int>(rank), logs.back(), faults);
  }
  Replay(logs, gpu).find(faults);
  return {faults.begin(), faults.end()};
}

}  // namespace flopcast::realrun
