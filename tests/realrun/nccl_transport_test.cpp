// The transport over NCCL, with something else in NCCL's place: communicators, connections, queues and the watcher are
// the product's. Ranks are threads with a store of their own each, as processes would have it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/text/error.hpp"
#include "realrun/transport/nccl/nccl_transport.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/realrun/queued/fake_nccl.hpp"
#include "tests/realrun/queued/queued_machine.hpp"
#include "tests/unit/realrun/transport_cases.hpp"

namespace flopcast::realrun {
namespace {

using namespace std::chrono_literals;

// Host code that looks at its buffers waits for the device first.
class SettledNccl : public NcclTransport {
 public:
  SettledNccl(NcclApi& nccl, QueuedDevice& device, Store& store, const NcclOptions& options)
      : NcclTransport(
            nccl, device, [&device](Queue queue) { return &device.of(queue); }, store, options),
        device_(device) {}
  void run(const Group& group, const Collective& collective) override {
    NcclTransport::run(group, collective);
    device_.settle();
  }
  void wait(const Request& request) override {
    NcclTransport::wait(request);
    device_.settle();
  }

 private:
  QueuedDevice& device_;
};

class NcclRuns {
 public:
  explicit NcclRuns(int ranks, std::chrono::milliseconds patience = 20s)
      : ranks_(ranks), patience_(patience), server_(serve_tcp_store({})) {}

  FakeNccl& nccl() { return nccl_; }
  /// From now on the ranks' work is logged.
  void log_order() {
    for (int rank = 0; rank < ranks_; ++rank) logs_.push_back(std::make_shared<OrderLog>());
  }
  const std::vector<std::shared_ptr<OrderLog>>& logs() const { return logs_; }
  using MakeDevice = std::function<std::unique_ptr<QueuedDevice>(int rank, std::shared_ptr<OrderLog> log)>;
  void on(MakeDevice make_device) { make_device_ = std::move(make_device); }
  /// See NcclOptions::abandon.
  void on_abandon(std::function<void(const std::string&)> abandon) { abandon_ = std::move(abandon); }

  // What each rank's transport says has failed.
  template <class TransportOf = NcclTransport>
  std::vector<std::string> run(const std::function<void(NcclTransport&, QueuedDevice&)>& body) {
    std::vector<std::string> failures(static_cast<std::size_t>(ranks_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] { failures[static_cast<std::size_t>(rank)] = run_rank<TransportOf>(rank, body); });
    }
    for (std::thread& thread : threads) thread.join();
    return failures;
  }

 private:
  template <class TransportOf>
  std::string run_rank(int rank, const std::function<void(NcclTransport&, QueuedDevice&)>& body) {
    const auto store = open_tcp_store("127.0.0.1", server_->port(), "", 10s);
    const auto own = make_device_(rank, logs_.empty() ? nullptr : logs_[static_cast<std::size_t>(rank)]);
    QueuedDevice& device = *own;
    const NcclOptions options{.place = {rank, ranks_, rank}, .patience = patience_, .abandon = abandon_};
    const auto transport = make<TransportOf>(device, *store, options);
    try {
      gather_ranks(*store, options.place, 10s);
      body(*transport, device);
      transport->note({.kind = Activity::Kind::kDone, .action = {}});
      store->set(kDoneKey + std::to_string(rank), "");
      for (int other = 0; other < ranks_; ++other) {
        wait_for(*store, kDoneKey + std::to_string(other), 20s, "the end of a rank");
      }
    } catch (const Aborted&) {
      return transport->failure();
    } catch (const std::exception& error) {
      transport->fail(error.what());
      return transport->failure();
    }
    return {};
  }

  template <class TransportOf>
  std::unique_ptr<TransportOf> make(QueuedDevice& device, Store& store, const NcclOptions& options) {
    if constexpr (std::is_same_v<TransportOf, SettledNccl>) {
      return std::make_unique<SettledNccl>(nccl_, device, store, options);
    } else {
      return std::make_unique<NcclTransport>(
          nccl_, device, [&device](Queue queue) { return &device.of(queue); }, store, options);
    }
  }

  int ranks_;
  std::chrono::milliseconds patience_;
  std::function<void(const std::string&)> abandon_;
  std::vector<std::shared_ptr<OrderLog>> logs_;
  MakeDevice make_device_ = [](int rank, std::shared_ptr<OrderLog> log) {
    return std::make_unique<QueuedDevice>(rank, 0, std::move(log));
  };
  FakeNccl nccl_;
  std::unique_ptr<TcpServer> server_;
};

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

// Every schedule once, and every layout.
std::vector<MatrixCase> every_fourth() {
  std::vector<MatrixCase> chosen;
  const std::vector<MatrixCase> all = schedules_by_layouts();
  for (std::size_t index = 0; index < all.size(); index += 4) chosen.push_back(all[index]);
  return chosen;
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

using Faults = std::vector<std::string>;

// What is wrong with the order of a training's work.
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

// Slices of tokens are refused on GPUs; of everything else in the catalogue each variant, and the matrix's layouts.
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

/// Waits as it should, which the log is not told where it forgets: luck that no other run need have.
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

// Whoever forgets: the computation to wait for messages, messages or gradients for the computation.
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

// Of a rank's waits for messages each one, alone.
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

// On a GPU with fewer connections than streams, or fewer multiprocessors than receives posted ahead hold.
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
  EXPECT_TRUE(tells(order_faults(runs.logs(), {.connections = 1}), "gets no further than"));
  EXPECT_TRUE(tells(order_faults(runs.logs(), {.multiprocessors = 3}), "gets no further than a message"));
}

// What ranks do with a group of all three and one of the first two, and what is said of it.
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

// It ends here, where every stream has a thread of its own, and need not where kernels that wait fill the GPU.
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
    EXPECT_EQ(tells(faults, "gets no further than"), crossed);
    EXPECT_EQ(faults.empty(), !crossed);
  }
}

TEST(NcclOrder, MemoryThatIsHandedBackTooEarlyIsFound) {
  const Faults faults = faults_of([](NcclTransport&, QueuedDevice& device, FakeNccl&, const Group&, const Group&) {
    const Buffer to = device.allocate(4);
    const Buffer from = device.allocate(4);
    device.settle();
    device.copy(Queue::kSend, from, to);
    device.record(Queue::kSend)->time();  // seen by the host: right
    const Buffer early = device.allocate(4);
    device.settle();
    device.copy(Queue::kSend, early, to);
  });
  EXPECT_TRUE(tells(faults, "memory is handed back while queue 1 may use it"));
}

// The one wait that a message needs, by luck long over when its buffer is read.
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

// What the host found done it may hand back, and whoever gets it then is in order.
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
    EXPECT_EQ(tells(order_faults(logs), "gets no further than a message"), waits);
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
  EXPECT_TRUE(tells(faults, "queue 1 is given something while a group of NCCL's is open"));
}

// Of another size, with another root, another operation.
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

// Two that give each other a part each are in a collective, which holds as much of the GPU as NCCL takes.
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
    EXPECT_NE(failure.find(" is stuck in 0B1: it has not come further for 300 ms"), std::string::npos) << failure;
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

// NCCL waits in an abort for what the GPU runs, which may be an operation of another communicator.
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

// Nobody can abort a communicator that is not there yet.
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

// An abort may not run beside a call of the same communicator, so a call that does not come back is nobody's to end.
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
  EXPECT_NE(abandoned.front().find(" is stuck as it leaves NCCL: another has not left for 300 ms"), std::string::npos)
      << abandoned.front();
}

// Three trainings of a run form their groups, and tensor-parallel ranks two of the same each time.
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
    // In either queue, one behind the other.
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

// A receive posted ahead is a kernel that waits on all the multiprocessors it may have.
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

// A receive posted ahead waits for its sender: buffers of other queues go back to the pool meanwhile.
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

// Set-up takes as long as it takes, but not waiting in it for others.
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
    EXPECT_EQ(failure, "rank 0 is stuck in its set-up: it has not come further for 300 ms");
  }
}

TEST(NcclLibrary, WhatIsMissingIsNamed) {
  setenv("FLOPCAST_NCCL_LIBRARY", "/nowhere/libnccl.so.2", 1);
  try {
    EXPECT_FALSE(load_nccl()->version().empty());  // one of the other places has it
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("/nowhere/libnccl.so.2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("FLOPCAST_NCCL_LIBRARY"), std::string::npos) << error.what();
  }
  unsetenv("FLOPCAST_NCCL_LIBRARY");
}

}  // namespace
}  // namespace flopcast::realrun
