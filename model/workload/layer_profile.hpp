#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "model/hardware/precision.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// One layer of a measured model: what one microbatch costs.
struct ProfiledLayer {
  std::string name;
  Seconds forward;
  Seconds input_gradient;
  Seconds weight_gradient;
  Bytes activation;  ///< kept from forward until backward
  Bytes output;      ///< what crosses a cut behind this layer: its own output and those of earlier layers still needed
  double parameters = 0.0;
};

/// A model known by measurement instead of by its operators: layers in an order in which they can run, any consecutive
/// ones of which make a stage. PipeDream plans from such profiles (Harlap et al. 1806.03377 §3.1).
///
/// Times and bytes are proportional to the microbatch's samples: a microbatch twice the profile's takes twice as long.
/// Times are those of the device that was measured, whatever the cluster's device is.
/// Left out: FLOPs, so there is no MFU; tensor and context parallelism; kernels that grow less than the batch does.
struct LayerProfile {
  std::string measured_on;              ///< device and software, in words; empty when the profile does not say
  std::optional<int> micro_batch_size;  ///< samples that were measured; absent: one microbatch of the layout
  Precision precision = Precision::kFp32;
  int sequence_length = 1;  ///< tokens of a sample
  std::vector<ProfiledLayer> layers;

  double parameters() const {
    double sum = 0.0;
    for (const ProfiledLayer& layer : layers) sum += layer.parameters;
    return sum;
  }
  /// Samples of a microbatch over those of the measurement.
  double scale(int layout_micro_batch_size) const {
    return micro_batch_size ? static_cast<double>(layout_micro_batch_size) / *micro_batch_size : 1.0;
  }
};

/// One measured layer of a graph: what one minibatch costs on one worker.
struct GraphLayer {
  std::string name;  ///< as edges name it: "node17"
  std::string description;
  Seconds forward;
  Seconds backward;
  Bytes activation;
  Bytes parameters;
  bool is_input = false;  ///< stands for loading data
  std::size_t line = 0;   ///< of the file, for messages
  long number = 0;        ///< of the name, for the order
  std::vector<std::size_t> successors;
  std::size_t predecessors = 0;
};

/// A model as measured layers and who needs whose output. Free of cycles once read.
struct LayerGraph {
  std::vector<GraphLayer> layers;  ///< in the order of the file
  std::vector<std::size_t> row;    ///< topological order, the smaller number first where the graph leaves a choice
};

}  // namespace flopcast
