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

/// The weights that one pass over a stage reads and the gradients it adds to. The pass requests them unit by unit, just
/// in time, so that a strategy may keep them elsewhere (ZeRO) or act once they are complete (overlapped reductions).
class UnitStore : public Interface {
 public:
  virtual Buffer weights(int unit) = 0;
  /// The gradients of the unit, to be added to; the next call must be gradients_added() for the same unit.
  virtual Buffer gradients(int unit) = 0;
  virtual void gradients_added(int unit) = 0;
};

/// The units of a stage in the order of the forward pass.
struct StageLayout {
  std::vector<ParameterList> units;
};

/// Computes the actions of one rank's stages. A microbatch passes a stage's forward() once, then backward() once, or
/// input_gradient() and at any later time weight_gradient(); the implementation remembers what it needs in between.
/// Backward passes see the weights of the forward pass, or newer ones (PipeMare).
class StageCompute : public Interface {
 public:
  /// Layout of any stage of the program, whether on this rank or not.
  virtual StageLayout layout(int stage) const = 0;
  /// Writes the initial weights of a unit of any stage.
  virtual void initialise(int stage, int unit, const Buffer& weights) = 0;
  /// Weights handed to a pass may change from now on, or their memory may hold other weights.
  virtual void weights_changed() {}
  /// Bytes that a stage sends to the next one; its gradient has the same size.
  virtual std::size_t boundary_bytes(int stage) const = 0;

  /// Selects the data of the microbatches that follow.
  virtual void begin_step(int step) = 0;
  /// `input` is empty on the first stage of a chain, the result on the last.
  virtual Buffer forward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& input, UnitStore& store) = 0;
  /// `output_gradient` is empty on the last stage of a chain, the result on the first.
  virtual Buffer input_gradient(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                                UnitStore& store) = 0;
  virtual void weight_gradient(StageIndex stage, MicrobatchIndex microbatch, UnitStore& store) = 0;
  virtual Buffer backward(StageIndex stage, MicrobatchIndex microbatch, const Buffer& output_gradient,
                          UnitStore& store) = 0;

  /// True if the two halves of an overlapped pair appear as one to other ranks: they begin once both have their inputs,
  /// and both results are available at the end. Otherwise they run one after the other, each as early as possible.
  virtual bool overlaps_pairs() const { return false; }

  /// Mean loss of a microbatch of this step; set only on the last stage of a chain, after its forward pass.
  virtual std::optional<double> loss(StageIndex stage, MicrobatchIndex microbatch) const = 0;
  /// Peak of the bytes kept between forward and weight gradient passes.
  virtual std::size_t peak_activation_bytes() const = 0;
};

/// The network that a rank computes, and its data.
struct NetworkStagesSpec {
  NetworkSpec network;
  std::vector<StagePart> parts;  ///< by stage of the program; stages of a second chain repeat the model
  TensorForm form;
  std::size_t alignment = 1;  ///< of the parameters, see ParameterList
  ContextPart context = {};
  int micro_batch_size = 1;
  /// Slices per microbatch; if more than one, actions number slices, see Program::slices_per_microbatch.
  int slices = 1;
  float loss_weight = 1;  ///< 1 / microbatches (or slices) that make one update, over all replicas
  /// First sample of a microbatch in a step.
  std::function<std::uint64_t(int step, StageIndex stage, MicrobatchIndex microbatch)> first_sample;
  /// Called with the number of bytes moved to the host or back, if activations wait for their backward pass in host
  /// memory.
  std::function<void(std::size_t)> offloads;
  std::function<void()> poke;                        ///< see Pass
  ComputeDevice* device = nullptr;                   ///< the rank's device
  Kernels<float>* kernels = &host_kernels<float>();  ///< for that device
};

/// The stages of a small network, in 32-bit floats between the operations.
std::unique_ptr<StageCompute> make_network_stages(NetworkStagesSpec spec);

/// Makes one thread take exactly the required time by sleeping until absolute deadlines of host_clock().
///
/// A deadline counts from the time the action should have begun, so that a late wake-up in one action does not delay
/// the next: an action that follows immediately begins, on paper, when the previous one should have ended. The
/// correction is at most a millisecond: a thread that is starved for longer appears late. The last stretch of an action
/// is a busy wait, because timers wake a thread some 20 us late. Many more ranks than cores thus keep their pace as
/// long as actions take milliseconds.
class Pace {
 public:
  /// `poke` is called about every millisecond of sleep (see RankTransport::poke).
  explicit Pace(std::function<void()> poke);

  void begin();               ///< of an action
  void work(Ticks duration);  ///< sleeps until the work of the action so far should be done
  void pause();               ///< time until resume() is not part of the work
  void resume() { deadline_ += host_clock() - paused_; }
  void end();  ///< of the action, accurate to the microsecond

 private:
  void sleep_until(Ticks deadline);

  std::function<void()> poke_;
  Ticks deadline_ = 0;
  Ticks ended_ = 0;  // actual end of the last action
  Ticks paused_ = 0;
};

/// Takes the time of every action instead of computing it, so that more ranks than cores run at the pace of a larger
/// machine. Sizes, weights, gradients and messages are those of the stages it replaces: all communication is real.
/// Results, gradients and losses are zero.
/// `times` are by stage; `sizes` must outlive the result. `first` and `last` return true for the first and the last
/// stage of a chain.
std::unique_ptr<StageCompute> make_sleeping_stages(const StageCompute& sizes, std::vector<StageTimes> times,
                                                   std::function<bool(int)> first, std::function<bool(int)> last,
                                                   std::function<void()> poke);

}  // namespace flopcast::realrun
