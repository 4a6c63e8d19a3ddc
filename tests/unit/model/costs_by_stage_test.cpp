#include <gtest/gtest.h>

#include <vector>

#include "model/cost/stage_costs.hpp"

namespace flopcast {
namespace {

StageCosts with_layers(int layers) {
  StageCosts costs;
  costs.layers = layers;
  return costs;
}

std::vector<int> layers_of(const CostsByStage& stages) {
  std::vector<int> layers;
  for (const StageCosts& stage : stages) layers.push_back(stage.layers);
  return layers;
}

CostsByStage three_alike_between_ends() {
  CostsByStage stages;
  stages.push_back(with_layers(1));
  stages.push_back(with_layers(2));
  stages.push_shared(1);
  stages.push_shared(1);
  stages.push_back(with_layers(3));
  return stages;
}

TEST(CostsByStage, AreInTheOrderOfTheStages) {
  const CostsByStage stages = three_alike_between_ends();
  EXPECT_EQ(layers_of(stages), (std::vector<int>{1, 2, 2, 2, 3}));
  EXPECT_EQ(stages.size(), 5u);
  EXPECT_EQ(stages.front().layers, 1);
  EXPECT_EQ(stages.at(3).layers, 2);
  EXPECT_EQ(stages.back().layers, 3);
  EXPECT_EQ(&stages[1], &stages[2]) << "identical stages share their costs";
}

TEST(CostsByStage, AStageThatChangesLeavesThoseThatWereLikeIt) {
  CostsByStage stages = three_alike_between_ends();
  stages.own(2).layers = 7;
  stages.own(2).layers += 1;
  stages.own(0).layers = 9;
  EXPECT_EQ(layers_of(stages), (std::vector<int>{9, 2, 8, 2, 3}));
}

}  // namespace
}  // namespace flopcast
