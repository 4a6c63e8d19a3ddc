// The result of a search does not depend on the number of threads.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/search/search.hpp"
#include "planner/shared/crew.hpp"
#include "tests/unit/planner/questions.hpp"

namespace flopcast {
namespace {

SearchResult search(const PlanQuestion& question, const ParallelFor& parallel_for) {
  LayoutSearch search(question.space, {}, parallel_for);
  search.explore(question.job, std::numeric_limits<double>::infinity(), "too slow");
  return search.result();
}

std::vector<std::uint64_t> orders(const std::vector<PlannedLayout>& layouts) {
  std::vector<std::uint64_t> list;
  for (const PlannedLayout& one : layouts) list.push_back(one.order);
  return list;
}

TEST(SearchThreads, DoNotShow) {
  const PlanQuestion question = small_question();
  const SearchResult serial = search(question, serial_for);
  const SearchResult threaded = search(question, threaded_for(4));
  EXPECT_EQ(orders(serial.ranked), orders(threaded.ranked));
  EXPECT_EQ(orders(serial.pareto), orders(threaded.pareto));
  EXPECT_EQ(serial.space.pruned, threaded.space.pruned);
  EXPECT_EQ(serial.space.simulated, threaded.space.simulated);
  ASSERT_EQ(serial.rejected.size(), threaded.rejected.size());
  for (std::size_t reason = 0; reason < serial.rejected.size(); ++reason) {
    EXPECT_EQ(serial.rejected[reason].count, threaded.rejected[reason].count);
  }
}

}  // namespace
}  // namespace flopcast
