#include "sim/variation/step_distribution.hpp"

#include <gtest/gtest.h>

namespace flopcast {
namespace {

// numpy.percentile([4, 1, 3, 2], [0, 25, 50, 95, 100]) = 1, 1.75, 2.5, 3.85, 4.
TEST(Percentile, LiesStraightBetweenNeighbours) {
  const std::vector<double> values = {4.0, 1.0, 3.0, 2.0};
  EXPECT_DOUBLE_EQ(percentile(values, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(percentile(values, 0.25), 1.75);
  EXPECT_DOUBLE_EQ(percentile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(percentile(values, 0.95), 3.85);
  EXPECT_DOUBLE_EQ(percentile(values, 1.0), 4.0);
}

TEST(Percentile, OfOneValueIsThatValue) {
  EXPECT_EQ(percentile({7.0}, 0.0), 7.0);
  EXPECT_EQ(percentile({7.0}, 0.95), 7.0);
}

}  // namespace
}  // namespace flopcast
