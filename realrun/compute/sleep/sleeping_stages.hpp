#pragma once

#include <vector>

#include "realrun/compute/sleep/pace.hpp"
#include "realrun/compute/stage_compute.hpp"
#include "sim/program/step_times.hpp"

namespace flopcast::realrun {

/// Takes the time of every action instead of computing it, so that more ranks than cores run at the pace of a larger
/// machine. Sizes are those of the stages it stands for, and weights, gradients and messages are asked for, handed in
/// and sent as by them: all communication is real. Results and gradients are zeros, losses too.
class SleepingStages : public StageCompute {
 public:
  /// `times` by stage; `sizes` outlives this. `last` tells whether a stage is the last of its chain, `first` the first.
  SleepingStages(const StageCompute& sizes, std::vector<StageTimes> times, std::function<bool(int)> first,
                 std::function<bool(int)> last, std::function<void()> poke);

  StageLayout layout(int stage) const override { return sizes_.layout(stage); }
  void initialise(int stage, int unit, const Buffer& weights) override;
  std::size_t boundary_bytes(int stage) const override { return sizes_.boundary_bytes(stage); }
  void begin_step(int step) override;
  Buffer forward(int stage, int microbatch, const Buffer& input, UnitStore& store) override;
  Buffer input_gradient(int stage, int microbatch, const Buffer& output_gradient, UnitStore& store) override;
  void weight_gradient(int stage, int microbatch, UnitStore& store) override;
  Buffer backward(int stage, int microbatch, const Buffer& output_gradient, UnitStore& store) override;
  std::optional<double> loss(int stage, int microbatch) const override;
  std::size_t peak_activation_bytes() const override { return 0; }

 private:
  enum class Order { kForward, kBackward };
  struct Work {
    Ticks duration = 0;
    Order order = Order::kForward;
    bool reads_weights = true;
    bool adds_gradients = false;
  };
  const StageTimes& times_of(int stage) const { return times_.at(static_cast<std::size_t>(stage)); }
  int unit_count(int stage);
  void pass(int stage, const Work& work, UnitStore& store);

  const StageCompute& sizes_;
  std::vector<StageTimes> times_;
  std::function<bool(int)> first_;
  std::function<bool(int)> last_;
  Pace pace_;
  std::vector<int> unit_counts_;  // by stage; 0: not yet known
};

}  // namespace flopcast::realrun
