#include "tests/realrun/queued/fake_nccl.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <set>
#include <stdexcept>
#include <utility>

#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

/// One member's part in one operation, as addresses without ownership.
struct FakePart {
  struct Message {
    int peer = 0;
    std::byte* address = nullptr;
    std::size_t bytes = 0;
  };
  std::vector<Message> sends;
  std::vector<Message> receives;
  bool collective = false;
  CollectiveKind kind = CollectiveKind::kBarrier;
  Element element = Element::kFloat32;
  Reduction reduction = Reduction::kSum;
  int root = 0;
  std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t input_bytes = 0;
  std::size_t output_bytes = 0;
};

}  // namespace

struct FakeCommunicator {
  std::mutex mutex;
  std::condition_variable changed;
  int members = 0;
  int joined = 0;
  bool aborted = false;
  bool given_up = false;
  std::size_t round = 0;
  std::vector<const FakePart*> parts;  // of the current operation, by member
  int present = 0;

  // The parts of all members; empty if the communicator was aborted before all had arrived.
  std::vector<const FakePart*> meet(int index, const FakePart* part) {
    std::unique_lock lock(mutex);
    parts.resize(static_cast<std::size_t>(members));
    parts[static_cast<std::size_t>(index)] = part;
    const std::size_t now = round;
    if (++present == members) {
      present = 0;
      ++round;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return aborted || round != now; });
    return round != now ? parts : std::vector<const FakePart*>{};
  }
};

struct FakeMember {
  std::shared_ptr<FakeCommunicator> communicator;
  int index = 0;
  int blocks = 0;
  std::set<WorkQueue*> queues = {};
  std::atomic<bool> gone = false;  // left or aborted
};

namespace {

thread_local std::vector<std::pair<std::pair<FakeMember*, void*>, FakePart>> grouped;

void take_messages(const std::vector<const FakePart*>& parts, int index) {
  for (const FakePart::Message& wanted : parts[static_cast<std::size_t>(index)]->receives) {
    for (const FakePart::Message& sent : parts[static_cast<std::size_t>(wanted.peer)]->sends) {
      if (sent.peer == index) std::memcpy(wanted.address, sent.address, wanted.bytes);
    }
  }
}

// Written to separate memory, because others still read the inputs, which may be the outputs.
std::vector<std::byte> result_of(const std::vector<const FakePart*>& parts, int index) {
  const FakePart& own = *parts[static_cast<std::size_t>(index)];
  std::vector<std::byte> result(own.output_bytes);
  const std::size_t element = size_of(own.element);
  if (own.kind == CollectiveKind::kBroadcast) {
    std::memcpy(result.data(), parts[static_cast<std::size_t>(own.root)]->output, result.size());
  } else if (own.kind == CollectiveKind::kAllGather) {
    for (std::size_t member = 0; member < parts.size(); ++member) {
      std::memcpy(result.data() + member * own.input_bytes, parts[member]->input, own.input_bytes);
    }
  } else {
    const bool scatters = own.kind == CollectiveKind::kReduceScatter;
    const std::size_t offset = scatters ? static_cast<std::size_t>(index) * own.output_bytes : 0;
    std::vector<const std::byte*> inputs;
    for (const FakePart* part : parts) inputs.push_back(part->input + offset);
    reduce_in_order(inputs, own.output_bytes / element, own.element, own.reduction, result.data());
  }
  return result;
}

void carry_out(FakeMember* member, const FakePart& part) {
  FakeCommunicator& communicator = *member->communicator;
  const std::vector<const FakePart*> parts = communicator.meet(member->index, &part);
  if (parts.empty()) return;
  std::vector<std::byte> result;
  if (part.collective) {
    result = result_of(parts, member->index);
  } else {
    take_messages(parts, member->index);
  }
  if (communicator.meet(member->index, &part).empty()) return;
  if (part.collective && !result.empty()) std::memcpy(part.output, result.data(), result.size());
}

NcclPart logged(const FakeMember& member, const FakePart& part) {
  NcclPart result{.communicator = member.communicator.get(),
                  .members = member.communicator->members,
                  .message = part.sends.size() + part.receives.size() == 1,
                  .blocks = member.blocks};
  // Operations of a communicator run one after another, each with exclusive access.
  OrderLog::note_use(&member, 1, true);
  if (part.collective) {
    const std::size_t bytes = part.kind == CollectiveKind::kReduceScatter ? part.output_bytes : part.input_bytes;
    const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
    result.what = std::string(name_of(part.kind)) + " of " + std::to_string(bytes) + " bytes";
    if (part.kind == CollectiveKind::kBroadcast) {
      result.what += ", root " + number(part.root);
    } else if (part.kind != CollectiveKind::kAllGather) {
      result.what += ", element " + number(part.element) + ", reduction " + number(part.reduction);
    }
    OrderLog::note_use(part.input, part.input_bytes, false);
    OrderLog::note_use(part.output, part.output_bytes, true);
  }
  for (const FakePart::Message& sent : part.sends) {
    result.sends.emplace_back(member.index, sent.peer, sent.bytes);
    OrderLog::note_use(sent.address, sent.bytes, false);
  }
  for (const FakePart::Message& wanted : part.receives) {
    result.receives.emplace_back(wanted.peer, member.index, wanted.bytes);
    OrderLog::note_use(wanted.address, wanted.bytes, true);
  }
  return result;
}

void add(void* communicator, void* stream, FakePart part) {
  auto* member = static_cast<FakeMember*>(communicator);
  if (member->gone) throw std::runtime_error("an operation of a communicator that was left or aborted");
  if (OrderLog::open_groups == 0) {
    member->queues.insert(static_cast<WorkQueue*>(stream));
    NcclPart log = logged(*member, part);
    static_cast<WorkQueue*>(stream)->add([member, part = std::move(part)] { carry_out(member, part); }, std::move(log));
    return;
  }
  for (auto& [place, before] : grouped) {
    if (place != std::pair(member, stream)) continue;
    before.sends.insert(before.sends.end(), part.sends.begin(), part.sends.end());
    before.receives.insert(before.receives.end(), part.receives.begin(), part.receives.end());
    return;
  }
  grouped.push_back({{member, stream}, std::move(part)});
}

}  // namespace

NcclId FakeNccl::new_id() {
  const std::lock_guard lock(mutex_);
  NcclId id;
  const int number = ++ids_;
  std::memcpy(id.bytes.data(), &number, sizeof(number));
  return id;
}

NcclApi::Communicator FakeNccl::join(const NcclId& id, int members, int index, int blocks) {
  std::shared_ptr<FakeCommunicator> communicator;
  FakeMember* member = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<FakeCommunicator>& known = communicators_[std::string(id.bytes.begin(), id.bytes.end())];
    if (known == nullptr) known = std::make_shared<FakeCommunicator>();
    communicator = known;
    members_.push_back(std::make_shared<FakeMember>());
    members_.back()->communicator = communicator;
    members_.back()->index = index;
    members_.back()->blocks = blocks;
    joined_.push_back({members, blocks});
    member = members_.back().get();
  }
  std::unique_lock lock(communicator->mutex);
  communicator->members = members;
  ++communicator->joined;
  communicator->changed.notify_all();
  communicator->changed.wait(lock, [&] { return communicator->joined >= members || communicator->given_up; });
  if (communicator->joined < members) throw std::runtime_error("the others did not join");
  return member;
}

void FakeNccl::begin_join(const NcclId& /*id*/, int /*members*/, int /*index*/, int /*blocks*/,
                          Communicator& /*into*/) {
  throw std::runtime_error("every member has its own thread here");
}

void FakeNccl::begin_group() {
  ++OrderLog::open_groups;
}

void FakeNccl::end_group() {
  if (OrderLog::open_groups == 0) throw std::runtime_error("a group was ended without being begun");
  if (--OrderLog::open_groups > 0) return;
  for (auto& [place, part] : std::exchange(grouped, {})) add(place.first, place.second, std::move(part));
}

void FakeNccl::send(const Buffer& buffer, int to, Communicator communicator, void* stream) {
  if (on_send_) on_send_();
  FakePart part;
  part.sends.push_back({to, buffer.address(), buffer.bytes()});
  add(communicator, stream, part);
}

void FakeNccl::receive(const Buffer& into, int from, Communicator communicator, void* stream) {
  FakePart part;
  part.receives.push_back({from, into.address(), into.bytes()});
  add(communicator, stream, part);
}

void FakeNccl::collect(const Collective& collective, Communicator communicator, void* stream) {
  FakePart part;
  part.collective = true;
  part.kind = collective.kind;
  part.element = collective.element;
  part.reduction = collective.reduction;
  part.root = collective.root;
  part.input = collective.input.address();
  part.output = collective.output.address();
  part.input_bytes = collective.input.bytes();
  part.output_bytes = collective.output.bytes();
  add(communicator, stream, part);
}

std::string FakeNccl::error_of(Communicator /*communicator*/) {
  const std::lock_guard lock(mutex_);
  return error_;
}

void FakeNccl::abort(Communicator communicator) {
  static_cast<FakeMember*>(communicator)->gone = true;
  FakeCommunicator& aborted = *static_cast<FakeMember*>(communicator)->communicator;
  {
    const std::lock_guard lock(aborted.mutex);
    aborted.aborted = true;
    aborted.changed.notify_all();
  }
  std::unique_lock lock(mutex_);
  ++aborts_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return aborts_ >= aborts_needed_; });
}

void FakeNccl::leave(Communicator communicator) {
  auto* member = static_cast<FakeMember*>(communicator);
  member->gone = true;
  if (on_leave_) on_leave_();
  // As in ncclCommFinalize: work in progress is completed first.
  for (WorkQueue* queue : member->queues) queue->record()->time();
}

std::vector<FakeNccl::Joined> FakeNccl::joined() {
  const std::lock_guard lock(mutex_);
  return joined_;
}

int FakeNccl::made() {
  const std::lock_guard lock(mutex_);
  return ids_;
}

void FakeNccl::hold_aborts_until(int count) {
  const std::lock_guard lock(mutex_);
  aborts_needed_ = count;
}

void FakeNccl::give_up() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, communicator] : communicators_) {
    const std::lock_guard held(communicator->mutex);
    communicator->given_up = true;
    communicator->changed.notify_all();
  }
}

void FakeNccl::break_with(const std::string& error) {
  const std::lock_guard lock(mutex_);
  error_ = error;
}

}  // namespace flopcast::realrun
