#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/table.hpp"

namespace flopcast {

struct PartitionStage {
  int layers = 0;
  double time = 0.0;  ///< on one worker
  int replicas = 1;
  std::optional<int> rank;  ///< where a job's schedule says which
  std::string last_layers;  ///< what a graph's cut comes behind
};

/// What `flopcast partition` prints.
struct PartitionAnswer {
  std::string method;  ///< "min-max", "pipedream paper", "pipedream code", "balanced"
  std::string title;
  bool in_seconds = true;
  std::vector<PartitionStage> stages;
  double bottleneck = 0.0;    ///< time between two units of work
  std::string work = "unit";  ///< what comes out once a bottleneck: "microbatch", "minibatch"
  std::optional<std::vector<int>> stage_layers;
  std::optional<double> step_s;
  std::optional<double> uniform_step_s;
  std::vector<std::string> notes;
};

Table partition_table(const PartitionAnswer& answer);
/// Schema flopcast.partition/1.
std::string write_partition(const PartitionAnswer& answer);

}  // namespace flopcast
