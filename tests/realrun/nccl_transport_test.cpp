// The transport over a fake NCCL: communicators, connections, queues and the watcher are those of the product. Ranks
// are threads with separate store objects, as in processes.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <thread>

#include "base/text/error.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/realrun/nccl_runs.hpp"
#include "tests/realrun/queued/queued_machine.hpp"
#include "tests/unit/realrun/transport_cases.hpp"

namespace flopcast::realrun {
namespace {

using namespace std::chrono_literals;

class NcclTransportCases : public testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(void (*check)(RankTransport&)) {
    NcclRuns runs(GetParam());
    const std::vector<std::string> failures =
        runs.run<SettledNccl>([&](NcclTransport& transport, QueuedDevice&) { check(transport); });
    EXPECT_EQ(failures, std::vector<std::string>(static_cast<std::size_t>(GetParam())));
  }
};

TEST_P(NcclTransportCases, AllReduce) {
  on_all_ranks(check_all_reduce);
}

TEST_P(NcclTransportCases, ScatterGatherAndBroadcast) {
  on_all_ranks(check_scatter_gather_and_broadcast);
}

TEST_P(NcclTransportCases, StartedCollectivesKeepTheOrderOfTheirGroup) {
  on_all_ranks(check_order_of_started_collectives);
}

TEST_P(NcclTransportCases, OthersAreNoMembersOfAGroup) {
  on_all_ranks(check_groups);
}

TEST_P(NcclTransportCases, AllToAll) {
  on_all_ranks(check_all_to_all);
}

INSTANTIATE_TEST_SUITE_P(OverRanks, NcclTransportCases, testing::Values(1, 2, 3));

std::vector<RankResult> on_nccl(const TrainingPlan& plan) {
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  NcclRuns runs(plan.ranks());
  const std::vector<std::string> failures = runs.run([&](NcclTransport& transport, QueuedDevice& device) {
    QueuedKernels kernels(device);
    train_rank(plan, {device, kernels}, transport, results[static_cast<std::size_t>(transport.rank())]);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return results;
}

TEST(NcclTraining, LossesAreThoseOfOneRank) {
  const std::vector<MatrixCase> cases = every_fourth();
  EXPECT_EQ(compare_with_references(cases, on_nccl), static_cast<int>(cases.size()));
}

TEST(NcclTraining, BytesAreThoseOfThreads) {
  const TrainingPlan plan = schedules_by_layouts().at(10).plan;
  const std::vector<RankResult> expected = train_on_threads(plan, {});
  const std::vector<RankResult> actual = on_nccl(plan);
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    const SentTraffic& sent = actual[rank].steps.back().traffic;
    const SentTraffic& due = expected[rank].steps.back().traffic;
    EXPECT_EQ(sent.point_to_point.bytes, due.point_to_point.bytes);
    EXPECT_EQ(sent.bytes_of(Axis::kData), due.bytes_of(Axis::kData));
    EXPECT_EQ(sent.bytes_of(Axis::kTensor), due.bytes_of(Axis::kTensor));
  }
}

Activity action(const char* text) {
  return {.kind = Activity::Kind::kAction, .action = *parse_action(text)};
}

TEST(NcclFaults, ARankThatThrowsIsEverybodysFailure) {
  NcclRuns runs(3);
  const std::vector<std::string> failures = runs.run([](NcclTransport& transport, QueuedDevice&) {
    const Group everybody = transport.form_group(Axis::kPipeline, {0, 1, 2});
    transport.note(action("1F2"));
    if (transport.rank() == 1) throw std::runtime_error("rank 1 failed in 1F2: out of luck");
    transport.run(everybody, {.kind = CollectiveKind::kBarrier});
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 1 failed in 1F2: out of luck");
}

TEST(NcclFaults, ARankThatStaysAwayIsNamedWithItsAction) {
  NcclRuns runs(2, 300ms);
  const std::vector<std::string> failures = runs.run([](NcclTransport& transport, QueuedDevice&) {
    const Group everybody = transport.form_group(Axis::kPipeline, {0, 1});
    transport.note(action("0B1"));
    if (transport.rank() == 1) std::this_thread::sleep_for(1s);
    transport.run(everybody, {.kind = CollectiveKind::kBarrier});
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find(" is stuck in 0B1: no progress for 300 ms"), std::string::npos) << failure;
  }
}

TEST(NcclFaults, ErrorsOfNcclEndTheRun) {
  NcclRuns runs(2);
  const std::vector<std::string> failures = runs.run([&](NcclTransport& transport, QueuedDevice&) {
    const Group everybody = transport.form_group(Axis::kPipeline, {0, 1});
    transport.note(action("0F0"));
    if (transport.rank() == 0) {
      runs.nccl().break_with("remote process exited");
      std::this_thread::sleep_for(500ms);
    }
    transport.run(everybody, {.kind = CollectiveKind::kBarrier});
  });
  for (const std::string& failure : failures) {
    EXPECT_NE(failure.find(" failed in 0F0: NCCL: remote process exited"), std::string::npos) << failure;
  }
}

// In NCCL, an abort waits for the GPU's work, which may be an operation of another communicator.
TEST(NcclFaults, AllCommunicatorsAreAbortedAtOnce) {
  NcclRuns runs(3);
  runs.nccl().hold_aborts_until(7);
  const std::vector<std::string> failures = runs.run([](NcclTransport& transport, QueuedDevice&) {
    const Group one = transport.form_group(Axis::kPipeline, {0, 1, 2});
    const Group other = transport.form_group(Axis::kData, {0, 1});
    const Group third = transport.form_group(Axis::kTensor, {1, 2});
    transport.note(action("0F0"));
    if (transport.rank() == 1) throw std::runtime_error("rank 1 failed in 0F0: gone");
    transport.start(one, {.kind = CollectiveKind::kBarrier});
    transport.run(transport.rank() == 0 ? other : third, {.kind = CollectiveKind::kBarrier});
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 1 failed in 0F0: gone");
}

// A communicator cannot be aborted before it exists.
TEST(NcclFaults, ARankThatCannotComeBackIsAbandoned) {
  NcclRuns runs(2, 300ms);
  std::atomic<int> abandoned{0};
  runs.on_abandon([&](const std::string& failure) {
    EXPECT_EQ(failure, "rank 1 failed in its set-up: gone");
    ++abandoned;
    runs.nccl().give_up();
  });
  const std::vector<std::string> failures = runs.run([](NcclTransport& transport, QueuedDevice&) {
    if (transport.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      throw std::runtime_error("rank 1 failed in its set-up: gone");
    }
    transport.form_group(Axis::kPipeline, {0, 1});
  });
  EXPECT_EQ(abandoned, 1);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 1 failed in its set-up: gone");
}

// An abort must not run during a call of the same communicator, so a call that never returns cannot be ended.
TEST(NcclFaults, ACallThatDoesNotComeBackIsAbandonedNotAborted) {
  NcclRuns runs(2, 300ms);
  std::atomic<bool> released{false};
  std::atomic<int> abandoned{0};
  runs.on_abandon([&](const std::string&) {
    ++abandoned;
    released = true;
  });
  const std::vector<std::string> failures = runs.run([&](NcclTransport& transport, QueuedDevice& device) {
    transport.connect({{0, 1}});
    transport.form_group(Axis::kPipeline, {0, 1});
    transport.note(action("0F0"));
    if (transport.rank() == 1) throw std::runtime_error("rank 1 failed in 0F0: gone");
    runs.nccl().on_send([&] {
      while (!released) std::this_thread::sleep_for(1ms);
    });
    transport.send(1, {}, device.allocate(4));
    std::this_thread::sleep_for(100ms);
    transport.note(action("0F1"));
  });
  EXPECT_GE(abandoned, 1);
  for (const std::string& failure : failures) EXPECT_EQ(failure, "rank 1 failed in 0F0: gone");
}

TEST(NcclFaults, LeavingHasALimit) {
  NcclRuns runs(2, 300ms);
  std::atomic<bool> released{false};
  std::vector<std::string> abandoned;
  std::mutex mutex;
  runs.on_abandon([&](const std::string& failure) {
    const std::lock_guard lock(mutex);
    abandoned.push_back(failure);
    released = true;
  });
  runs.nccl().on_leave([&] {
    while (!released) std::this_thread::sleep_for(1ms);
  });
  runs.run([](NcclTransport& transport, QueuedDevice&) { transport.form_group(Axis::kPipeline, {0, 1}); });
  ASSERT_FALSE(abandoned.empty());
  EXPECT_NE(abandoned.front().find(" is stuck leaving NCCL: another rank has not left for 300 ms"), std::string::npos)
      << abandoned.front();
}

// The three trainings of a run form their groups, and tensor-parallel ranks form two equal groups each time.
TEST(NcclTransport, GroupsOfTheSameMembersShareACommunicator) {
  NcclRuns runs(3);
  runs.run<SettledNccl>([](NcclTransport& transport, QueuedDevice& device) {
    std::vector<Group> everybody;
    for (int time = 0; time < 3; ++time) {
      for (const Axis axis : {Axis::kTensor, Axis::kData}) everybody.push_back(transport.form_group(axis, {0, 1, 2}));
      transport.form_group(Axis::kPipeline, {0, 1});
    }
    const Buffer value = device.allocate(sizeof(float));
    const float own = 1.0F;
    device.upload(reinterpret_cast<const std::byte*>(&own), value);
    // In both queues, one after another.
    const Collective sum{.kind = CollectiveKind::kAllReduce, .input = value, .output = value};
    const Request started = transport.start(everybody[0], sum);
    transport.run(everybody[1], sum);
    transport.wait(started);
    float result = 0;
    device.download(value, reinterpret_cast<std::byte*>(&result));
    EXPECT_EQ(result, 9.0F);
  });
  EXPECT_EQ(runs.nccl().made(), 2);
}

// A receive posted ahead is a kernel that waits on all multiprocessors it may use.
TEST(NcclTransport, MessagesHoldFewMultiprocessors) {
  NcclRuns runs(3);
  runs.run([](NcclTransport& transport, QueuedDevice&) {
    transport.form_group(Axis::kData, {0, 1, 2});
    transport.connect({{0, 1}, {1, 2}});
  });
  int ends_of_messages = 0;
  for (const FakeNccl::Joined& joined : runs.nccl().joined()) {
    EXPECT_EQ(joined.blocks, joined.members == 3 ? 0 : kMessageBlocks);
    if (joined.members == 2) ++ends_of_messages;
  }
  EXPECT_EQ(ends_of_messages, 8);  // two directions of two pairs
}

// A receive posted ahead waits for its sender: buffers of other queues return to the pool in the meantime.
TEST(KeptBuffers, AQueueThatWaitsHoldsOnlyItsOwn) {
  struct Flag : Moment {
    bool reached() override { return is_reached; }
    Ticks time() override { return 0; }
    bool is_reached = false;
  };
  KeptBuffers kept;
  const auto awaited = std::make_shared<Flag>();
  const auto sent = std::make_shared<Flag>();
  const std::shared_ptr<std::byte[]> received(new std::byte[4]);
  const std::shared_ptr<std::byte[]> message(new std::byte[4]);
  kept.keep(Queue::kReceive, awaited, {Buffer(received, 4)});
  kept.keep(Queue::kSend, sent, {Buffer(message, 4)});
  EXPECT_EQ(message.use_count(), 2);
  sent->is_reached = true;
  kept.keep(Queue::kCompute, sent, {});
  EXPECT_EQ(message.use_count(), 1);
  EXPECT_EQ(received.use_count(), 2);
}

// Set-up has no time limit, but waiting in it for other ranks does.
TEST(NcclFaults, ARankThatNobodyJoinsIsNamed) {
  NcclRuns runs(2, 300ms);
  runs.on_abandon([&](const std::string&) { runs.nccl().give_up(); });
  const std::vector<std::string> failures = runs.run([](NcclTransport& transport, QueuedDevice&) {
    std::this_thread::sleep_for(700ms);
    const Group everybody = transport.form_group(Axis::kPipeline, {0, 1});
    if (transport.rank() == 0) {
      transport.connect({{0, 1}});
    } else {
      std::this_thread::sleep_for(1500ms);
      transport.run(everybody, {.kind = CollectiveKind::kBarrier});
    }
  });
  for (const std::string& failure : failures) {
    EXPECT_EQ(failure, "rank 0 is stuck in its set-up: no progress for 300 ms");
  }
}

TEST(NcclLibrary, WhatIsMissingIsNamed) {
  setenv("FLOPCAST_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  try {
    EXPECT_FALSE(load_nccl()->version().empty());  // one of the other locations has it
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/libnccl.so.2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("FLOPCAST_NCCL_LIBRARY"), std::string::npos) << error.what();
  }
  unsetenv("FLOPCAST_NCCL_LIBRARY");
}

}  // namespace
}  // namespace flopcast::realrun
