#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/config/document.hpp"
#include "model/hardware/cluster.hpp"
#include "model/layout/layout.hpp"
#include "model/workload/failures.hpp"
#include "model/workload/training.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

struct CostOverrides;

/// The input of every forecast: model, hardware and layout.
struct Job {
  Transformer model;
  /// If present, these measured layers replace the model, and `model` holds only its name and number of layers.
  std::optional<LayerProfile> profile;
  Cluster cluster;
  Layout layout;
  Training training;
  std::optional<Failures> failures;  ///< failures during a run of months; absent: not modelled
  /// Name of a device profile that contains only message timings; a job that sends no messages does not use it.
  std::string profile_of_messages;
  std::vector<std::string> assumptions;  ///< defaults that affect the result, one sentence each
  std::vector<std::string>
      warnings;  ///< about the input files: settings that are not modelled, or that other software rejects
  std::shared_ptr<const CostOverrides> laws;  ///< user-defined cost model, model/cost/compute.hpp; null: built in
  Origins origins;                            ///< for errors that only appear once a schedule is chosen
};

}  // namespace flopcast
