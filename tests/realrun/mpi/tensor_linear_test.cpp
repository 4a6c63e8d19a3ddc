// Linears on lines and grids of processes equal serial products, and send the elements that the model predicts.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/realrun/linear_runs.hpp"
#include "tests/realrun/mpi/under_mpi.hpp"

namespace flopcast::realrun {
namespace {

void expect_volume(const LineVolume& sent, const LineVolume& predicted) {
  EXPECT_DOUBLE_EQ(sent.forward, predicted.forward);
  EXPECT_DOUBLE_EQ(sent.input_gradient, predicted.input_gradient);
  EXPECT_DOUBLE_EQ(sent.weight_gradient, predicted.weight_gradient);
}

TEST(TensorLinearOverMpi, AloneAndAsAPairOnALine) {
  run_mpi(test_processes(), {}, [](MpiTransport& transport) {
    const int ranks = transport.rank_count();
    for (const bool sequence_parallel : {false, true}) {
      for (const LineForm form : {LineForm::kColumn, LineForm::kRow, LineForm::kPair}) {
        LinearChain chain{16, {{"up", 8, 32}}};
        if (form == LineForm::kPair) chain.linears.push_back({"down", 32, 24});
        const auto outputs = static_cast<double>(chain.linears.back().outputs);
        expect_volume(run_line_on(transport, form, sequence_parallel, chain),
                      line_volume(form, sequence_parallel, ranks, 16, 8, outputs));
      }
    }
  });
}

TEST(TensorLinearOverMpi, OnGrids) {
  run_mpi(test_processes(), {}, [](MpiTransport& transport) {
    const int ranks = transport.rank_count();
    for (const TensorParallel form : {TensorParallel::k2d, TensorParallel::k25d, TensorParallel::k3d}) {
      for (const int depth : {1, 2}) {
        if (depth == 2 && form != TensorParallel::k25d) continue;
        const TensorGrid grid = tensor_grid(form, ranks, depth);
        if (grid.q == 0) continue;
        const LinearChain chain{16, {{"first", 8, 16}, {"second", 16, 24}}};
        expect_volume(run_grid_on(transport, form, grid, chain), predicted_on(form, grid, chain));
      }
    }
  });
}

}  // namespace
}  // namespace flopcast::realrun
