#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/cost/tensor_line.hpp"
#include "realrun/network/grid_linear.hpp"
#include "realrun/network/tensor_linear.hpp"

namespace flopcast::realrun {

/// A chain of linears as one rank holds it, and which parts of its input and output.
struct RankLinears {
  std::shared_ptr<TensorGroup> group;  ///< that the layer refers to, if any
  LayerPointer<double> layer;
  Shard input;
  Shard output;
};

/// Linears one behind the other, applied to `tokens` rows.
struct LinearChain {
  std::size_t tokens = 0;
  std::vector<LinearSpec> linears;
};

/// Runs forward and both gradients twice on that many threads with the weights that initialise() gives, and compares
/// outputs, input gradients and accumulated weight gradients with products over plain loops: a relative 1e-12. Fails a
/// test otherwise. Returns the elements that each rank sent in the first round.
std::vector<LineVolume> run_against_serial(int ranks, const LinearChain& chain,
                                           const std::function<RankLinears(Transport&)>& build,
                                           const std::string& what);

/// One linear, or a pair, on a line of ranks.
std::vector<LineVolume> run_line(LineForm form, bool sequence_parallel, int ranks, const LinearChain& chain);
/// The chain on a grid.
std::vector<LineVolume> run_grid(TensorParallel form, const TensorGrid& grid, const LinearChain& chain);

}  // namespace flopcast::realrun
