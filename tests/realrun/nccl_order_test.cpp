// Work of a training over NCCL must be ordered by moments, not by luck.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <thread>

#include "base/text/error.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/realrun/nccl_runs.hpp"
#include "tests/realrun/queued/queued_machine.hpp"

namespace flopcast::realrun {
namespace {

using namespace std::chrono_literals;

using Faults = std::vector<std::string>;

// Faults in the order of a training's work.
Faults faults_of_training(const TrainingPlan& plan, const NarrowGpu& gpu = {},
                          const NcclRuns::MakeDevice& make_device = nullptr) {
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  NcclRuns runs(plan.ranks());
  runs.log_order();
  if (make_device) runs.on(make_device);
  const std::vector<std::string> failures = runs.run([&](NcclTransport& transport, QueuedDevice& device) {
    QueuedKernels kernels(device);
    train_rank(plan, {device, kernels}, transport, results[static_cast<std::size_t>(transport.rank())]);
    EXPECT_LE(device.queues(), gpu.connections);
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  std::size_t operations = 0;
  for (const auto& log : runs.logs()) {
    for (const OrderLog::Entry& entry : log->entries()) operations += entry.part.communicator != nullptr ? 1 : 0;
  }
  EXPECT_GT(operations, 0U);
  return order_faults(runs.logs(), gpu);
}

// GPUs refuse token slices; tests every variant of all other schedules in the catalogue, and the layouts of the matrix.
TEST(NcclOrder, EveryScheduleIsOrderedByMomentsAlone) {
  std::vector<MatrixCase> cases = every_fourth();
  std::set<std::string> seen;
  std::set<std::string> names;
  for (const MatrixCase& one : whole_catalogue()) {
    const std::string variant = one.name.substr(0, one.name.find(' '));
    if (one.plan.slices() > 1 || one.plan.dp > 1 || !seen.insert(variant).second) continue;
    names.insert(variant.substr(0, variant.find(':')));
    cases.push_back(one);
  }
  EXPECT_EQ(names.size(), schedule_catalogue().size() - 1);
  for (MatrixCase& one : cases) {
    one.plan.steps = one.plan.updates.policy == WeightPolicy::kFlushed ? 2 : 1;
    EXPECT_EQ(faults_of_training(one.plan), Faults{}) << one.name;
  }
  std::cout << cases.size() << " runs, ordered by moments alone\n";
}

/// Waits correctly, but if it forgets, does not log the wait: another run might then lack the order.
class ForgetfulDevice : public QueuedDevice {
 public:
  using Forgets = std::function<bool(Queue queue, const QueuedMoment& moment)>;
  ForgetfulDevice(int rank, std::shared_ptr<OrderLog> log, Forgets forgets)
      : QueuedDevice(rank, 0, std::move(log)), forgets_(std::move(forgets)) {}
  void wait(Queue queue, const std::shared_ptr<Moment>& moment) override {
    const auto queued = std::dynamic_pointer_cast<QueuedMoment>(moment);
    if (!forgets_(queue, *queued)) return QueuedDevice::wait(queue, moment);
    of(queue).add([queued] { queued->await(); });
  }

 private:
  Forgets forgets_;
};

bool tells(const Faults& faults, const std::string& words) {
  return std::any_of(faults.begin(), faults.end(),
                     [&](const std::string& fault) { return fault.find(words) != std::string::npos; });
}

// Forgotten waits: of the computation for messages, or of messages or gradients for the computation.
TEST(NcclOrder, AWaitThatIsForgottenIsFound) {
  TrainingPlan plan = schedules_by_layouts().at(9).plan;
  plan.steps = 1;
  ASSERT_GT(plan.dp, 1);
  const ForgetfulDevice::Forgets all[] = {
      [](Queue queue, const QueuedMoment&) { return queue == Queue::kCompute; },
      [](Queue queue, const QueuedMoment&) { return queue == Queue::kGradient; },
      [](Queue queue, const QueuedMoment&) { return static_cast<int>(queue) >= kQueues; }};
  for (const ForgetfulDevice::Forgets& forgets : all) {
    const Faults faults = faults_of_training(plan, {}, [&](int rank, std::shared_ptr<OrderLog> log) {
      return std::make_unique<ForgetfulDevice>(rank, std::move(log), forgets);
    });
    EXPECT_TRUE(tells(faults, "use the same memory, and no moment orders them"));
  }
}

// Omits each of a rank's waits for messages in turn.
TEST(NcclOrder, OneWaitForAMessageThatIsForgottenIsFound) {
  TrainingPlan plan = schedules_by_layouts().at(5).plan;
  plan.steps = 1;
  const auto is_of_message = [](const QueuedMoment& moment) {
    for (const OrderLog::Entry& entry : moment.log()->entries()) {
      if (entry.kind == OrderLog::Entry::Kind::kRecord && entry.moment == moment.number()) {
        return entry.queue >= kQueues;
      }
    }
    return false;
  };
  int messages = 0;
  for (int forgotten = 0; forgotten <= messages; ++forgotten) {
    int waits = 0;
    const Faults faults = faults_of_training(plan, {}, [&](int rank, std::shared_ptr<OrderLog> log) {
      return std::make_unique<ForgetfulDevice>(
          rank, std::move(log), [&, rank](Queue queue, const QueuedMoment& moment) {
            return rank == 1 && queue == Queue::kCompute && is_of_message(moment) && ++waits == forgotten;
          });
    });
    EXPECT_EQ(tells(faults, "rank 1: queues 0 and "), forgotten > 0) << forgotten;
    messages = waits;
  }
  EXPECT_GE(messages, 4);
}

// A GPU with fewer connections than streams, or with fewer multiprocessors than receives posted ahead occupy.
TEST(NcclOrder, AGpuThatIsTooNarrowIsFound) {
  TrainingPlan plan = schedules_by_layouts().at(5).plan;
  plan.steps = 1;
  NcclRuns runs(plan.ranks());
  runs.log_order();
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  runs.run([&](NcclTransport& transport, QueuedDevice& device) {
    QueuedKernels kernels(device);
    train_rank(plan, {device, kernels}, transport, results[static_cast<std::size_t>(transport.rank())]);
  });
  EXPECT_EQ(order_faults(runs.logs()), Faults{});
  EXPECT_TRUE(tells(order_faults(runs.logs(), {.connections = 1}), "is stuck at"));
  EXPECT_TRUE(tells(order_faults(runs.logs(), {.multiprocessors = 3}), "is stuck at a message"));
}

// Faults of ranks that use a group of all three and one of the first two.
Faults faults_of(
    const std::function<void(NcclTransport&, QueuedDevice&, FakeNccl&, const Group&, const Group&)>& body) {
  NcclRuns runs(3);
  runs.log_order();
  const std::vector<std::string> failures = runs.run([&](NcclTransport& transport, QueuedDevice& device) {
    const Group one = transport.form_group(Axis::kData, {0, 1, 2});
    const Group other = transport.form_group(Axis::kTensor, {0, 1});
    body(transport, device, runs.nccl(), one, other);
    device.settle();
  });
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
  return order_faults(runs.logs());
}

// Completes here, where every stream has its own thread, but might not on a GPU filled by waiting kernels.
TEST(NcclOrder, GroupsThatRanksEnterInAnotherOrderAreFound) {
  for (const bool crossed : {false, true}) {
    const Faults faults =
        faults_of([&](NcclTransport& transport, QueuedDevice& device, FakeNccl&, const Group& one, const Group& other) {
          const Buffer a = device.allocate(4);
          const Buffer b = device.allocate(4);
          const Collective first{.kind = CollectiveKind::kAllReduce, .input = a, .output = a};
          const Collective second{.kind = CollectiveKind::kAllReduce, .input = b, .output = b};
          Request started;
          if (transport.rank() != 1 || !crossed) started = transport.start(one, first);
          if (transport.rank() < 2) transport.run(other, second);
          if (started == nullptr) started = transport.start(one, first);
          transport.wait(started);
        });
    EXPECT_EQ(tells(faults, "is stuck at"), crossed);
    EXPECT_EQ(faults.empty(), !crossed);
  }
}

TEST(NcclOrder, MemoryThatIsHandedBackTooEarlyIsFound) {
  const Faults faults = faults_of([](NcclTransport&, QueuedDevice& device, FakeNccl&, const Group&, const Group&) {
    const Buffer to = device.allocate(4);
    const Buffer from = device.allocate(4);
    device.settle();
    device.copy(Queue::kSend, from, to);
    device.record(Queue::kSend)->time();  // seen by the host: correct
    const Buffer early = device.allocate(4);
    device.settle();
    device.copy(Queue::kSend, early, to);
  });
  EXPECT_TRUE(tells(faults, "memory is released while queue 1 may use it"));
}

// The one wait that a message needs is missing, but by luck the message arrived long before its buffer is read.
TEST(NcclOrder, AReceiveThatHappenedToBeThereIsFound) {
  for (const bool waits : {true, false}) {
    const Faults faults =
        faults_of([&](NcclTransport& transport, QueuedDevice& device, FakeNccl&, const Group&, const Group&) {
          transport.connect({{0, 1}});
          const Buffer message = device.allocate(4);
          if (transport.rank() == 0) transport.send(1, {}, message);
          if (transport.rank() != 1) return;
          const Request request = transport.receive(0, {}, message);
          if (waits) transport.wait(request);
          while (!request->arrival()->moment->reached()) std::this_thread::sleep_for(100us);
          const Buffer read = device.allocate(4);
          device.copy(message, read);
        });
    EXPECT_EQ(tells(faults, "rank 1: queues 0 and "), !waits);
    EXPECT_EQ(faults.empty(), waits);
  }
}

// The host may release memory of work that it found completed; its next use is in order.
TEST(NcclOrder, MemoryOfWhatWasFoundDoneMayBeHandedBack) {
  const Faults faults = faults_of([](NcclTransport&, QueuedDevice& device, FakeNccl&, const Group&, const Group&) {
    const Buffer to = device.allocate(4);
    for (int time = 0; time < 3; ++time) {
      const Buffer from = device.allocate(4);
      device.wait(Queue::kSend, device.record(Queue::kCompute));
      device.copy(Queue::kSend, from, to);
      const std::shared_ptr<Moment> end = device.record(Queue::kSend);
      while (!end->reached()) std::this_thread::sleep_for(100us);
    }
  });
  EXPECT_EQ(faults, Faults{});
}

TEST(NcclOrder, ACommunicatorInTwoQueuesIsFound) {
  for (const bool ordered : {true, false}) {
    const Faults faults =
        faults_of([&](NcclTransport&, QueuedDevice& device, FakeNccl& nccl, const Group&, const Group&) {
          const NcclApi::Communicator communicator = nccl.join(nccl.new_id(), 1, 0, 0);
          const Buffer values[] = {device.allocate(4), device.allocate(4)};
          std::shared_ptr<Moment> before = device.record(Queue::kCompute);
          const std::shared_ptr<Moment> allocated = before;
          for (const Queue queue : {Queue::kSend, Queue::kReceive}) {
            const Buffer& value = values[queue == Queue::kSend ? 0 : 1];
            device.wait(queue, ordered ? before : allocated);
            nccl.collect({.kind = CollectiveKind::kAllReduce, .input = value, .output = value}, communicator,
                         &device.of(queue));
            before = device.record(queue);
            device.wait(Queue::kCompute, before);
          }
        });
    EXPECT_EQ(tells(faults, "queues 2 and 1 use the same memory"), !ordered);
    EXPECT_EQ(faults.empty(), ordered);
  }
}

// Two hosts that each wait for a message before they queue what the other waits for.
TEST(NcclOrder, HostsThatWaitForEachOtherAreFound) {
  for (const bool waits : {true, false}) {
    const int communicators[2] = {};
    std::vector<std::shared_ptr<OrderLog>> logs;
    for (const int rank : {0, 1}) {
      OrderLog& log = *logs.emplace_back(std::make_shared<OrderLog>());
      for (const int turn : {rank, 1 - rank}) {
        NcclPart part{.communicator = &communicators[turn], .members = 2, .message = true, .blocks = 1};
        (rank == turn ? part.sends : part.receives).emplace_back(turn, 1 - turn, 4);
        log.nccl(kQueues + turn, {}, std::move(part));
        log.saw(log.record(kQueues + turn), waits);
      }
    }
    EXPECT_EQ(tells(order_faults(logs), "is stuck at a message"), waits);
  }
}

TEST(NcclOrder, WaitsOfTheHostAreLogged) {
  NcclRuns runs(2);
  runs.log_order();
  runs.run([&](NcclTransport& transport, QueuedDevice&) {
    transport.connect({{0, 1}});
    transport.run(transport.form_group(Axis::kData, {0, 1}), {.kind = CollectiveKind::kBarrier});
    const auto entries = runs.logs()[static_cast<std::size_t>(transport.rank())]->entries();
    const auto waited = std::count_if(entries.begin(), entries.end(), [](const OrderLog::Entry& entry) {
      return entry.kind == OrderLog::Entry::Kind::kWaited;
    });
    EXPECT_EQ(waited, 3);  // either direction's first message, and the barrier
  });
}

TEST(NcclOrder, AMomentThatNobodyRecordedIsFound) {
  const Faults faults = faults_of([](NcclTransport&, QueuedDevice& device, FakeNccl&, const Group&, const Group&) {
    device.wait(Queue::kSend, std::make_shared<QueuedMoment>());
  });
  EXPECT_EQ(faults, (Faults{"rank 0: queue 1 waits for a moment that was not recorded",
                            "rank 1: queue 1 waits for a moment that was not recorded",
                            "rank 2: queue 1 waits for a moment that was not recorded"}));
}

TEST(NcclOrder, AMomentInAnOpenGroupIsFound) {
  const Faults faults = faults_of([](NcclTransport&, QueuedDevice& device, FakeNccl& nccl, const Group&, const Group&) {
    nccl.begin_group();
    device.record(Queue::kSend);
    nccl.end_group();
    EXPECT_THROW(nccl.end_group(), std::runtime_error);
  });
  EXPECT_TRUE(tells(faults, "work is added to queue 1 while an NCCL group is open"));
}

// With another size, root or operation.
TEST(NcclOrder, OperationsThatDoNotFitAreFound) {
  using Change = void (*)(Collective & of_one);
  const Change changes[] = {[](Collective& of_one) { of_one.input = of_one.output = of_one.output.slice(0, 4); },
                            [](Collective& of_one) { of_one.root = 2; },
                            [](Collective& of_one) {
                              of_one.kind = CollectiveKind::kAllReduce;
                              of_one.reduction = Reduction::kMax;
                            }};
  for (const Change change : changes) {
    const Faults faults =
        faults_of([&](NcclTransport& transport, QueuedDevice& device, FakeNccl&, const Group& one, const Group&) {
          const Buffer values = device.allocate(8);
          Collective collective{.kind = CollectiveKind::kBroadcast, .input = values, .output = values, .root = 1};
          if (change == changes[2]) collective.kind = CollectiveKind::kAllReduce;
          if (transport.rank() == 0) change(collective);
          transport.run(one, collective);
        });
    EXPECT_TRUE(tells(faults, "members meet with "));
  }
}

// An exchange of parts between two ranks is a collective, which occupies as much of the GPU as NCCL uses.
TEST(NcclOrder, AnExchangeOfTwoIsNoMessage) {
  NcclRuns runs(2);
  runs.log_order();
  runs.run([](NcclTransport& transport, QueuedDevice& device) {
    const Group both = transport.form_group(Axis::kTensor, {0, 1});
    transport.run(both, {.kind = CollectiveKind::kAllToAll, .input = device.allocate(8), .output = device.allocate(8)});
    device.settle();
  });
  for (const auto& log : runs.logs()) {
    for (const OrderLog::Entry& entry : log->entries()) EXPECT_FALSE(entry.part.message);
  }
}

TEST(NcclOrder, ACommunicatorThatWasLeftIsNotUsed) {
  FakeNccl nccl;
  NcclApi::Communicator communicator = nccl.join(nccl.new_id(), 1, 0, 0);
  WorkQueue queue(1, 0);
  nccl.leave(communicator);
  EXPECT_THROW(nccl.send(Buffer(), 0, communicator, &queue), std::runtime_error);
}

}  // namespace
}  // namespace flopcast::realrun
