#include "sim/run/run.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text/error.hpp"
#include "model/workload/operators.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

namespace {

constexpr double kDaySeconds = 86'400.0;

// Those that are computed with in 8 bits are kept in 16.
double weight_bytes_saved(Precision precision) {
  return std::max(2.0, element_size(precision).value());
}

double trained_of(const std::vector<Operator>& operators) {
  double sum = 0.0;
  for (const Operator& op : operators) sum += op.parameters - op.frozen_parameters;
  return sum;
}

// Of the whole model, adapters included.
double trained_parameters(const Job& job) {
  const Training& training = job.training;
  if (!training.finetune) return static_cast<double>(count_parameters(job.model).total);
  const Layout whole;
  double sum = trained_of(embedding_operators(job.model, whole, training)) +
               trained_of(head_operators(job.model, whole, training));
  const LayersByState layers = layers_by_state(job.model, training, 0, job.model.layers);
  for (const LayerState state : {LayerState::kTrained, LayerState::kPassing, LayerState::kStill}) {
    const auto add_blocks = [&](BlockKind kind, int count) {
      if (count > 0) sum += count * trained_of(block_operators(job.model, whole, training, kind, state));
    };
    add_blocks(BlockKind::kDense, layers.dense[static_cast<std::size_t>(state)]);
    add_blocks(BlockKind::kExperts, layers.with_experts[static_cast<std::size_t>(state)]);
  }
  return sum;
}

double storage_bandwidth_of(const Job& job) {
  const CheckpointPolicy& policy = job.failures->checkpoint;
  if (policy.storage_bandwidth) return policy.storage_bandwidth->value();
  return kStorageOfNode.value() * units_of_cluster(job.cluster, FailureUnit::kNode, 1);
}

double restart_of(const Job& job) {
  return job.failures->restart.value_or(kUsualRestart).value();
}

// Out of the device's memory into its host's.
double copy_to_host_s(const Job& job) {
  const double rate = job.cluster.host_bandwidth.value();
  if (rate <= 0.0) {
    throw ConfigError({"cluster.host_bandwidth", "is not known, and a checkpoint passes through host memory",
                       job.origins.where("cluster"),
                       "give it, such as \"64GB/s\" for PCIe 5 x16, or failures.checkpoint.cost and memory_cost"});
  }
  return checkpoint_bytes(job).value() / job.cluster.devices() / rate;
}

}  // namespace

double best_checkpoint_interval(double checkpoint_s, double mtbf_s) {
  if (checkpoint_s >= 2.0 * mtbf_s) return mtbf_s;
  const double ratio = checkpoint_s / (2.0 * mtbf_s);
  return std::sqrt(2.0 * checkpoint_s * mtbf_s) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) - checkpoint_s;
}

double daly_fraction(double interval_s, double checkpoint_s, double restart_s, double mtbf_s) {
  // Without any cost of a checkpoint one is always at hand.
  const double segment = interval_s + checkpoint_s;
  const double per_segment = segment > 0.0 ? mtbf_s * std::expm1(segment / mtbf_s) / segment : 1.0;
  const double useful = segment > 0.0 ? interval_s / segment : 1.0;
  return useful / (per_segment * std::exp(restart_s / mtbf_s));
}

Goodput goodput_of(const Interruptions& interruptions, int gpus) {
  const double mtbf = interruptions.gpu_mtbf_s / gpus;
  Goodput goodput;
  goodput.failures_per_day = kDaySeconds / mtbf;
  goodput.interval_s = best_checkpoint_interval(interruptions.checkpoint_s, mtbf);
  goodput.fraction = daly_fraction(goodput.interval_s, interruptions.checkpoint_s, interruptions.restart_s, mtbf);
  return goodput;
}

Bytes checkpoint_bytes(const Job& job) {
  const double of_weight = weight_bytes_saved(job.training.precision);
  const double of_state = optimizer_bytes_per_parameter(job.training);
  const double parameters = job.profile ? job.profile->parameters() : trained_parameters(job);
  return Bytes(parameters * (of_weight + of_state));
}

CheckpointTimes storage_times(const Job& job) {
  FLOPCAST_CHECK(job.failures.has_value());
  const Failures& failures = *job.failures;
  const CheckpointPolicy& policy = failures.checkpoint;
  const double through_storage = checkpoint_bytes(job).value() / storage_bandwidth_of(job);
  const Interruptions one_cause;
  CheckpointTimes times;
  if (policy.asynchronous) {
    times.blocking_s = policy.cost ? policy.cost->value() : copy_to_host_s(job);
    times.writing_s = through_storage;
  } else if (policy.cost) {
    times.blocking_s = policy.cost->value();
  } else {
    times.blocking_s = failures.mtbf ? one_cause.checkpoint_s : through_storage;
  }
  if (policy.restore) {
    times.restore_s = policy.restore->value();
  } else {
    times.restore_s = failures.mtbf && !failures.restart ? one_cause.restart_s : restart_of(job) + through_storage;
  }
  return times;
}

CheckpointTimes memory_times(const Job& job) {
  FLOPCAST_CHECK(job.failures.has_value());
  const CheckpointPolicy& policy = job.failures->checkpoint;
  CheckpointTimes times;
  if (!policy.in_memory) return times;
  times.blocking_s = policy.memory_cost ? policy.memory_cost->value() : copy_to_host_s(job);
  if (policy.memory_restore) {
    times.restore_s = policy.memory_restore->value();
    return times;
  }
  const double of_node = checkpoint_bytes(job).value() * job.cluster.devices_per_node / job.cluster.devices();
  const double network = job.cluster.node_network_bandwidth().value() * job.cluster.nic_efficiency;
  times.restore_s = restart_of(job) + (network > 0.0 ? of_node / network : 0.0);
  return times;
}

Interruptions interruptions_of(const Job& job) {
  FLOPCAST_CHECK(job.failures.has_value());
  const Failures& failures = *job.failures;
  const CheckpointTimes storage = storage_times(job);
  const CheckpointTimes memory = memory_times(job);
  const bool near = failures.checkpoint.in_memory;
  double rate = 0.0;
  double after = 0.0;
  for (const FailureCause& cause : causes_of(failures)) {
    const double of_cause = rate_of(cause, failures, job.cluster);
    const double detection = cause.detection.value_or(failures.detection.value_or(kUsualDetection)).value();
    rate += of_cause;
    after += of_cause * (detection + (near ? memory.restore_s : storage.restore_s));
  }
  Interruptions interruptions;
  interruptions.checkpoint_s = near ? memory.blocking_s : storage.blocking_s;
  // So rare that nothing fails.
  constexpr double kNever = 1e18;
  interruptions.gpu_mtbf_s = rate > 0.0 ? job.cluster.devices() / rate : kNever;
  interruptions.restart_s = rate > 0.0 ? after / rate : 0.0;
  return interruptions;
}

}  // namespace flopcast
