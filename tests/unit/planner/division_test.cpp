// Division of shared work: every part is done once if no process is lost, and all parts are done even if only one
// process remains.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "planner/shared/crew.hpp"

namespace flopcast {
namespace {

std::vector<std::size_t> parts_up_to(std::size_t count) {
  std::vector<std::size_t> parts(count);
  std::iota(parts.begin(), parts.end(), std::size_t{0});
  return parts;
}

TEST(Division, DealsTheMissingPartsOut) {
  const std::vector<std::size_t> missing = {1, 4, 5, 8, 9, 11, 12};
  std::multiset<std::size_t> dealt;
  for (int rank = 0; rank < 3; ++rank) {
    Division division(missing, rank, 3);
    ASSERT_TRUE(division.own_left());
    const auto everything = [](std::size_t) { return true; };
    for (const std::size_t part : division.next(100, everything)) dealt.insert(part);
    EXPECT_FALSE(division.own_left());
    EXPECT_TRUE(division.left());
  }
  EXPECT_EQ(dealt, std::multiset<std::size_t>(missing.begin(), missing.end()));
}

// Ranks take turns, one part per turn; rank `slow` takes only every tenth turn, and `lost` none after its second.
int turns_taken(int ranks, std::size_t count, int slow, int lost) {
  std::set<std::size_t> done;
  const auto is_open = [&done](std::size_t part) { return done.count(part) == 0; };
  std::vector<Division> divisions;
  for (int rank = 0; rank < ranks; ++rank) divisions.emplace_back(parts_up_to(count), rank, ranks);
  int computed = 0;
  for (int turn = 0; done.size() < count; ++turn) {
    EXPECT_LT(turn, 100'000);
    for (int rank = 0; rank < ranks; ++rank) {
      if ((rank == slow && turn % 10 != 0) || (rank == lost && turn > 1)) continue;
      Division& division = divisions[static_cast<std::size_t>(rank)];
      std::vector<std::size_t> parts;
      while (division.left() && parts.empty()) parts = division.next(1, is_open);
      for (const std::size_t part : parts) {
        ++computed;
        EXPECT_TRUE(done.insert(part).second) << part << " was done twice";
      }
    }
  }
  return computed;
}

TEST(Division, EverythingIsDoneOnceHoweverSlowOrLostARankIs) {
  for (int ranks = 1; ranks <= 7; ++ranks) {
    for (const std::size_t count : {1u, 2u, 10u, 100u}) {
      EXPECT_EQ(turns_taken(ranks, count, -1, -1), static_cast<int>(count));
      EXPECT_EQ(turns_taken(ranks, count, 0, -1), static_cast<int>(count));
      if (ranks > 1) {
        EXPECT_EQ(turns_taken(ranks, count, -1, ranks - 1), static_cast<int>(count));
      }
    }
  }
}

TEST(Division, TakesOthersPartsFromTheirEnds) {
  Division division(parts_up_to(9), 1, 3);
  const auto everything = [](std::size_t) { return true; };
  EXPECT_EQ(division.next(2, everything), (std::vector<std::size_t>{1, 4}));
  EXPECT_EQ(division.next(2, everything), (std::vector<std::size_t>{7}));
  EXPECT_EQ(division.next(2, everything), (std::vector<std::size_t>{8, 5}));
  EXPECT_EQ(division.next(9, [](std::size_t part) { return part != 2; }), std::vector<std::size_t>());
  EXPECT_EQ(division.next(9, everything), (std::vector<std::size_t>{6, 3, 0}));
  EXPECT_FALSE(division.left());
}

}  // namespace
}  // namespace flopcast
