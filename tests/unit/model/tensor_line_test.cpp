#include "tests/support/tensor_line.hpp"

#include <gtest/gtest.h>

#include "model/cost/axis_costs.hpp"
#include "tests/support/grid_volume.hpp"

namespace flopcast {
namespace {

void expect_volume(const LineVolume& volume, double forward, double input_gradient, double weight_gradient) {
  EXPECT_DOUBLE_EQ(volume.forward, forward);
  EXPECT_DOUBLE_EQ(volume.input_gradient, input_gradient);
  EXPECT_DOUBLE_EQ(volume.weight_gradient, weight_gradient);
}

// Four tokens, 6 -> 10 features on two ranks: X has 24 elements, 12 of them on the other rank; Y has 40 and 20.
TEST(TensorLine, VolumesOnTwoRanksByHand) {
  const auto volume = [](LineForm form, bool split) { return line_volume(form, split, 2, 4, 6, 10); };
  expect_volume(volume(LineForm::kColumn, false), 20, 24, 0);
  expect_volume(volume(LineForm::kRow, false), 40, 12, 0);
  expect_volume(volume(LineForm::kPair, false), 40, 24, 0);
  // After the gather, half of a rank's 4 x 5 part of Y belongs to the other rank: 10.
  expect_volume(volume(LineForm::kColumn, true), 12 + 10, 10 + 12, 12);
  expect_volume(volume(LineForm::kRow, true), 6 + 20, 20 + 6, 0);
  expect_volume(volume(LineForm::kPair, true), 12 + 20, 20 + 12, 12);
}

TEST(TensorLine, OneRankSendsNothing) {
  for (const LineForm form : {LineForm::kColumn, LineForm::kRow, LineForm::kPair}) {
    for (const bool split : {false, true}) expect_volume(line_volume(form, split, 1, 4, 6, 10), 0, 0, 0);
  }
}

// Sequence parallelism does not change the volumes of a pair, except that the input is gathered once more (2205.05198
// §4.2.2).
TEST(TensorLine, SequenceParallelismCostsAPairOneGather) {
  const LineVolume plain = line_volume(LineForm::kPair, false, 8, 128, 64, 64);
  const LineVolume split = line_volume(LineForm::kPair, true, 8, 128, 64, 64);
  EXPECT_DOUBLE_EQ(split.forward + split.input_gradient, plain.forward + plain.input_gradient);
  EXPECT_DOUBLE_EQ(split.weight_gradient, 7.0 / 8 * 128 * 64);
}

// Eight tokens, 4 -> 12 features. On 2 x 2 ranks, X (32) and A (48) are split into halves; on 2 x 2 x 2 with depth, X
// is split into quarters; on the cube, all matrices are split into quarters, including Y (96).
TEST(TensorGridVolume, OnSmallGridsByHand) {
  const GridVolume plane = grid_volume(TensorParallel::k2d, tensor_grid(TensorParallel::k2d, 4, 1), 8, 4, 12);
  EXPECT_DOUBLE_EQ(plane.forward, 8 + 12);
  EXPECT_DOUBLE_EQ(plane.input_gradient, 20);
  EXPECT_DOUBLE_EQ(plane.weight_gradient, 20);
  EXPECT_DOUBLE_EQ(plane.depth_reduction, 0);
  const GridVolume deep = grid_volume(TensorParallel::k25d, tensor_grid(TensorParallel::k25d, 8, 2), 8, 4, 12);
  EXPECT_DOUBLE_EQ(deep.forward, 4 + 12);
  EXPECT_DOUBLE_EQ(deep.depth_reduction, 12);
  const GridVolume cube = grid_volume(TensorParallel::k3d, tensor_grid(TensorParallel::k3d, 8, 1), 8, 4, 12);
  EXPECT_DOUBLE_EQ(cube.forward, 4 + 6 + 12);
  EXPECT_DOUBLE_EQ(cube.input_gradient, 12 + 4);
  EXPECT_DOUBLE_EQ(cube.weight_gradient, 6);
}

}  // namespace
}  // namespace flopcast
