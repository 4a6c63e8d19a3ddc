#pragma once

#include <cstddef>
#include <vector>

#include "realrun/network/tensor_grid.hpp"
#include "tests/support/tensor_line.hpp"

namespace flopcast::realrun {

/// Linears one behind the other, applied to `tokens` rows.
struct LinearChain {
  std::size_t tokens = 0;
  std::vector<LinearSpec> linears;
};

/// The rectangles of a grid linear's input X (tokens x inputs) and output Y (tokens x outputs) that a rank holds; see
/// grid_linear().
struct GridCut {
  Shard input;
  Shard output;
};
GridCut grid_cut(const GridPlace& place, std::size_t tokens, std::size_t inputs, std::size_t outputs);

// Each runs forward and both gradients twice with the weights that initialise() gives, and compares outputs, input
// gradients and accumulated weight gradients with products over plain loops: a relative 1e-12. Fails a test otherwise.
// Returns the elements that a rank sent in the first round.

/// One linear, or a pair, on a line of all ranks of the transport, each of which calls it.
LineVolume run_line_on(RankTransport& transport, LineForm form, bool sequence_parallel, const LinearChain& chain);
/// The chain on a grid of all ranks of the transport.
LineVolume run_grid_on(RankTransport& transport, TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

/// The same on that many threads; by rank.
std::vector<LineVolume> run_line(LineForm form, bool sequence_parallel, int ranks, const LinearChain& chain);
std::vector<LineVolume> run_grid(TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

/// What the model says that a rank sends for the chain.
LineVolume predicted_on(TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

}  // namespace flopcast::realrun
