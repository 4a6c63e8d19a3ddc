// Virtual devices whose queues are threads: transport, executor and state keep all asynchronous work in order. These
// queues behave like a GPU's streams.
#include <gtest/gtest.h>

#include <memory>

#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/loss_matrix.hpp"
#include "tests/realrun/queued/queued_machine.hpp"
#include "tests/unit/realrun/transport_cases.hpp"

namespace flopcast::realrun {
namespace {

constexpr int kDelay = 40;

class VirtualTransportCases : public testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(void (*check)(RankTransport&)) {
    std::vector<std::unique_ptr<QueuedDevice>> devices;
    for (int rank = 0; rank < GetParam(); ++rank) devices.push_back(std::make_unique<QueuedDevice>(rank, kDelay));
    run_threads(
        GetParam(), {},
        [&](ThreadHub& hub, int rank) {
          return std::make_unique<SettledTransport>(hub, rank, *devices[static_cast<std::size_t>(rank)]);
        },
        check);
  }

  // Waits for the device before host code reads its buffers.
  class SettledTransport : public ThreadTransport {
   public:
    SettledTransport(ThreadHub& hub, int rank, QueuedDevice& device)
        : ThreadTransport(hub, rank, device), device_(device) {}
    void run(const Group& group, const Collective& collective) override {
      ThreadTransport::run(group, collective);
      device_.settle();
    }
    void wait(const Request& request) override {
      ThreadTransport::wait(request);
      device_.settle();
    }

   private:
    QueuedDevice& device_;
  };
};

TEST_P(VirtualTransportCases, AllReduce) {
  on_all_ranks(check_all_reduce);
}

TEST_P(VirtualTransportCases, ScatterGatherAndBroadcast) {
  on_all_ranks(check_scatter_gather_and_broadcast);
}

TEST_P(VirtualTransportCases, AdditionsHaveAnOrder) {
  on_all_ranks(check_order_of_additions);
}

TEST_P(VirtualTransportCases, StartedCollectivesKeepTheOrderOfTheirGroup) {
  on_all_ranks(check_order_of_started_collectives);
}

TEST_P(VirtualTransportCases, MessagesAreTakenByKey) {
  on_all_ranks(check_messages);
}

TEST_P(VirtualTransportCases, OthersAreNoMembersOfAGroup) {
  on_all_ranks(check_groups);
}

TEST_P(VirtualTransportCases, RandomCollectives) {
  on_all_ranks(check_random_collectives);
}

TEST_P(VirtualTransportCases, AllToAll) {
  on_all_ranks(check_all_to_all);
}

INSTANTIATE_TEST_SUITE_P(OverRanks, VirtualTransportCases, testing::Values(1, 2, 3, 5));

std::vector<RankResult> on_virtual_devices(const TrainingPlan& plan) {
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  std::vector<std::unique_ptr<QueuedDevice>> devices;
  for (int rank = 0; rank < plan.ranks(); ++rank) devices.push_back(std::make_unique<QueuedDevice>(rank, 0));
  run_threads(
      plan.ranks(), {},
      [&](ThreadHub& hub, int rank) {
        return std::make_unique<ThreadTransport>(hub, rank, *devices[static_cast<std::size_t>(rank)]);
      },
      [&](RankTransport& transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        QueuedKernels kernels(*devices[rank]);
        train_rank(plan, {*devices[rank], kernels}, transport, results[rank]);
      });
  return results;
}

// Compression codecs exist on the host only.
std::vector<MatrixCase> without_compression(std::vector<MatrixCase> cases) {
  std::erase_if(cases, [](const MatrixCase& one) { return one.plan.compression.kind != Compression::Kind::kNone; });
  return cases;
}

TEST(VirtualDevices, SchedulesByLayouts) {
  EXPECT_EQ(compare_with_references(schedules_by_layouts(), on_virtual_devices), 63);
}

TEST(VirtualDevices, FurtherLayouts) {
  EXPECT_GT(compare_with_references(without_compression(further_layouts()), on_virtual_devices), 60);
}

}  // namespace
}  // namespace flopcast::realrun
