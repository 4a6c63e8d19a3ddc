// Messages and collectives between threads.
#include <gtest/gtest.h>

#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/unit/realrun/transport_cases.hpp"

namespace flopcast::realrun {
namespace {

class ThreadTransportCases : public testing::TestWithParam<int> {
 protected:
  static void on_all_ranks(void (*check)(RankTransport&)) { run_threads(GetParam(), {}, check); }
};

TEST_P(ThreadTransportCases, AllReduce) {
  on_all_ranks(check_all_reduce);
}

TEST_P(ThreadTransportCases, ScatterGatherAndBroadcast) {
  on_all_ranks(check_scatter_gather_and_broadcast);
}

TEST_P(ThreadTransportCases, AdditionsHaveAnOrder) {
  on_all_ranks(check_order_of_additions);
}

TEST_P(ThreadTransportCases, StartedCollectivesKeepTheOrderOfTheirGroup) {
  on_all_ranks(check_order_of_started_collectives);
}

TEST_P(ThreadTransportCases, MessagesAreTakenByKey) {
  on_all_ranks(check_messages);
}

TEST_P(ThreadTransportCases, OthersAreNoMembersOfAGroup) {
  on_all_ranks(check_groups);
}

TEST_P(ThreadTransportCases, RandomCollectives) {
  on_all_ranks(check_random_collectives);
}

TEST_P(ThreadTransportCases, AllToAll) {
  on_all_ranks(check_all_to_all);
}

INSTANTIATE_TEST_SUITE_P(OverRanks, ThreadTransportCases, testing::Values(1, 2, 3, 5));

}  // namespace
}  // namespace flopcast::realrun
