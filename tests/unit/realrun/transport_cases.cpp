#include "tests/unit/realrun/transport_cases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "realrun/compute/host_device.hpp"
#include "realrun/transport/transport.hpp"

namespace flopcast::realrun {

namespace {

Buffer floats(const std::vector<float>& values) {
  const Buffer buffer = allocate_host(values.size() * sizeof(float));
  std::copy(values.begin(), values.end(), host_floats(buffer));
  return buffer;
}

std::vector<float> values_of(const Buffer& buffer) {
  return {host_floats(buffer), host_floats(buffer) + buffer.bytes() / sizeof(float)};
}

// Rank r's value at i: small whole numbers, so that sums are exact.
std::vector<float> input_of(int rank, int count) {
  std::vector<float> values;
  for (int index = 0; index < count; ++index) values.push_back(static_cast<float>(rank * 100 + index));
  return values;
}

std::vector<float> sum_over(int ranks, int count) {
  std::vector<float> sums(static_cast<std::size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> input = input_of(rank, count);
    for (std::size_t index = 0; index < sums.size(); ++index) sums[index] += input[index];
  }
  return sums;
}

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

void check_all_reduce(RankTransport& transport) {
  constexpr int kCount = 13;  // not a multiple of any number of ranks
  const int ranks = transport.rank_count();
  const Group group = transport.form_group(Axis::kData, first_ranks(ranks));
  const Buffer in_place = floats(input_of(transport.rank(), kCount));
  const std::uint64_t before = transport.traffic().of(CollectiveKind::kAllReduce, Axis::kData).bytes;
  transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = in_place, .output = in_place});
  EXPECT_EQ(values_of(in_place), sum_over(ranks, kCount));
  // Together 2(n-1)·S, whichever rank has the larger part.
  if (ranks > 1) {
    const std::size_t own = part_of(kCount, transport.rank(), ranks).count;
    EXPECT_EQ(transport.traffic().of(CollectiveKind::kAllReduce, Axis::kData).bytes - before,
              (kCount + own * static_cast<std::size_t>(ranks - 2)) * sizeof(float));
  }
  const Buffer largest = allocate_host(kCount * sizeof(float));
  transport.run(group, {.kind = CollectiveKind::kAllReduce,
                        .input = floats(input_of(transport.rank(), kCount)),
                        .output = largest,
                        .reduction = Reduction::kMax});
  EXPECT_EQ(values_of(largest), input_of(ranks - 1, kCount));
}

void check_scatter_gather_and_broadcast(RankTransport& transport) {
  constexpr int kShare = 3;
  const int ranks = transport.rank_count();
  const Group group = transport.form_group(Axis::kTensor, first_ranks(ranks));
  const Buffer share = allocate_host(kShare * sizeof(float));
  transport.run(group, {.kind = CollectiveKind::kReduceScatter,
                        .input = floats(input_of(transport.rank(), kShare * ranks)),
                        .output = share});
  const std::vector<float> sums = sum_over(ranks, kShare * ranks);
  const auto first = sums.begin() + transport.rank() * kShare;
  EXPECT_EQ(values_of(share), std::vector<float>(first, first + kShare));

  const Buffer whole = allocate_host(static_cast<std::size_t>(kShare * ranks) * sizeof(float));
  transport.run(group, {.kind = CollectiveKind::kAllGather, .input = share, .output = whole});
  EXPECT_EQ(values_of(whole), sums);

  const Buffer text = floats(input_of(transport.rank(), 2));
  transport.run(group, {.kind = CollectiveKind::kBroadcast, .output = text, .root = ranks - 1});
  EXPECT_EQ(values_of(text), input_of(ranks - 1, 2));

  const auto share_bytes = static_cast<std::uint64_t>(ranks - 1) * kShare * sizeof(float);
  const SentTraffic traffic = transport.traffic();
  EXPECT_EQ(traffic.of(CollectiveKind::kReduceScatter, Axis::kTensor).bytes, share_bytes);
  EXPECT_EQ(traffic.of(CollectiveKind::kAllGather, Axis::kTensor).bytes, share_bytes);
  EXPECT_EQ(traffic.of(CollectiveKind::kBroadcast, Axis::kTensor).bytes,
            transport.rank() == ranks - 1 ? static_cast<std::uint64_t>(ranks - 1) * 2 * sizeof(float) : 0U);
}

void check_all_to_all(RankTransport& transport) {
  constexpr int kPart = 2;
  const int ranks = transport.rank_count();
  const Group group = transport.form_group(Axis::kTensor, first_ranks(ranks));
  const Buffer received = allocate_host(static_cast<std::size_t>(kPart * ranks) * sizeof(float));
  const SentTraffic before = transport.traffic();
  transport.run(group, {.kind = CollectiveKind::kAllToAll,
                        .input = floats(input_of(transport.rank(), kPart * ranks)),
                        .output = received});
  std::vector<float> expected;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<float> theirs = input_of(rank, kPart * ranks);
    const auto part = theirs.begin() + transport.rank() * kPart;
    expected.insert(expected.end(), part, part + kPart);
  }
  EXPECT_EQ(values_of(received), expected);
  EXPECT_EQ((transport.traffic() - before).of(CollectiveKind::kAllToAll, Axis::kTensor).bytes,
            static_cast<std::uint64_t>(ranks - 1) * kPart * sizeof(float));
}

void check_order_of_additions(RankTransport& transport) {
  const int ranks = transport.rank_count();
  const auto value_of = [](int rank, int index) {
    return std::sin(static_cast<float>(rank * 31 + index)) * std::pow(10.0F, static_cast<float>((rank + index) % 9));
  };
  constexpr int kCount = 257;
  std::vector<float> own;
  std::vector<float> expected;
  for (int index = 0; index < kCount; ++index) {
    own.push_back(value_of(transport.rank(), index));
    float sum = value_of(0, index);
    for (int rank = 1; rank < ranks; ++rank) sum += value_of(rank, index);
    expected.push_back(sum);
  }
  const Group group = transport.form_group(Axis::kData, first_ranks(ranks));
  const Buffer buffer = floats(own);
  transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = buffer, .output = buffer});
  EXPECT_EQ(values_of(buffer), expected);
}

void check_order_of_started_collectives(RankTransport& transport) {
  const int ranks = transport.rank_count();
  const Group group = transport.form_group(Axis::kData, first_ranks(ranks));
  const Buffer value = floats({1.0F});
  std::vector<Request> started;
  float expected = 1;
  for (int round = 0; round < 4; ++round) {
    started.push_back(transport.start(group, {.kind = CollectiveKind::kAllReduce, .input = value, .output = value}));
    expected *= static_cast<float>(ranks);
  }
  transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = value, .output = value});
  EXPECT_EQ(values_of(value), std::vector<float>{expected * static_cast<float>(ranks)});
  for (const Request& request : started) {
    transport.wait(request);
    EXPECT_GE(request->interval().end.ticks, request->interval().start.ticks);
  }
}

void check_messages(RankTransport& transport) {
  const int ranks = transport.rank_count();
  if (ranks == 1) return;
  const int next = (transport.rank() + 1) % ranks;
  const int previous = (transport.rank() + ranks - 1) % ranks;
  const SentTraffic before = transport.traffic();
  const auto own = static_cast<float>(transport.rank());
  const MessageKey gradient{3, 0, false};
  const MessageKey activation{3, 0, true};
  transport.send(next, gradient, floats({own + 7.0F}));
  const Buffer sent = floats({own});
  transport.send(next, activation, sent);
  const Buffer received = allocate_host(sizeof(float));
  transport.wait(transport.receive(previous, activation, received));
  EXPECT_EQ(values_of(received), std::vector<float>{static_cast<float>(previous)});
  EXPECT_NE(received.address(), sent.address());
  transport.wait(transport.receive(previous, gradient, received));
  EXPECT_EQ(values_of(received), std::vector<float>{static_cast<float>(previous) + 7.0F});

  constexpr std::size_t kLong = 300'000;
  constexpr std::uint32_t kMessages = 4;
  std::vector<Buffer> taken;
  std::vector<Request> receives;
  for (std::uint32_t message = 0; message < kMessages; ++message) {
    taken.push_back(allocate_host(kLong * sizeof(float)));
    receives.push_back(transport.receive(previous, {1, message, true}, taken.back()));
  }
  for (std::uint32_t message = 0; message < kMessages; ++message) {
    transport.send(next, {1, message, true}, floats(std::vector<float>(kLong, own + static_cast<float>(message))));
    transport.poke();
  }
  for (std::uint32_t message = 0; message < kMessages; ++message) {
    transport.wait(receives[message]);
    EXPECT_EQ(values_of(taken[message]),
              std::vector<float>(kLong, static_cast<float>(previous) + static_cast<float>(message)));
  }
  const TrafficCount count = (transport.traffic() - before).point_to_point;
  EXPECT_EQ(count.messages, kMessages + 2U);
  EXPECT_EQ(count.bytes, (kMessages * kLong + 2U) * sizeof(float));
}

void check_groups(RankTransport& transport) {
  std::vector<int> even;
  for (int rank = 0; rank < transport.rank_count(); rank += 2) even.push_back(rank);
  const Group group = transport.form_group(Axis::kData, even);
  EXPECT_EQ(group.size(), transport.rank() % 2 == 0 ? static_cast<int>(even.size()) : 0);
  if (group.size() == 0) return;
  EXPECT_EQ(group.index, transport.rank() / 2);
  const Buffer value = floats({static_cast<float>(transport.rank())});
  transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = value, .output = value});
  EXPECT_EQ(values_of(value)[0], static_cast<float>(std::accumulate(even.begin(), even.end(), 0)));
}

namespace {

// One collective with every member's input and this member's expected output.
struct Trial {
  Collective collective;
  std::vector<float> expected;
};

Trial make_trial(std::minstd_rand& dice, const Group& group) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto index = static_cast<std::size_t>(group.index);
  const auto kind = static_cast<CollectiveKind>(dice() % 5);
  const std::size_t count = dice() % 3 == 0 ? dice() % 20'000 : dice() % 9;
  const bool has_parts = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kAllToAll;
  const std::size_t input_count = has_parts ? count * size : count;
  std::vector<std::vector<float>> inputs(size);
  for (std::vector<float>& input : inputs) {
    for (std::size_t item = 0; item < input_count; ++item) input.push_back(static_cast<float>(dice() % 1000));
  }
  Trial trial;
  const auto root = static_cast<std::size_t>(dice() % size);
  trial.collective = {.kind = kind, .input = floats(inputs[index]), .root = static_cast<int>(root)};
  std::vector<float> sums = inputs[0];
  for (std::size_t member = 1; member < size; ++member) {
    for (std::size_t item = 0; item < input_count; ++item) sums[item] += inputs[member][item];
  }
  const auto own_part = [&](const std::vector<float>& values) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(index * count);
    return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(count));
  };
  switch (kind) {
    case CollectiveKind::kAllReduce:
      trial.expected = sums;
      break;
    case CollectiveKind::kReduceScatter:
      trial.expected = own_part(sums);
      break;
    case CollectiveKind::kAllToAll:
      for (const std::vector<float>& input : inputs) {
        const std::vector<float> part = own_part(input);
        trial.expected.insert(trial.expected.end(), part.begin(), part.end());
      }
      break;
    case CollectiveKind::kAllGather:
      for (const std::vector<float>& input : inputs)
        trial.expected.insert(trial.expected.end(), input.begin(), input.end());
      break;
    default:
      trial.expected = inputs[root];
      trial.collective.output = trial.collective.input;
      return trial;
  }
  trial.collective.output = allocate_host(trial.expected.size() * sizeof(float));
  return trial;
}

}  // namespace

void check_random_collectives(RankTransport& transport) {
  const int ranks = transport.rank_count();
  // The sets of ranks, by the bits of a number.
  std::vector<Group> groups;
  for (int bits = 1; bits < 1 << ranks; ++bits) {
    std::vector<int> members;
    for (int rank = 0; rank < ranks; ++rank) {
      if ((bits >> rank & 1) != 0) members.push_back(rank);
    }
    groups.push_back(transport.form_group(Axis::kData, members));
  }
  std::minstd_rand dice(5);
  std::vector<std::pair<Request, Trial>> open;
  const auto close = [&] {
    for (auto& [request, trial] : open) {
      transport.wait(request);
      EXPECT_EQ(values_of(trial.collective.output), trial.expected);
    }
    open.clear();
  };
  constexpr int kTrials = 300;
  for (int number = 0; number < kTrials; ++number) {
    const Group& group = groups[dice() % groups.size()];
    const auto seed = static_cast<std::uint32_t>(dice());
    const bool starts = dice() % 2 == 0;
    const bool closes = dice() % 5 == 0;
    if (group.size() > 0) {
      std::minstd_rand own_dice(seed);
      Trial trial = make_trial(own_dice, group);
      if (starts) {
        const Request request = transport.start(group, trial.collective);
        open.emplace_back(request, std::move(trial));
      } else {
        transport.run(group, trial.collective);
        EXPECT_EQ(values_of(trial.collective.output), trial.expected) << "trial " << number;
      }
    }
    transport.poke();
    if (closes) close();
  }
  close();
}

}  // namespace flopcast::realrun
