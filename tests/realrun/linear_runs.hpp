#pragma once

#include <cstddef>
#include <vector>

#include "realrun/network/tensor_grid.hpp"
#include "tests/support/tensor_line.hpp"

namespace flopcast::realrun {

/// Linears in sequence, applied to `tokens` rows.
struct LinearChain {
  std::size_t tokens = 0;
  std::vector<LinearSpec> linears;
};

/// The rectangles of a grid linear's input X (tokens x inputs) and output Y (tokens x outputs) held by a rank; see
/// grid_linear().
struct GridCut {
  Shard input;
  Shard output;
};
GridCut grid_cut(const GridPlace& place, std::size_t tokens, std::size_t inputs, std::size_t outputs);

// Each function runs forward and both gradients twice with the weights of initialise(), and compares outputs, input
// gradients and accumulated weight gradients with products by plain loops: a relative 1e-12. Fails a test otherwise.
// Returns the elements that a rank sent in the first round.

/// One linear, or a pair, on a line of all ranks of the transport; all of them call it.
LineVolume run_line_on(RankTransport& transport, LineForm form, bool sequence_parallel, const LinearChain& chain);
/// The chain on a grid of all ranks of the transport.
LineVolume run_grid_on(RankTransport& transport, TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

/// The same on this many threads; results by rank.
std::vector<LineVolume> run_line(LineForm form, bool sequence_parallel, int ranks, const LinearChain& chain);
std::vector<LineVolume> run_grid(TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

/// The model's prediction of what a rank sends for the chain.
LineVolume predicted_on(TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

}  // namespace flopcast::realrun
