#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "realrun/device/buffer.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/network.hpp"
#include "sim/program/program.hpp"
#include "sim/program/request.hpp"

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

/// What a rank computes and on which data.
struct NetworkStagesSpec {
  NetworkSpec network;
  std::vector<StagePart> parts;  ///< by stage of the program; stages of a second chain repeat the model
  TensorForm form;
  std::size_t alignment = 1;  ///< of parameters, see ParameterList
  ContextPart context = {};
  int micro_batch_size = 1;
  /// Of each microbatch; actions then number slices, see Program::slices_per_microbatch.
  int slices = 1;
  float loss_weight = 1;  ///< 1 / microbatches (or slices) that make one update, over all replicas
  /// First sample of a microbatch in a step.
  std::function<std::uint64_t(int step, StageIndex stage, MicrobatchIndex microbatch)> first_sample;
  /// Where activations wait in the host's memory for their backward pass: told how many bytes have gone there, or come
  /// back.
  std::function<void(std::size_t)> offloads;
  std::function<void()> poke;                        ///< see Pass
  ComputeDevice* device = nullptr;                   ///< of the rank
  Kernels<float>* kernels = &host_kernels<float>();  ///< on that device
};

/// The stages of a small network, in 32-bit floats between the operations.
std::unique_ptr<StageCompute> make_network_stages(NetworkStagesSpec spec);

/// Lets one thread take exactly as long as it should by sleeping towards absolute deadlines of host_clock().
///
/// A deadline counts from when the action should have begun, so that waking up late in one action does not delay the
/// next: an action that follows at once begins, on paper, where the last one should have ended (a millisecond before at
/// most: a thread that is starved for longer shows). The last stretch of an action is spun, as timers wake a thread
/// some 20 us late. Many more ranks than cores thus keep their time as long as actions are milliseconds.
class Pace {
 public:
  /// `poke` is called about every millisecond of sleep (see RankTransport::poke).
  explicit Pace(std::function<void()> poke);

  void begin();               ///< an action
  void work(Ticks duration);  ///< sleeps until what the action has done so far should be done
  void pause();               ///< what follows, until resume(), takes its own time
  void resume() { deadline_ += host_clock() - paused_; }
  void end();  ///< of the action, to the microsecond

 private:
  void sleep_until(Ticks deadline);

  std::function<void()> poke_;
  Ticks deadline_ = 0;
  Ticks ended_ = 0;  // when the last action really did
  Ticks paused_ = 0;
};

/// Takes the time of every action instead of computing it, so that more ranks than cores run at the pace of a larger
/// machine. Sizes are those of the stages it stands for, and weights, gradients and messages are asked for, handed in
/// and sent as by them: all communication is real. Results and gradients are zeros, losses too.
/// `times` by stage; `sizes` outlives it. `last` tells whether a stage is the last of its chain, `first` the first.
std::unique_ptr<StageCompute> make_sleeping_stages(const StageCompute& sizes, std::vector<StageTimes> times,
                                                   std::function<bool(int)> first, std::function<bool(int)> last,
                                                   std::function<void()> poke);

}  // namespace flopcast::realrun
