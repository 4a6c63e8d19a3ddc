#include "realrun/measure/cuda/nccl_messages.hpp"

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "model/error/error.hpp"
#include "realrun/compute/cuda/check.hpp"
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

/// Every member's buffers and stream.
class NcclMessages::Ends {
 public:
  Ends(NcclApi& nccl, const SampleKey& key, const std::vector<Member>& members) : nccl_(nccl), kind_(key.kind) {
    const Sizes sizes = sizes_of(key);
    for (const Member& member : members) {
      use(member.gpu);
      ends_.push_back({member, random_buffer(sizes.input, member.stream), random_buffer(sizes.output, member.stream)});
    }
    use(0);
  }

  void queue() const {
    const std::string error = nccl_.error_of(ends_.front().member.communicator);
    if (!error.empty()) throw EnvironmentError("NCCL: " + error);
    nccl_.begin_group();
    for (std::size_t index = 0; index < ends_.size(); ++index) {
      use(ends_[index].member.gpu);
      queue_end(ends_[index], static_cast<int>(index));
    }
    nccl_.end_group();
    use(0);
  }

 private:
  struct End {
    Member member;
    Buffer input;
    Buffer output;
  };

  void queue_end(const End& end, int index) const {
    const Member& member = end.member;
    if (kind_ == SampleKind::kPointToPoint) {
      if (index == 0) nccl_.send(end.input, 1, member.communicator, member.stream);
      if (index == 1) nccl_.receive(end.output, 0, member.communicator, member.stream);
      return;
    }
    if (kind_ != SampleKind::kAllToAll) {
      return nccl_.collect({.kind = collective_of(kind_), .input = end.input, .output = end.output},
                           member.communicator, member.stream);
    }
    const std::size_t part = end.input.bytes() / ends_.size();
    for (std::size_t other = 0; other < ends_.size(); ++other) {
      const auto peer = static_cast<int>(other);
      nccl_.send(end.input.slice(other * part, part), peer, member.communicator, member.stream);
      nccl_.receive(end.output.slice(other * part, part), peer, member.communicator, member.stream);
    }
  }

  NcclApi& nccl_;
  SampleKind kind_;
  std::vector<End> ends_;
};

NcclMessages::~NcclMessages() {
  for (const auto& [group, members] : groups_) {
    for (const Member& member : members) {
      cudaSetDevice(member.gpu);
      nccl_->leave(member.communicator);
      cudaStreamDestroy(member.stream);
    }
  }
}

QueuedMessage NcclMessages::make(const SampleKey& key) {
  if (key.kind != SampleKind::kPointToPoint && key.kind != SampleKind::kAllToAll) {
    static_cast<void>(collective_of(key.kind));
  }
  const std::vector<Member>& members = group_of(key.ranks, key.channels);
  const auto ends = std::make_shared<Ends>(*nccl_, key, members);
  return {members.front().stream, [ends](int /*round*/) { ends->queue(); }};
}

const std::vector<NcclMessages::Member>& NcclMessages::group_of(int ranks, int channels) {
  FLOPCAST_CHECK(ranks >= 2);
  const auto found = groups_.find({ranks, channels});
  if (found != groups_.end()) return found->second;
  std::vector<Member> members(static_cast<std::size_t>(ranks));
  for (int index = 0; index < ranks; ++index) {
    Member& member = members[static_cast<std::size_t>(index)];
    member.gpu = index;
    use(index);
    check(cudaStreamCreateWithFlags(&member.stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  use(0);
  join(members, channels);
  return groups_.emplace(std::pair{ranks, channels}, std::move(members)).first->second;
}

// Joining waits for the others: each has a thread for it.
void NcclMessages::join(std::vector<Member>& members, int channels) {
  const NcclId id = nccl_->new_id();
  std::vector<std::exception_ptr> failures(members.size());
  std::vector<std::thread> threads;
  for (std::size_t index = 0; index < members.size(); ++index) {
    threads.emplace_back([&, index] {
      try {
        use(members[index].gpu);
        members[index].communicator =
            nccl_->join(id, static_cast<int>(members.size()), static_cast<int>(index), channels);
      } catch (const EnvironmentError&) {
        failures[index] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace flopcast::realrun::cuda
