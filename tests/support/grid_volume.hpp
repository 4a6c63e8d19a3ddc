#pragma once

#include "model/cost/axis_costs.hpp"

namespace flopcast {

// Volumes in the form of the papers' tables, computed from the panels that the model prices.

/// Elements that a rank sends for the forward pass, for the input's gradient and for the weight's gradient.
struct GridVolume {
  double forward = 0.0;
  double input_gradient = 0.0;
  double weight_gradient = 0.0;
  double depth_reduction = 0.0;
  int steps = 0;  ///< over all three passes, without the sum over the depth
};

inline GridVolume grid_volume(TensorParallel form, const TensorGrid& grid, double tokens, double inputs,
                              double outputs) {
  const GridPanels panels = grid_panels(form, grid, tokens, inputs, outputs);
  const double sent = static_cast<double>(grid.q - 1) / grid.q;
  const double both = (panels.gathered_input + panels.gathered_weight) * sent;
  GridVolume volume;
  volume.steps = 6 * (grid.q - 1);
  if (form == TensorParallel::k3d) {
    volume.forward = both + panels.reduced_output * sent;
    volume.input_gradient = (panels.reduced_output + panels.gathered_input) * sent;
    volume.weight_gradient = panels.gathered_weight * sent;
    return volume;
  }
  volume.forward = volume.input_gradient = volume.weight_gradient = both;
  volume.depth_reduction = 2.0 * (grid.depth - 1) / grid.depth * panels.summed_over_depth;
  return volume;
}

}  // namespace flopcast
