#pragma once

#include <functional>
#include <memory>
#include <vector>

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

}  // namespace flopcast::realrun
