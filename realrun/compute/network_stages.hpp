#pragma once

#include <functional>
#include <map>
#include <utility>

#include "realrun/compute/stage_compute.hpp"
#include "realrun/device/device.hpp"
#include "realrun/network/network.hpp"

namespace flopcast::realrun {

/// What a rank computes and on which data.
struct NetworkStagesSpec {
  NetworkSpec network;
  std::vector<StagePart> parts;  ///< by stage of the program; stages of a second chain repeat the model
  TensorForm form;
  std::size_t alignment = 1;  ///< of parameters, see ParameterList
  int micro_batch_size = 1;
  /// Of each microbatch; actions then number slices, see Program::slices_per_microbatch.
  int slices = 1;
  float loss_weight = 1;  ///< 1 / microbatches (or slices) that make one update, over all replicas
  /// First sample of a microbatch in a step.
  std::function<std::uint64_t(int step, int stage, int microbatch)> first_sample;
  std::function<void()> poke;                        ///< see Pass
  ComputeDevice* device = nullptr;                   ///< of the rank
  Kernels<float>* kernels = &host_kernels<float>();  ///< on that device
};

/// The stages of a small network, in 32-bit floats between the operations.
class NetworkStages : public StageCompute {
 public:
  explicit NetworkStages(NetworkStagesSpec spec);

  StageLayout layout(int stage) const override;
  void initialise(int stage, int unit, const Buffer& weights) override;
  std::size_t boundary_bytes(int stage) const override;
  void begin_step(int step) override;
  Buffer forward(int stage, int microbatch, const Buffer& input, UnitStore& store) override;
  Buffer input_gradient(int stage, int microbatch, const Buffer& output_gradient, UnitStore& store) override;
  void weight_gradient(int stage, int microbatch, UnitStore& store) override;
  Buffer backward(int stage, int microbatch, const Buffer& output_gradient, UnitStore& store) override;
  std::optional<double> loss(int stage, int microbatch) const override;
  std::size_t peak_activation_bytes() const override { return peak_bytes_; }

 private:
  using Key = std::pair<int, int>;  // stage, microbatch
  struct InFlight {
    Microbatch data;
    TokenSlice slice;
    SliceExchange<float>* slices = nullptr;
    std::vector<Saved<float>> units;
    std::size_t bytes = 0;
  };

  const std::vector<LayerPointer<float>>& units_of(int stage);
  InFlight& begin(int stage, int microbatch);
  std::size_t boundary_rows() const;
  Tensor<float> boundary_tensor(const Buffer& buffer) const;
  Pass<float> pass(const InFlight& microbatch) const;
  Tensor<float> input_gradient_of_unit(int stage, int unit, InFlight& microbatch, const Tensor<float>& flow,
                                       UnitStore& store);
  void weight_gradient_of_unit(int stage, int unit, InFlight& microbatch, UnitStore& store);
  void account(InFlight& microbatch);
  void forget(const Key& key);

  NetworkStagesSpec spec_;
  int step_ = 0;
  std::map<int, std::vector<LayerPointer<float>>> units_;  // by stage, made when first needed
  std::map<Key, InFlight> in_flight_;
  std::map<Key, SliceExchange<float>> exchanges_;  // by whole microbatch, where there are slices
  std::map<Key, Loss> losses_;
  std::size_t bytes_ = 0;
  std::size_t peak_bytes_ = 0;
};

}  // namespace flopcast::realrun
