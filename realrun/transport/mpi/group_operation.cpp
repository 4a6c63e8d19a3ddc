#include "realrun/transport/mpi/group_operation.hpp"

#include <utility>

#include "model/error/error.hpp"
#include "realrun/transport/reduce.hpp"

namespace flopcast::realrun {

GroupOperation::GroupOperation(MPI_Comm channel, int tag, const Group& group, const Collective& collective)
    : channel_(channel), tag_(tag), group_(group), collective_(collective) {
  begin();
}

void GroupOperation::begin() {
  const std::size_t size = static_cast<std::size_t>(group_.size());
  switch (collective_.kind) {
    case CollectiveKind::kAllReduce:
      FLOPCAST_CHECK(collective_.input.bytes() == collective_.output.bytes());
      return begin_reduction();
    case CollectiveKind::kReduceScatter:
      FLOPCAST_CHECK(collective_.input.bytes() == collective_.output.bytes() * size);
      return begin_reduction();
    case CollectiveKind::kAllGather: {
      FLOPCAST_CHECK(collective_.output.bytes() == collective_.input.bytes() * size);
      std::byte* own = collective_.output.address() + part(group_.index).first;
      if (own != collective_.input.address()) copy_bytes(own, collective_.input.address(), collective_.input.bytes());
      return begin_collection();
    }
    case CollectiveKind::kAllToAll:
      FLOPCAST_CHECK(collective_.input.bytes() == collective_.output.bytes());
      FLOPCAST_CHECK(collective_.output.bytes() % size == 0);
      return begin_exchange();
    case CollectiveKind::kBroadcast:
      return begin_broadcast();
    case CollectiveKind::kBarrier:
      break;
  }
  begin_collection();
}

// Of the whole data: elements stay whole where they are added up.
GroupOperation::Bytes GroupOperation::part(int member) const {
  const bool gathers = collective_.kind == CollectiveKind::kAllGather;
  const std::size_t unit = gathers ? 1 : size_of(collective_.element);
  const std::size_t bytes = gathers ? collective_.output.bytes() : collective_.input.bytes();
  const Part elements = part_of(bytes / unit, member, group_.size());
  return {elements.first * unit, elements.count * unit};
}

void GroupOperation::begin_reduction() {
  phase_ = Phase::kReduce;
  const Bytes own = part(group_.index);
  received_.resize(own.count * static_cast<std::size_t>(group_.size() - 1));
  std::byte* into = received_.data();
  for (int member = 0; member < group_.size(); ++member) {
    if (member == group_.index) continue;
    receive(member, into, own.count);
    into += own.count;
    const Bytes theirs = part(member);
    send(member, collective_.input.address() + theirs.first, theirs.count);
  }
}

void GroupOperation::end_reduction() {
  const Bytes own = part(group_.index);
  std::vector<const std::byte*> inputs;
  const std::byte* next = received_.data();
  for (int member = 0; member < group_.size(); ++member) {
    const bool is_own = member == group_.index;
    inputs.push_back(is_own ? collective_.input.address() + own.first : next);
    if (!is_own) next += own.count;
  }
  const bool stays = collective_.kind == CollectiveKind::kAllReduce;
  reduce_in_order(inputs, own.count / size_of(collective_.element), collective_.element, collective_.reduction,
                  collective_.output.address() + (stays ? own.first : 0));
  received_ = {};
}

void GroupOperation::begin_collection() {
  phase_ = Phase::kCollect;
  const Bytes own = part(group_.index);
  for (int member = 0; member < group_.size(); ++member) {
    if (member == group_.index) continue;
    const Bytes theirs = part(member);
    receive(member, collective_.output.address() + theirs.first, theirs.count);
    send(member, collective_.output.address() + own.first, own.count);
  }
}

void GroupOperation::begin_exchange() {
  phase_ = Phase::kCollect;
  const std::size_t bytes = collective_.output.bytes() / static_cast<std::size_t>(group_.size());
  for (int member = 0; member < group_.size(); ++member) {
    const std::size_t offset = static_cast<std::size_t>(member) * bytes;
    if (member == group_.index) {
      copy_bytes(collective_.output.address() + offset, collective_.input.address() + offset, bytes);
      continue;
    }
    receive(member, collective_.output.address() + offset, bytes);
    send(member, collective_.input.address() + offset, bytes);
  }
}

void GroupOperation::begin_broadcast() {
  phase_ = Phase::kCollect;
  const Buffer& data = collective_.output;
  if (group_.index != collective_.root) return receive(collective_.root, data.address(), data.bytes());
  for (int member = 0; member < group_.size(); ++member) {
    if (member != group_.index) send(member, data.address(), data.bytes());
  }
}

void GroupOperation::send(int member, const std::byte* from, std::size_t bytes) {
  const int rank = group_.members[static_cast<std::size_t>(member)];
  messages_.push_back({send_bytes(from, bytes, rank, tag_, channel_), member, false, bytes});
  bytes_sent_ += bytes;
}

void GroupOperation::receive(int member, std::byte* into, std::size_t bytes) {
  const int rank = group_.members[static_cast<std::size_t>(member)];
  messages_.push_back({receive_bytes(into, bytes, rank, tag_, channel_), member, true, bytes});
}

bool GroupOperation::progress() {
  while (phase_ != Phase::kDone) {
    std::vector<Message> left;
    for (Message& message : messages_) {
      const bool ended = message.incoming ? has_received(message.request, message.bytes) : has_ended(message.request);
      if (!ended) left.push_back(message);
    }
    messages_ = std::move(left);
    if (!messages_.empty()) return false;
    const bool reduced = phase_ == Phase::kReduce;
    phase_ = Phase::kDone;
    if (reduced) end_reduction();
    if (reduced && collective_.kind == CollectiveKind::kAllReduce) begin_collection();
  }
  return true;
}

std::vector<int> GroupOperation::awaited() const {
  std::vector<int> ranks;
  for (const Message& message : messages_) {
    if (message.incoming) ranks.push_back(group_.members[static_cast<std::size_t>(message.member)]);
  }
  return ranks;
}

}  // namespace flopcast::realrun
