// Messages and collectives between threads against sums done by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "realrun/compute/cpu/host_device.hpp"
#include "realrun/transport/threads/run_threads.hpp"

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

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, AllReduce) {
  const int ranks = GetParam();
  constexpr int kCount = 13;  // no multiple of any number of ranks
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(ranks));
  run_threads(ranks, {}, [&](Transport& transport) {
    const Group group = transport.form_group(Axis::kData, first_ranks(ranks));
    const Buffer in_place = floats(input_of(transport.rank(), kCount));
    transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = in_place, .output = in_place});
    EXPECT_EQ(values_of(in_place), sum_over(ranks, kCount));
    sent[static_cast<std::size_t>(transport.rank())] =
        transport.traffic().of(CollectiveKind::kAllReduce, Axis::kData).bytes;

    const Buffer largest = allocate_host(kCount * sizeof(float));
    transport.run(group, {.kind = CollectiveKind::kAllReduce,
                          .input = floats(input_of(transport.rank(), kCount)),
                          .output = largest,
                          .reduction = Reduction::kMax});
    EXPECT_EQ(values_of(largest), input_of(ranks - 1, kCount));
  });
  // Together 2(n-1)·S, whoever has the larger part.
  EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), std::uint64_t{0}),
            2U * static_cast<unsigned>(ranks - 1) * kCount * sizeof(float));
}

TEST_P(Collectives, ReduceScatterAllGatherAndBroadcast) {
  const int ranks = GetParam();
  constexpr int kShare = 3;
  run_threads(ranks, {}, [&](Transport& transport) {
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
    EXPECT_EQ(transport.traffic().of(CollectiveKind::kReduceScatter, Axis::kTensor).bytes, share_bytes);
    EXPECT_EQ(transport.traffic().of(CollectiveKind::kAllGather, Axis::kTensor).bytes, share_bytes);
  });
}

TEST_P(Collectives, AllToAll) {
  const int ranks = GetParam();
  constexpr int kPart = 2;
  run_threads(ranks, {}, [&](Transport& transport) {
    const Group group = transport.form_group(Axis::kTensor, first_ranks(ranks));
    const Buffer received = allocate_host(static_cast<std::size_t>(kPart * ranks) * sizeof(float));
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
    EXPECT_EQ(transport.traffic().of(CollectiveKind::kAllToAll, Axis::kTensor).bytes,
              static_cast<std::uint64_t>(ranks - 1) * kPart * sizeof(float));
  });
}

INSTANTIATE_TEST_SUITE_P(OverRanks, Collectives, testing::Values(1, 2, 3, 5));

TEST(ThreadTransport, StartedCollectivesKeepTheOrderOfTheirGroup) {
  run_threads(3, {}, [](Transport& transport) {
    const Group group = transport.form_group(Axis::kData, {0, 1, 2});
    const Buffer value = floats({1.0F});
    std::vector<Request> started;
    // Each triples the value; a call that waits comes after those that were started.
    for (int round = 0; round < 4; ++round) {
      started.push_back(transport.start(group, {.kind = CollectiveKind::kAllReduce, .input = value, .output = value}));
    }
    transport.run(group, {.kind = CollectiveKind::kAllReduce, .input = value, .output = value});
    EXPECT_EQ(values_of(value), std::vector<float>{243.0F});
    for (const Request& request : started) {
      transport.wait(request);
      EXPECT_GE(request->interval().end, request->interval().start);
    }
  });
}

TEST(ThreadTransport, MessagesAreTakenByKeyAndCopied) {
  run_threads(2, {}, [](Transport& transport) {
    const int peer = 1 - transport.rank();
    const Buffer sent = floats({static_cast<float>(transport.rank())});
    const MessageKey first{3, 0, true};
    const MessageKey second{3, 0, false};
    transport.send(peer, second, floats({7.0F}));
    transport.send(peer, first, sent);
    const Buffer received = allocate_host(sizeof(float));
    transport.wait(transport.receive(peer, first, received));
    EXPECT_EQ(values_of(received), std::vector<float>{static_cast<float>(peer)});
    EXPECT_NE(received.address(), sent.address());
    transport.wait(transport.receive(peer, second, received));
    EXPECT_EQ(values_of(received), std::vector<float>{7.0F});
    EXPECT_EQ(transport.traffic().point_to_point.messages, 2U);
    EXPECT_EQ(transport.traffic().point_to_point.bytes, 2 * sizeof(float));
  });
}

TEST(ThreadTransport, OthersAreNoMembersOfAGroup) {
  run_threads(3, {}, [](Transport& transport) {
    const Group group = transport.form_group(Axis::kData, {0, 2});
    EXPECT_EQ(group.size(), transport.rank() == 1 ? 0 : 2);
    if (transport.rank() == 2) {
      EXPECT_EQ(group.index, 1);
    }
  });
}

}  // namespace
}  // namespace flopcast::realrun
