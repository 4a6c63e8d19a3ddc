#include "sim/run/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/text/error.hpp"
#include "model/workload/operators.hpp"
#include "model/workload/transformer.hpp"
#include "sim/variation/step_distribution.hpp"

namespace flopcast {

namespace {

// Weights used in 8 bits are saved in 16.
double weight_bytes_saved(Precision precision) {
  return std::max(2.0, element_size(precision).value());
}

double trained_of(const std::vector<Operator>& operators) {
  double sum = 0.0;
  for (const Operator& op : operators) sum += op.parameters - op.frozen_parameters;
  return sum;
}

// Number of trained parameters of the whole model, including adapters.
double trained_parameters(const Job& job) {
  const Training& training = job.training;
  if (!training.finetune) return static_cast<double>(count_parameters(job.model).total);
  const Layout whole;
  double sum = trained_of(embedding_operators(job.model, whole, training)) +
               trained_of(head_operators(job.model, whole, training));
  const LayersByState layers = layers_by_state(job.model, training, 0, job.model.layers);
  for (const LayerState state : {LayerState::kTrained, LayerState::kFrozenPassThrough, LayerState::kFrozenNoGradient}) {
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

// Time to copy a checkpoint from the device's memory to its host's.
double copy_to_host_s(const Job& job) {
  const double rate = job.cluster.host_bandwidth.value();
  if (rate <= 0.0) {
    throw ConfigError(
        {"cluster.host_bandwidth", "is not known, but a checkpoint passes through host memory",
         job.origins.where("cluster"),
         "set it, for example to \"64GB/s\" for PCIe 5 x16, or set failures.checkpoint.cost and memory_cost"});
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
  // Without any checkpoint cost, a checkpoint is always available.
  const double segment = interval_s + checkpoint_s;
  const double per_segment = segment > 0.0 ? mtbf_s * std::expm1(segment / mtbf_s) / segment : 1.0;
  const double useful = segment > 0.0 ? interval_s / segment : 1.0;
  return useful / (per_segment * std::exp(restart_s / mtbf_s));
}

Goodput goodput_of(const Interruptions& interruptions, int gpus) {
  const double mtbf = interruptions.gpu_mtbf_s / gpus;
  Goodput goodput;
  goodput.failures_per_day = kSecondsADay / mtbf;
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
  // Rare enough that nothing fails.
  constexpr double kNever = 1e18;
  interruptions.gpu_mtbf_s = rate > 0.0 ? job.cluster.devices() / rate : kNever;
  interruptions.restart_s = rate > 0.0 ? after / rate : 0.0;
  return interruptions;
}

namespace {

constexpr double kDaysWithoutTokens = 30.0;
constexpr double kMostNanoseconds = 9e18;

std::string no_file(const std::string& path) {
  throw InternalError("a prepared job reads no file: " + path);
}

double steps_of_run(const Forecast& forecast) {
  const Result& result = forecast.result;
  if (result.training) return result.training->steps;
  return std::ceil(kDaysWithoutTokens * kSecondsADay / result.iteration.time_s);
}

int nodes_of(const Cluster& cluster) {
  return static_cast<int>(units_of_cluster(cluster, FailureUnit::kNode, 1));
}

// Number of data-parallel ranks that hold the model once, or share it.
int replica_unit(const Layout& layout) {
  return layout.data_parallel == DataParallel::kHsdp ? layout.shards : 1;
}

bool keeps_whole_state(const Layout& layout) {
  if (layout.data_parallel == DataParallel::kHsdp) return layout.shards < layout.dp;
  return layout.optimizer_shards() == 1;
}

// Replicas that stop if the given number of devices fail together, in whole units.
int replicas_hit(const Layout& layout, int devices) {
  const int of_unit = replica_unit(layout) * layout.tp * layout.pp * layout.cp;
  const int units = (std::max(devices, 1) + of_unit - 1) / of_unit;
  return std::min(units * replica_unit(layout), layout.dp);
}

RunCause run_cause_of(const FailureCause& cause, const Job& job) {
  const Failures& failures = *job.failures;
  RunCause what;
  what.name = cause.name;
  what.per_second = rate_of(cause, failures, job.cluster);
  what.events = cause.events.value_or(0.0);
  what.detection = in_nanoseconds(cause.detection.value_or(failures.detection.value_or(kUsualDetection)));
  what.repair = in_nanoseconds(cause.repair.value_or(failures.repair));
  const TakenOut takes = cause.takes_out_of_service();
  what.nodes = takes == TakenOut::kNothing ? 0 : takes == TakenOut::kNode ? 1 : failures.rack_nodes;
  what.site = takes == TakenOut::kSite;
  if (what.site) what.nodes = nodes_of(job.cluster);
  what.silent = cause.silent;
  what.needs_storage = takes == TakenOut::kSite || (takes == TakenOut::kRack && failures.rack_nodes > 1);
  const int devices = what.nodes * job.cluster.devices_per_node;
  what.replicas = what.site ? job.layout.dp : replicas_hit(job.layout, devices);
  return what;
}

// The job with fewer replicas, each with its previous number of microbatches.
std::optional<Job> with_replicas(const Job& job, int dp) {
  Job fewer = job;
  if (job.cluster.uneven()) return std::nullopt;
  // The fabric is unchanged, and the remaining replicas keep their places.
  if (std::optional<Network>& network = fewer.cluster.network)
    network->nodes = network->nodes.value_or(job.cluster.nodes);
  const int devices = job.layout.ranks() / job.layout.dp * dp;
  if (devices % job.cluster.devices_per_node == 0) {
    fewer.cluster.nodes = devices / job.cluster.devices_per_node;
  } else if (devices < job.cluster.devices_per_node) {
    fewer.cluster.nodes = 1;
    fewer.cluster.devices_per_node = devices;
  } else {
    return std::nullopt;
  }
  if (fewer.cluster.network && !fewer.cluster.network->allocated.empty()) {
    fewer.cluster.network->allocated.resize(static_cast<std::size_t>(fewer.cluster.nodes));
  }
  fewer.layout.dp = dp;
  fewer.layout.global_batch_size = job.layout.microbatches() * job.layout.micro_batch_size * dp;
  return fewer;
}

// Training speed, indexed by the number of replicas; 0 if the layout does not allow that number.
std::vector<double> paces_of(const Forecast& forecast, int least) {
  constexpr int kMostSimulated = 64;
  const Job& job = forecast.step.job;
  const int dp = job.layout.dp;
  const int unit = replica_unit(job.layout);
  std::vector<double> pace(static_cast<std::size_t>(dp) + 1, 0.0);
  pace.back() = 1.0;
  const int numbers = (dp - least) / unit;
  const int stride = unit * std::max(1, (numbers + kMostSimulated - 1) / kMostSimulated);
  double above = 1.0;  // pace of the previous simulated number
  int above_at = dp;
  for (int replicas = dp - unit; replicas >= least; replicas -= unit) {
    const bool simulated = (dp - replicas) % stride == 0 || replicas - unit < least;
    if (!simulated) continue;
    const std::optional<Job> fewer = with_replicas(job, replicas);
    if (!fewer) continue;
    try {
      const double step = ::flopcast::forecast(*fewer, no_file).result.iteration.time_s;
      const double share = static_cast<double>(replicas) / dp;
      pace[static_cast<std::size_t>(replicas)] = std::min(1.0, share * forecast.result.iteration.time_s / step);
    } catch (const ConfigError&) {
      continue;  // the layout does not allow this number: the run waits for more replicas
    }
    const double here = pace[static_cast<std::size_t>(replicas)];
    for (int between = replicas + unit; stride > unit && between < above_at; between += unit) {
      const double place = static_cast<double>(between - replicas) / (above_at - replicas);
      pace[static_cast<std::size_t>(between)] = here + place * (above - here);
    }
    above = here;
    above_at = replicas;
  }
  return pace;
}

void set_elastic(const Forecast& forecast, RunCase& run) {
  const Job& job = forecast.step.job;
  const ElasticReplicas& elastic = *job.failures->elastic;
  if (elastic.least_dp > job.layout.dp) return;  // add_run() warns
  run.least_replicas = elastic.least_dp;
  run.keeps_state = keeps_whole_state(job.layout);
  run.regroup = in_nanoseconds(elastic.regroup);
  // Its weights come from the remaining replicas.
  const CheckpointTimes memory = memory_times(job);
  run.rejoin = in_nanoseconds(job.failures->checkpoint.in_memory ? memory.restore_s : storage_times(job).restore_s);
  run.pace = paces_of(forecast, elastic.least_dp);
}

// All ranks wait for a slow node's passes as for one device's, and a ring is as fast as its slowest card: every message
// between nodes takes that long, which overestimates if pipelines do not cross the node.
double slow_node_pace_of(const Forecast& forecast, const SlowNodes& slow) {
  // Uses steps whose links are not shared, because simulations of slow devices do not model shared links.
  const auto alone_s = [](const Result& result) {
    return result.network ? result.network->without_sharing_s : result.iteration.time_s;
  };
  const double usual = alone_s(forecast.result);
  double step = usual;
  if (slow.link_factor > 1.0) {
    Job narrow = forecast.step.job;
    narrow.cluster.nic_bandwidth = narrow.cluster.nic_bandwidth / slow.link_factor;
    step = alone_s(::flopcast::forecast(narrow, no_file).result);
  }
  if (slow.factor > 1.0 && forecast.step.program.asynchronous) {
    step += usual * (slow.factor - 1.0);
  } else if (slow.factor > 1.0) {
    Variation variation;
    variation.samples = 1;
    Straggler straggler;
    straggler.device = 0;
    straggler.factor = slow.factor;
    variation.stragglers.push_back(straggler);
    step += static_cast<double>(step_time_samples(forecast.step, variation).front()) * kSecondsPerTick - usual;
  }
  return std::min(1.0, usual / step);
}

// In whole steps; 0: never.
Nanoseconds interval_of(const std::optional<Seconds>& given, double blocking_s, double rate, const RunCase& run,
                        Nanoseconds shortest) {
  if (!given && rate <= 0.0) return 0;
  const double seconds = given ? given->value() : best_checkpoint_interval(blocking_s, 1.0 / rate);
  const Nanoseconds wanted = std::max(in_nanoseconds(seconds), shortest);
  const Nanoseconds steps = std::max<Nanoseconds>(1, (wanted + run.step / 2) / run.step);
  const Nanoseconds enough = (shortest + run.step - 1) / run.step;
  return std::min<Nanoseconds>(std::max(steps, enough), run.steps) * run.step;
}

void set_checkpoints(const Job& job, RunCase& run) {
  const CheckpointPolicy& policy = job.failures->checkpoint;
  const CheckpointTimes storage = storage_times(job);
  double to_storage = 0.0;
  double to_memory = 0.0;
  for (const RunCause& cause : run.causes) {
    const bool stays = run.least_replicas > 0 && run.keeps_state && !cause.silent && cause.replicas < run.replicas;
    if (stays && !cause.site) continue;
    const bool near = policy.in_memory && !cause.needs_storage && !cause.silent;
    (near ? to_memory : to_storage) += cause.per_second;
  }
  run.storage.blocking = in_nanoseconds(storage.blocking_s);
  run.storage.writing = in_nanoseconds(storage.writing_s);
  run.storage.restore = in_nanoseconds(storage.restore_s);
  run.storage.interval = interval_of(policy.interval, storage.blocking_s, to_storage, run, run.storage.writing);
  if (!policy.in_memory) return;
  const CheckpointTimes memory = memory_times(job);
  run.memory.blocking = in_nanoseconds(memory.blocking_s);
  run.memory.restore = in_nanoseconds(memory.restore_s);
  run.memory.interval = interval_of(policy.memory_interval, memory.blocking_s, to_memory, run, 0);
  if (run.memory.interval == 0 || run.storage.interval == 0) return;
  // The interval of copies in storage is a multiple of that of copies in memory.
  const Nanoseconds times =
      std::max<Nanoseconds>(1, (run.storage.interval + run.memory.interval / 2) / run.memory.interval);
  run.storage.interval = times * run.memory.interval;
}

// Rejects a run with too many events to simulate.
void refuse_crowded_runs(const RunCase& run, const Job& job) {
  constexpr double kMostEvents = 5e6;
  const double seconds = static_cast<double>(run.steps) * static_cast<double>(run.step) * kNanosecond;
  const auto check = [&](const char* field, double events) {
    if (events <= kMostEvents) return;
    throw ConfigError({field, fmt::format("results in {:.2g} events in the run", events), job.origins.where(field),
                       fmt::format("at most {:.0g} are simulated", kMostEvents)});
  };
  double rate = 0.0;
  for (const RunCause& cause : run.causes) rate += cause.per_second;
  check(job.failures->mtbf ? "failures.mtbf" : "failures.causes", rate * seconds);
  check("failures.slow_phases.rate", run.slow_per_second * seconds);
  if (run.maintenance_every == 0) return;
  check("failures.maintenance.every", seconds / (static_cast<double>(run.maintenance_every) * kNanosecond));
}

}  // namespace

Nanoseconds in_nanoseconds(double seconds) {
  FLOPCAST_CHECK(seconds >= 0.0);
  const double whole = std::round(seconds / kNanosecond);
  return whole < kMostNanoseconds ? static_cast<Nanoseconds>(whole) : static_cast<Nanoseconds>(kMostNanoseconds);
}
Nanoseconds in_nanoseconds(Seconds time) {
  return in_nanoseconds(time.value());
}

RunCase run_case_of(const Forecast& forecast) {
  const Job& job = forecast.step.job;
  FLOPCAST_CHECK(job.failures.has_value());
  const Failures& failures = *job.failures;
  RunCase run;
  run.steps = static_cast<std::int64_t>(steps_of_run(forecast));
  run.step = std::max<Nanoseconds>(1, in_nanoseconds(forecast.result.iteration.time_s));
  // A hundred times the run's length must fit the clock.
  constexpr double kLongest = kMostNanoseconds * kNanosecond / 100.0;
  if (steps_of_run(forecast) * forecast.result.iteration.time_s > kLongest) {
    throw ConfigError({"training.tokens", "takes more than 2.8 years", job.origins.where("training.tokens"),
                       "runs with failures are simulated up to that length"});
  }
  run.replicas = job.layout.dp;
  run.nodes = nodes_of(job.cluster);
  for (const FailureCause& cause : causes_of(failures)) run.causes.push_back(run_cause_of(cause, job));
  run.spares = failures.spares.value_or(-1);
  if (failures.elastic) set_elastic(forecast, run);
  set_checkpoints(job, run);
  if (failures.slow_phases) {
    const SlowPhases& slow = *failures.slow_phases;
    run.slow_per_second = rate_of(slow.rate, job.cluster, failures.rack_nodes);
    run.slow_mean = in_nanoseconds(slow.mean);
    run.slow_pace = 1.0 / slow.factor;
    if (slow.evict_after) run.slow_evict = std::max(run.step, in_nanoseconds(*slow.evict_after));
  }
  if (failures.stragglers) {
    const SlowNodes& slow = *failures.stragglers;
    run.slow_node_share = slow.share;
    run.slow_node_pace = slow_node_pace_of(forecast, slow);
    if (slow.evict_after) run.slow_node_evict = std::max(run.step, in_nanoseconds(*slow.evict_after));
  }
  if (failures.maintenance) {
    run.maintenance_every = in_nanoseconds(failures.maintenance->every);
    run.maintenance_lasts = in_nanoseconds(failures.maintenance->lasts);
  }
  refuse_crowded_runs(run, job);
  return run;
}

std::string RunCase::account_name(std::size_t account) const {
  if (account < causes.size()) return causes[account].name;
  static constexpr const char* kOthers[] = {"checkpoints", "slow phases", "slow nodes", "maintenance"};
  return kOthers[account - causes.size()];
}

}  // namespace flopcast
