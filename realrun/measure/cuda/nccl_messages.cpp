#include "realrun/measure/cuda/works.hpp"

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"

namespace flopcast::realrun::cuda {

namespace {

constexpr std::size_t kElement = sizeof(float);

void use(int gpu) {
  check(cudaSetDevice(gpu), "cudaSetDevice");
}

/// Allocates memory of the current GPU and fills it with random numbers.
Buffer random_buffer(std::size_t bytes, cudaStream_t stream) {
  void* address = nullptr;
  check(cudaMalloc(&address, bytes), "cudaMalloc");
  const std::shared_ptr<std::byte[]> memory(static_cast<std::byte*>(address), [](std::byte* own) { cudaFree(own); });
  constexpr std::uint64_t kSeed = 20260102;
  fill_random(address, bytes, Factors::kFloat32, false, kSeed, stream);
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
  const std::optional<CollectiveKind> collective = collective_of(key.kind);
  if (collective == CollectiveKind::kAllGather) return {part, part * ranks};
  if (collective == CollectiveKind::kReduceScatter) return {part * ranks, part};
  if (collective == CollectiveKind::kAllToAll) return {part * ranks, part * ranks};
  const std::size_t all = whole(static_cast<std::size_t>(*key.bytes));
  return {all, all};
}

/// Calls during its lifetime run as one operation, which is closed in any case.
class NcclGroup {
 public:
  explicit NcclGroup(NcclApi& nccl) : nccl_(nccl) { nccl_.begin_group(); }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() {
    if (!open_) return;
    try {
      nccl_.end_group();
    } catch (const EnvironmentError&) {  // NOLINT(bugprone-empty-catch): an earlier error is being thrown
    }
  }
  void end() {
    open_ = false;
    nccl_.end_group();
  }

 private:
  NcclApi& nccl_;
  bool open_ = true;
};

class FirstGpuAgain {
 public:
  FirstGpuAgain() = default;
  FirstGpuAgain(const FirstGpuAgain&) = delete;
  FirstGpuAgain& operator=(const FirstGpuAgain&) = delete;
  ~FirstGpuAgain() { cudaSetDevice(0); }
};

}  // namespace

/// Every member's buffers and stream.
class NcclMessages::Ends {
 public:
  Ends(NcclMessages& messages, const SampleKey& key, const std::vector<Member>& members)
      : messages_(messages), nccl_(*messages.nccl_), kind_(key.kind) {
    const FirstGpuAgain again;
    const Sizes sizes = sizes_of(key);
    for (const Member& member : members) {
      use(member.gpu);
      ends_.push_back({member, random_buffer(sizes.input, member.stream), random_buffer(sizes.output, member.stream)});
    }
  }

  void queue() const {
    messages_.throw_if_failed();
    const FirstGpuAgain again;
    try {
      const std::string error = nccl_.error_of(ends_.front().member.communicator);
      if (!error.empty()) throw EnvironmentError("NCCL: " + error);
      if (kind_ == SampleKind::kPointToPoint) {
        send(0, 1);
        send(1, 0);
      } else {
        queue_all();
      }
    } catch (const EnvironmentError& failure) {
      messages_.give_up(failure.what());
      throw;
    }
  }

 private:
  struct End {
    Member member;
    Buffer input;
    Buffer output;
  };

  void send(std::size_t from, std::size_t to) const {
    NcclGroup group(nccl_);
    const Member& sender = ends_[from].member;
    const Member& receiver = ends_[to].member;
    use(sender.gpu);
    nccl_.send(ends_[from].input, static_cast<int>(to), sender.communicator, sender.stream);
    use(receiver.gpu);
    nccl_.receive(ends_[to].output, static_cast<int>(from), receiver.communicator, receiver.stream);
    group.end();
  }

  void queue_all() const {
    NcclGroup group(nccl_);
    for (const End& end : ends_) {
      use(end.member.gpu);
      queue_end(end);
    }
    group.end();
  }

  void queue_end(const End& end) const {
    const Member& member = end.member;
    if (kind_ != sample_of(CollectiveKind::kAllToAll)) {
      return nccl_.collect({.kind = *collective_of(kind_), .input = end.input, .output = end.output},
                           member.communicator, member.stream);
    }
    const std::size_t part = end.input.bytes() / ends_.size();
    for (std::size_t other = 0; other < ends_.size(); ++other) {
      const auto peer = static_cast<int>(other);
      nccl_.send(end.input.slice(other * part, part), peer, member.communicator, member.stream);
      nccl_.receive(end.output.slice(other * part, part), peer, member.communicator, member.stream);
    }
  }

  NcclMessages& messages_;
  NcclApi& nccl_;
  SampleKind kind_;
  std::vector<End> ends_;
};

NcclMessages::~NcclMessages() {
  for (const auto& [group, members] : groups_) {
    for (const Member& member : members) {
      cudaSetDevice(member.gpu);
      if (member.communicator != nullptr) nccl_->leave(member.communicator);
      cudaStreamDestroy(member.stream);
    }
  }
  cudaSetDevice(0);
}

QueuedWorkload NcclMessages::make(const SampleKey& key) {
  const bool pair = key.kind == SampleKind::kPointToPoint;
  if (!pair && (!collective_of(key.kind) || key.kind == sample_of(CollectiveKind::kBroadcast))) {
    throw EnvironmentError("cannot be measured as a message");
  }
  throw_if_failed();
  const std::vector<Member>& members = group_of(key.ranks, key.channels);
  const auto ends = std::make_shared<Ends>(*this, key, members);
  // For a one-way message only the sender's end could be timed, and the next would begin before this one arrives: a
  // round trip is timed and halved.
  constexpr double kOneWay = 0.5;
  return {members.front().stream, [ends](int /*round*/) { ends->queue(); },
          [this, &members](bool late) { watch(members, late); }, pair ? kOneWay : 1.0};
}

const std::vector<NcclMessages::Member>& NcclMessages::group_of(int ranks, int channels) {
  FLOPCAST_CHECK(ranks >= 2);
  const GroupName name{ranks, channels};
  const auto found = groups_.find(name);
  if (found != groups_.end()) return found->second;
  if (const auto refused = not_made_.find(name); refused != not_made_.end()) throw EnvironmentError(refused->second);
  const FirstGpuAgain again;
  std::vector<Member> members(static_cast<std::size_t>(ranks));
  try {
    for (int index = 0; index < ranks; ++index) {
      Member& member = members[static_cast<std::size_t>(index)];
      member.gpu = index;
      use(index);
      member.stream = new_stream();
    }
    join(members, channels);
  } catch (const EnvironmentError& error) {
    not_made_[name] = error.what();
    std::vector<Member*> made;
    for (Member& member : members) made.push_back(&member);
    abort(made);
    for (const Member& member : members) {
      if (member.stream != nullptr) cudaStreamDestroy(member.stream);
    }
    static_cast<void>(cudaGetLastError());
    throw;
  }
  return groups_.emplace(name, std::move(members)).first->second;
}

// Joins in one NCCL group from one thread: if one member fails, NCCL also ends the other joins.
void NcclMessages::join(std::vector<Member>& members, int channels) {
  const NcclId id = nccl_->new_id();
  NcclGroup group(*nccl_);
  for (std::size_t index = 0; index < members.size(); ++index) {
    use(members[index].gpu);
    nccl_->begin_join(id, static_cast<int>(members.size()), static_cast<int>(index), channels,
                      members[index].communicator);
  }
  group.end();
}

void NcclMessages::watch(const std::vector<Member>& members, bool late) {
  throw_if_failed();
  std::string reason = late ? "a message between the GPUs has not completed" : "";
  for (const Member& member : members) {
    const std::string error = nccl_->error_of(member.communicator);
    if (!error.empty()) reason = "NCCL: " + error;
  }
  if (reason.empty()) return;
  give_up(reason);
  throw EnvironmentError(reason);
}

void NcclMessages::throw_if_failed() const {
  if (!failure_.empty()) throw EnvironmentError("no further messages after one failed: " + failure_);
}

void NcclMessages::give_up(const std::string& reason) {
  if (!failure_.empty()) return;
  failure_ = reason.substr(0, reason.find('\n'));
  std::vector<Member*> all;
  for (auto& [name, members] : groups_) {
    for (Member& member : members) all.push_back(&member);
  }
  abort(all);
}

// All concurrently: an abort may wait until its GPU is idle, and the other members' messages run until they are
// aborted.
void NcclMessages::abort(const std::vector<Member*>& members) {
  std::vector<std::thread> threads;
  for (Member* member : members) {
    if (member->communicator == nullptr) continue;
    threads.emplace_back(
        [this, communicator = std::exchange(member->communicator, nullptr)] { nccl_->abort(communicator); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace flopcast::realrun::cuda
