#include "realrun/measure/cuda/nccl_messages.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "model/error/error.hpp"
#include "realrun/compute/cuda/check.hpp"
#include "realrun/measure/clock.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr std::size_t kElement = sizeof(float);

void use(int gpu) {
  check(cudaSetDevice(gpu), "cudaSetDevice");
}

/// In the current GPU's memory, filled with random numbers.
Buffer random_buffer(std::size_t bytes, cudaStream_t stream) {
  void* address = nullptr;
  check(cudaMalloc(&address, bytes), "cudaMalloc");
  const std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(address), [](std::byte* own) { cudaFree(own); });
  constexpr std::uint64_t kSeed = 20260102;
  check(fill_random(address, bytes, Factors::kFloat32, false, kSeed, stream), "fill_random");
  return Buffer(memory, bytes);
}

struct Sizes {
  std::size_t input = 0;
  std::size_t output = 0;
};

Sizes sizes_of(const SampleKey& key) {
  const auto ranks = static_cast<std::size_t>(key.ranks);
  const auto whole = [](std::size_t bytes) { return std::max(kElement, bytes / kElement * kElement); };
  const std::size_t part = whole(static_cast<std::size_t>(*key.bytes) / ranks);
  switch (key.kind) {
    case SampleKind::kAllGather:
      return {part, part * ranks};
    case SampleKind::kReduceScatter:
      return {part * ranks, part};
    case SampleKind::kAllToAll:
      return {part * ranks, part * ranks};
    default:
      break;
  }
  const std::size_t all = whole(static_cast<std::size_t>(*key.bytes));
  return {all, all};
}

CollectiveKind collective_of(SampleKind kind) {
  switch (kind) {
    case SampleKind::kAllReduce:
      return CollectiveKind::kAllReduce;
    case SampleKind::kAllGather:
      return CollectiveKind::kAllGather;
    case SampleKind::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    default:
      break;
  }
  throw EnvironmentError("is no message that is measured");
}

}  // namespace

/// Streams are held on every GPU; a first message, untimed, lets the members begin together.
class NcclMessages::Work : public QueuedWork {
 public:
  Work(NcclApi& nccl, const SampleKey& key, const std::vector<Member>& members) : nccl_(nccl), key_(key) {
    const Sizes sizes = sizes_of(key);
    for (const Member& member : members) {
      use(member.gpu);
      auto end = std::make_unique<End>();  // its events are this GPU's
      end->member = member;
      end->input = random_buffer(sizes.input, member.stream);
      end->output = random_buffer(sizes.output, member.stream);
      ends_.push_back(std::move(end));
    }
    use(0);
  }

  QueuedTime run(int times, int /*neighbours*/) override {
    while (true) {
      const Attempt attempted = attempt(times);
      if (attempted.host_was_ahead || !hold_.lengthen()) return attempted.time;
    }
  }

 private:
  struct End {
    Member member;
    Buffer input;
    Buffer output;
    TimedEvent start;
    TimedEvent end;
  };
  struct Attempt {
    QueuedTime time;
    bool host_was_ahead = true;
  };

  Attempt attempt(int times) {
    static const Clock clock = machine_clock();
    for (const auto& end : ends_) {
      use(end->member.gpu);
      hold_.begin(end->member.stream);
    }
    queue_message();
    for (const auto& end : ends_) {
      use(end->member.gpu);
      end->start.record(end->member.stream);
    }
    Attempt result;
    const bool first = !connected_;
    connected_ = true;
    const double begin = clock.wall();
    for (int count = 0; count < times; ++count) queue_message();
    result.time.host_s = clock.wall() - begin;
    for (const auto& end : ends_) {
      use(end->member.gpu);
      end->end.record(end->member.stream);
      // The first time NCCL makes connections, which says nothing about the next.
      result.host_was_ahead = result.host_was_ahead && (first || !end->start.reached());
    }
    for (const auto& end : ends_) {
      end->end.wait();
      result.time.device_s = std::max(result.time.device_s, end->start.seconds_until(end->end));
    }
    for (const auto& end : ends_) {
      const std::string error = nccl_.error_of(end->member.communicator);
      if (!error.empty()) throw EnvironmentError("NCCL: " + error);
    }
    use(0);
    return result;
  }

  void queue_message() {
    nccl_.begin_group();
    for (std::size_t index = 0; index < ends_.size(); ++index) {
      use(ends_[index]->member.gpu);
      queue_end(*ends_[index], static_cast<int>(index));
    }
    nccl_.end_group();
  }

  void queue_end(const End& end, int index) {
    const Member& member = end.member;
    if (key_.kind == SampleKind::kPointToPoint) {
      if (index == 0) nccl_.send(end.input, 1, member.communicator, member.stream);
      if (index == 1) nccl_.receive(end.output, 0, member.communicator, member.stream);
      return;
    }
    if (key_.kind == SampleKind::kAllToAll) {
      const std::size_t part = end.input.bytes() / ends_.size();
      for (std::size_t other = 0; other < ends_.size(); ++other) {
        nccl_.send(end.input.slice(other * part, part), static_cast<int>(other), member.communicator, member.stream);
        nccl_.receive(end.output.slice(other * part, part), static_cast<int>(other), member.communicator,
                      member.stream);
      }
      return;
    }
    nccl_.collect({.kind = collective_of(key_.kind), .input = end.input, .output = end.output}, member.communicator,
                  member.stream);
  }

  NcclApi& nccl_;
  SampleKey key_;
  std::vector<std::unique_ptr<End>> ends_;
  Hold hold_;
  bool connected_ = false;
};

NcclMessages::~NcclMessages() {
  for (const auto& [ranks, members] : groups_) {
    for (const Member& member : members) {
      if (member.communicator != nullptr) nccl_->leave(member.communicator);
      cudaSetDevice(member.gpu);
      cudaStreamDestroy(member.stream);
    }
  }
}

std::unique_ptr<QueuedWork> NcclMessages::make(const SampleKey& key) {
  if (key.kind != SampleKind::kPointToPoint && key.kind != SampleKind::kAllToAll) {
    static_cast<void>(collective_of(key.kind));
  }
  return std::make_unique<Work>(*nccl_, key, group_of(key.ranks));
}

const std::vector<NcclMessages::Member>& NcclMessages::group_of(int ranks) {
  const auto found = groups_.find(ranks);
  if (found != groups_.end()) return found->second;
  std::vector<Member> members(static_cast<std::size_t>(ranks));
  for (int index = 0; index < ranks; ++index) {
    Member& member = members[static_cast<std::size_t>(index)];
    member.gpu = index;
    use(index);
    check(cudaStreamCreateWithFlags(&member.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  // Joining waits for the others.
  const NcclId id = nccl_->new_id();
  std::vector<std::exception_ptr> failures(members.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < members.size(); ++index) {
    threads.emplace_back([&, index] {
      try {
        use(members[index].gpu);
        members[index].communicator = nccl_->join(id, ranks, static_cast<int>(index), 0);
      } catch (const EnvironmentError&) {
        failures[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  use(0);
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return groups_.emplace(ranks, std::move(members)).first->second;
}

}  // namespace flopcast::realrun::cuda
