#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/cluster.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// Unit that a failure rate refers to: a GPU, a node, a node's link to the network (one per card), a rack, the whole
/// site.
enum class FailureUnit { kGpu, kNode, kLink, kRack, kSite };
template <>
struct EnumNames<FailureUnit> {
  static constexpr std::string_view kNames[] = {"gpu", "node", "link", "rack", "site"};
};

/// Unit that a failure takes out of service until it is repaired.
enum class TakenOut { kNothing, kNode, kRack, kSite };
template <>
struct EnumNames<TakenOut> {
  static constexpr std::string_view kNames[] = {"nothing", "node", "rack", "site"};
};

/// A cause of interruptions: a Poisson process with rate units / mtbf.
struct FailureCause {
  std::string name;
  FailureUnit per = FailureUnit::kGpu;
  std::optional<Seconds> mtbf;   ///< mean time between failures of one such unit
  std::optional<double> events;  ///< alternative to mtbf: number of events seen on Failures::observed
  std::optional<TakenOut> takes;
  std::optional<Seconds> detection;
  std::optional<Seconds> repair;
  /// Nothing stops, but results are wrong from then on. This is noticed after `detection`, and the run returns to a
  /// checkpoint from before.
  bool silent = false;

  /// Default: the node for causes per GPU, node or link; otherwise the rack or the site.
  TakenOut takes_out_of_service() const;
};

/// The fleet on which failures were counted.
struct ObservedFleet {
  std::optional<int> gpus;
  std::optional<int> nodes;
  std::optional<int> links;  ///< absent: one per GPU
  std::optional<int> racks;
  std::optional<double> days;

  /// 0 if unspecified.
  double units(FailureUnit unit) const;
};

/// When checkpoints are written, where, and at what cost.
struct CheckpointPolicy {
  std::optional<Seconds> interval;  ///< training time between two; absent: optimal
  std::optional<Seconds> cost;      ///< time the run stops for each; absent: derived from the job
  std::optional<Seconds> restore;   ///< from an available replacement to the next step; absent: restart plus reading
  /// The state is copied to host memory and written from there during the next steps.
  bool asynchronous = false;
  std::optional<BytesPerSecond> storage_bandwidth;  ///< of all nodes together; absent: kStorageOfNode per node
  bool in_memory = false;                           ///< a second copy in the memory of peers
  std::optional<Seconds> memory_interval;
  std::optional<Seconds> memory_cost;
  std::optional<Seconds> memory_restore;
};
/// 2.3 TB in 40 s from 48 nodes: the BLOOM chronicles (stas00/ml-engineering).
inline constexpr BytesPerSecond kStorageOfNode{1.2e9};

/// The run continues with fewer data-parallel replicas and readmits repaired ones.
struct ElasticReplicas {
  int least_dp = 1;
  Seconds regroup{60.0};  ///< time all replicas stop while they regroup
};

/// "0.6 per job month"
struct EventRate {
  double events = 0.0;
  std::string unit;    ///< job, gpu, node, link or rack
  std::string period;  ///< hour, day, week, month (30 days) or year (365 days)
};
std::optional<EventRate> parse_event_rate(const std::string& text);
std::string text_of(const EventRate& rate);

/// Phases in which the whole job is slower, through congestion by other jobs or a throttled GPU. They occur at random
/// and have exponentially distributed durations.
struct SlowPhases {
  EventRate rate;
  Seconds mean;
  double factor = 1.0;                 ///< on the step time
  std::optional<Seconds> evict_after;  ///< the cause is found and replaced after this time
};

/// Nodes that compute or send more slowly as long as they are part of the run.
struct SlowNodes {
  double share = 0.0;                  ///< fraction of all nodes
  double factor = 1.0;                 ///< on the time of their computation
  double link_factor = 1.0;            ///< on the transfer time of their cards
  std::optional<Seconds> evict_after;  ///< a slow node is found and replaced after this time
};

struct Maintenance {
  Seconds every;
  Seconds lasts;
};

/// Failures during a run of months and the reaction to them: the section `failures` of a job.
struct Failures {
  std::string preset;
  /// Single-cause case: failures of any kind per GPU, without a detection time of their own.
  std::optional<Seconds> mtbf;
  std::vector<FailureCause> causes;
  ObservedFleet observed;
  CheckpointPolicy checkpoint;
  std::optional<Seconds> detection;  ///< of causes without their own; absent: kUsualDetection
  std::optional<Seconds> restart;    ///< of processes and communicators, without reading; absent: kUsualRestart
  std::optional<int> spares;         ///< in nodes; absent: a replacement is always available
  Seconds repair{86'400.0};          ///< of causes without their own
  int rack_nodes = 1;
  std::optional<ElasticReplicas> elastic;
  std::optional<SlowPhases> slow_phases;
  std::optional<SlowNodes> stragglers;
  std::optional<Maintenance> maintenance;
  int runs = 200;
  int seed = 1;
};
/// Assumed: an agent on the node detects failures in seconds (Unicron, 2401.00134: 0.3 to 5.6 s), a watchdog in
/// minutes.
inline constexpr Seconds kUsualDetection{60.0};
/// Assumed, together with a checkpoint of 10 s, to reproduce the more than 90 % effective training time of Llama 3
/// (2407.21783 section 3.3.4).
inline constexpr Seconds kUsualRestart{300.0};
/// 419 unexpected interruptions in 54 days on 16,384 H100: 50,676 GPU hours (Llama 3, 2407.21783, Table 5).
inline constexpr Seconds kGpuMtbf{54.0 * 86'400.0 * 16'384.0 / 419.0};

/// Number of such units in a cluster; for uneven nodes, links are counted as if all nodes had the same number of cards.
double units_of_cluster(const Cluster& cluster, FailureUnit unit, int rack_nodes);
/// Interruptions per second of a cause on a cluster.
double rate_of(const FailureCause& cause, const Failures& failures, const Cluster& cluster);
/// Slow phases per second.
double rate_of(const EventRate& rate, const Cluster& cluster, int rack_nodes);
/// `causes`, or the single cause that `mtbf` represents.
std::vector<FailureCause> causes_of(const Failures& failures);

}  // namespace flopcast
