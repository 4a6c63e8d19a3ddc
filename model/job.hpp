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

struct CostLaws;

/// The question: what is trained, on what, laid out how.
struct Job {
  Transformer model;
  /// When present, the model is these measured layers, and `model` holds no more than its name and their number.
  std::optional<LayerProfile> profile;
  Cluster cluster;
  Layout layout;
  Training training;
  std::optional<Failures> failures;  ///< of a run of months; absent: nothing is asked about them
  /// The name of a device profile that tells nothing but messages: a job that sends none makes no use of it.
  std::string profile_of_messages;
  std::vector<std::string> assumptions;  ///< defaults that mattered, one sentence each
  std::vector<std::string> warnings;     ///< of the files it came from: what is not modelled, or refused elsewhere
  std::shared_ptr<const CostLaws> laws;  ///< of one's own, model/cost/compute.hpp; null: ours
  Origins origins;                       ///< for errors that only show once a schedule is chosen
};

}  // namespace flopcast
