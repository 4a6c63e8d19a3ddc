// Linears on lines and grids of tensor-parallel ranks equal serial products, and send the bytes that the model
// predicts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iostream>
#include <vector>

#include "tests/realrun/linear_runs.hpp"

namespace flopcast::realrun {
namespace {

void expect_volumes(const std::vector<LineVolume>& sent, const LineVolume& predicted, const std::string& what) {
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    EXPECT_DOUBLE_EQ(sent[rank].forward, predicted.forward) << what << ", rank " << rank;
    EXPECT_DOUBLE_EQ(sent[rank].input_gradient, predicted.input_gradient) << what << ", rank " << rank;
    EXPECT_DOUBLE_EQ(sent[rank].weight_gradient, predicted.weight_gradient) << what << ", rank " << rank;
  }
}

TEST(TensorLinear, AloneAndAsAPairOnALine) {
  int runs = 0;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const LineForm form : {LineForm::kColumn, LineForm::kRow, LineForm::kPair}) {
        // Every size is divisible by 2, 3 and 4, so that the parts of all-reduces are equal.
        LinearChain chain{24, {{"up", 12, 36}}};
        if (form == LineForm::kPair) chain.linears.push_back({"down", 36, 24});
        const std::vector<LineVolume> sent = run_line(form, sequence_parallel, ranks, chain);
        const LinearSpec& last = chain.linears.back();
        expect_volumes(sent, line_volume(form, sequence_parallel, ranks, 24, 12, static_cast<double>(last.outputs)),
                       fmt::format("form {} on {}, split {}", static_cast<int>(form), ranks, sequence_parallel));
        ++runs;
      }
    }
  }
  std::cout << runs << " lines of ranks\n";
}

TEST(TensorLinear, OnGrids) {
  struct Case {
    TensorParallel form;
    int ranks;
    int depth;
  };
  const std::vector<Case> cases = {{TensorParallel::k2d, 1, 1},   {TensorParallel::k2d, 4, 1},
                                   {TensorParallel::k2d, 9, 1},   {TensorParallel::k25d, 2, 2},
                                   {TensorParallel::k25d, 8, 2},  {TensorParallel::k25d, 12, 3},
                                   {TensorParallel::k25d, 18, 2}, {TensorParallel::k3d, 1, 1},
                                   {TensorParallel::k3d, 8, 1},   {TensorParallel::k3d, 27, 1}};
  for (const Case& each : cases) {
    const TensorGrid grid = tensor_grid(each.form, each.ranks, each.depth);
    ASSERT_EQ(grid.ranks(), each.ranks);
    // One linear, and three of which each takes the split that the previous one leaves.
    for (const LinearChain& chain : {LinearChain{36, {{"only", 36, 72}}},
                                     LinearChain{36, {{"first", 72, 36}, {"second", 36, 108}, {"third", 108, 36}}}}) {
      const std::string what =
          fmt::format("form {} on {} ranks, {} linears", static_cast<int>(each.form), each.ranks, chain.linears.size());
      expect_volumes(run_grid(each.form, grid, chain), predicted_on(each.form, grid, chain), what);
    }
  }
  std::cout << 2 * cases.size() << " grids of ranks\n";
}

}  // namespace
}  // namespace flopcast::realrun
