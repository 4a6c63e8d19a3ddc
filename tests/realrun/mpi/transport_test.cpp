// Messages and collectives between processes, results on rank 0, and clocks that disagree.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "realrun/device/device.hpp"
#include "tests/realrun/mpi/under_mpi.hpp"
#include "tests/unit/realrun/transport_cases.hpp"

namespace flopcast::realrun {
namespace {

void on_all_ranks(void (*check)(RankTransport&)) {
  run_mpi(test_processes(), {}, [&](MpiTransport& transport) { check(transport); });
}

TEST(MpiTransport, AllReduce) {
  on_all_ranks(check_all_reduce);
}

TEST(MpiTransport, ScatterGatherAndBroadcast) {
  on_all_ranks(check_scatter_gather_and_broadcast);
}

TEST(MpiTransport, AllToAll) {
  on_all_ranks(check_all_to_all);
}

TEST(MpiTransport, AdditionsHaveAnOrder) {
  on_all_ranks(check_order_of_additions);
}

TEST(MpiTransport, StartedCollectivesKeepTheOrderOfTheirGroup) {
  on_all_ranks(check_order_of_started_collectives);
}

TEST(MpiTransport, MessagesAreTakenByKey) {
  on_all_ranks(check_messages);
}

TEST(MpiTransport, OthersAreNoMembersOfAGroup) {
  on_all_ranks(check_groups);
}

TEST(MpiTransport, RandomCollectives) {
  on_all_ranks(check_random_collectives);
}

TEST(MpiTransport, GathersBytesOfAnyLength) {
  run_mpi(test_processes(), {}, [](MpiTransport& transport) {
    const auto bytes_of = [](int rank) {
      return std::vector<std::byte>(static_cast<std::size_t>(rank * 100'000), static_cast<std::byte>(rank));
    };
    const std::vector<std::vector<std::byte>> all = transport.gather(bytes_of(transport.rank()));
    ASSERT_EQ(all.size(), transport.rank() == 0 ? static_cast<std::size_t>(transport.rank_count()) : 0U);
    for (std::size_t rank = 0; rank < all.size(); ++rank) EXPECT_EQ(all[rank], bytes_of(static_cast<int>(rank)));
  });
}

// Rank r's clock is 3·r seconds ahead.
Ticks skewed_clock() {
  constexpr Ticks kSecond = 1'000'000'000'000;
  return host_clock() + test_processes().rank() * 3 * kSecond;
}

TEST(MpiTransport, ClocksAreBroughtToAgree) {
  run_mpi(test_processes(), {}, [](MpiTransport& transport) {
    constexpr double kSecond = 1e12;
    const Ticks start = host_clock();
    const std::vector<Ticks> offsets = transport.clock_offsets(skewed_clock, true);
    const auto whole_time = static_cast<double>(host_clock() - start);
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
      // The error is at most half of the fastest of 16 exchanges, all of which happened within whole_time.
      EXPECT_NEAR(static_cast<double>(offsets[rank]), -3.0 * kSecond * static_cast<double>(rank), whole_time / 32);
    }
    for (const Ticks offset : transport.clock_offsets(skewed_clock)) EXPECT_EQ(offset, 0) << "one machine, one clock";
  });
}

TEST(MpiTransport, NeighboursKnowWhatEachOtherIsAt) {
  run_mpi(test_processes(), {}, [](MpiTransport& transport) {
    const auto number = static_cast<std::uint32_t>(transport.rank());
    transport.note({.kind = Activity::Kind::kAction,
                    .action = {.microbatch = 70'000 + number, .stage = 300, .kind = ActionKind::kInputGradient}});
    std::vector<int> all;
    for (int rank = 0; rank < transport.rank_count(); ++rank) all.push_back(rank);
    transport.run(transport.form_group(Axis::kData, all), {.kind = CollectiveKind::kBarrier});
    for (const int rank : all) {
      EXPECT_EQ(test_processes().whereabouts(rank),
                "rank " + std::to_string(rank) + ", which is in 300I7000" + std::to_string(rank));
    }
    transport.run(transport.form_group(Axis::kData, all), {.kind = CollectiveKind::kBarrier});
  });
}

}  // namespace
}  // namespace flopcast::realrun
