// Every schedule and layout trains as one rank does, or as its delays define. Times are not asserted.
#include "tests/realrun/loss_matrix.hpp"

#include <gtest/gtest.h>

namespace flopcast::realrun {
namespace {

std::vector<RankResult> on_threads(const TrainingPlan& plan) {
  return train_on_threads(plan, {});
}

TEST(LossMatrix, SchedulesByLayouts) {
  EXPECT_EQ(compare_with_references(schedules_by_layouts(), on_threads), 63);
}

TEST(LossMatrix, WholeCatalogue) {
  EXPECT_GT(compare_with_references(whole_catalogue(), on_threads), 60);
}

TEST(LossMatrix, RecomputedLayouts) {
  EXPECT_EQ(compare_with_references(recomputed_layouts(), on_threads), 168);
}

TEST(LossMatrix, FullyShardedLayouts) {
  EXPECT_GT(compare_with_references(fully_sharded_layouts(), on_threads), 100);
}

TEST(LossMatrix, ServedLayouts) {
  EXPECT_GT(compare_with_references(served_layouts(), on_threads), 50);
}

TEST(LossMatrix, FurtherLayouts) {
  EXPECT_GT(compare_with_references(further_layouts(), on_threads), 80);
}

TEST(LossMatrix, NetworkForms) {
  EXPECT_EQ(compare_with_references(network_forms_by_layouts(), on_threads), 126);
}

TEST(LossMatrix, ContextLayouts) {
  EXPECT_EQ(compare_with_references(context_layouts(), on_threads), 88);
}

TEST(LossMatrix, RandomNetworks) {
  EXPECT_EQ(compare_with_references(random_networks(1, 120), on_threads), 120);
}

}  // namespace
}  // namespace flopcast::realrun
