#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "realrun/device/buffer.hpp"
#include "realrun/network/layer.hpp"
#include "sim/program/index.hpp"

namespace flopcast::realrun {

/// The weights that one pass over a stage reads and the gradients it adds to, asked for unit by unit and just in time,
/// so that a strategy may keep them elsewhere (ZeRO) or act when they are complete (overlapped reductions).
class UnitStore : public Interface {
 public:
  virtual Buffer weights(int unit) = 0;
  /// The gradients of the unit, to be added to; the next call is gradients_added() for the same unit.
  virtual Buffer gradients(int unit) = 0;
  virtual void gradients_added(int unit) = 0;
};

/// The units of a stage in the order of the forward pass.
struct StageLayout {
  std::vector<ParameterList> units;
};

/// Computes the actions of one rank's stages. A microbatch of a stage passes forward() once, then backward() once or
/// input_gradient() and, any time later, weight_gradient(); what it needs to remember in between is its own matter.
/// The backward passes have the weights of the forward pass, or newer ones (PipeMare).
class StageCompute : public Interface {
 public:
  /// Of any stage of the program, on this rank or not.
  virtual StageLayout layout(int stage) const = 0;
  /// Writes the initial weights of a unit of any stage.
  virtual void initialise(int stage, int unit, const Buffer& weights) = 0;
  /// Weights that were handed to a pass may hold other values from now on, or their memory other weights.
  virtual void weights_changed() {}
  /// Size of what a stage hands to the next one, and of its gradient.
  virtual std::size_t boundary_bytes(int stage) const = 0;

  /// Which data the microbatches stand for from now on.
  virtual void begin_step(int step) = 0;
  /// `input` is empty on the first stage of a chain, the result on the last.
  virtual Buffer forward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& input, UnitStore& store) = 0;
  /// `output_gradient` is empty on the last stage of a chain, the result on the first.
  virtual Buffer input_gradient(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                                UnitStore& store) = 0;
  virtual void weight_gradient(StageIndex stage, MicrobatchIndex microbatch, UnitStore& store) = 0;
  virtual Buffer backward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                          UnitStore& store) = 0;

  /// Whether the halves of an overlapped pair are one to whoever waits: they begin when both have their inputs, and
  /// both results are there at the end. Else they run one after the other, each as soon as it can.
  virtual bool overlaps_pairs() const { return false; }

  /// Mean loss of a microbatch of this step; nothing but on the last stage of a chain, after its forward pass.
  virtual std::optional<double> loss(StageIndex stage, MicrobatchIndex microbatch) const = 0;
  /// Most bytes that were kept at once between forward and weight gradient passes.
  virtual std::size_t peak_activation_bytes() const = 0;
};

}  // namespace flopcast::realrun
