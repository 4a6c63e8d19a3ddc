#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/enum_names.hpp"
#include "model/hardware/cluster.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// What a rate counts: a GPU, a node, a link of a node to the network (one a card), a rack, all together.
enum class FailureUnit { kGpu, kNode, kLink, kRack, kSite };
template <>
struct EnumNames<FailureUnit> {
  static constexpr std::string_view kNames[] = {"gpu", "node", "link", "rack", "site"};
};

/// What a failure takes out of service until it is repaired.
enum class TakenOut { kNothing, kNode, kRack, kSite };
template <>
struct EnumNames<TakenOut> {
  static constexpr std::string_view kNames[] = {"nothing", "node", "rack", "site"};
};

/// Something that interrupts a run: a Poisson process of the rate units / mtbf.
struct FailureCause {
  std::string name;
  FailureUnit per = FailureUnit::kGpu;
  std::optional<Seconds> mtbf;   ///< mean time between two failures of one such unit
  std::optional<double> events;  ///< instead: so many were seen on Failures::observed
  std::optional<TakenOut> takes;
  std::optional<Seconds> detection;
  std::optional<Seconds> repair;
  /// Nothing stops: results are wrong from then on, which is found after `detection`, and the run goes back to a
  /// checkpoint of before.
  bool silent = false;

  /// By itself: the node of a GPU, node or link; a rack; the site.
  TakenOut takes_out() const;
};

/// The fleet on which causes were counted.
struct ObservedFleet {
  std::optional<int> gpus;
  std::optional<int> nodes;
  std::optional<int> links;  ///< one a GPU where nobody counted them
  std::optional<int> racks;
  std::optional<double> days;

  /// 0 where it is not told.
  double units(FailureUnit unit) const;
};

/// Where a checkpoint stands after a failure of what.
struct CheckpointPolicy {
  std::optional<Seconds> interval;  ///< of training between two; absent: the best
  std::optional<Seconds> cost;      ///< the run stands still for each; absent: from the job
  std::optional<Seconds> restore;   ///< from a replacement at hand to the next step; absent: restart and what is read
  /// The state is copied to the hosts' memory, and written from there beside the next steps.
  bool asynchronous = false;
  std::optional<BytesPerSecond> storage_bandwidth;  ///< of all nodes together; absent: kStorageOfNode each
  bool in_memory = false;                           ///< a second copy in the memory of peers
  std::optional<Seconds> memory_interval;
  std::optional<Seconds> memory_cost;
  std::optional<Seconds> memory_restore;
};
/// 2.3 TB in 40 s from 48 nodes: BLOOM's chronicles (stas00/ml-engineering).
inline constexpr BytesPerSecond kStorageOfNode{1.2e9};

/// A run goes on with fewer data-parallel replicas, and takes them in again.
struct ElasticReplicas {
  int least_dp = 1;
  Seconds regroup{60.0};  ///< all stand still while the replicas form anew
};

/// "0.6 per job month"
struct EventRate {
  double events = 0.0;
  std::string unit;    ///< job, gpu, node, link or rack
  std::string period;  ///< hour, day, week, month (30 days) or year (365 days)
};
std::optional<EventRate> parse_event_rate(const std::string& text);
std::string text_of(const EventRate& rate);

/// Phases in which the whole job runs slower: congestion by other jobs, a throttled GPU. They come by chance and last
/// an exponentially distributed time.
struct SlowPhases {
  EventRate rate;
  Seconds mean;
  double factor = 1.0;                 ///< of the step time
  std::optional<Seconds> evict_after;  ///< what is slow for so long is found and replaced
};

/// Nodes that compute or send slower for as long as they are part of the run.
struct SlowNodes {
  double share = 0.0;                  ///< of all nodes
  double factor = 1.0;                 ///< of the time of their computation
  double link_factor = 1.0;            ///< of the time of what passes their cards
  std::optional<Seconds> evict_after;  ///< a slow node is found and replaced
};

struct Maintenance {
  Seconds every;
  Seconds lasts;
};

/// What a run of months meets and what is done about it: the section `failures` of a job.
struct Failures {
  std::string preset;
  /// The one-cause case: a GPU fails so often, whatever fails. No detection time of its own.
  std::optional<Seconds> mtbf;
  std::vector<FailureCause> causes;
  ObservedFleet observed;
  CheckpointPolicy checkpoint;
  std::optional<Seconds> detection;  ///< of causes that have none of their own; absent: kUsualDetection
  std::optional<Seconds> restart;    ///< processes and communicators, nothing read yet; absent: kUsualRestart
  std::optional<int> spares;         ///< nodes; absent: a replacement is always at hand
  Seconds repair{86'400.0};          ///< of causes that have none of their own
  int rack_nodes = 1;
  std::optional<ElasticReplicas> elastic;
  std::optional<SlowPhases> slow_phases;
  std::optional<SlowNodes> stragglers;
  std::optional<Maintenance> maintenance;
  int runs = 200;
  int seed = 1;
};
/// Chosen: an agent on the node tells in seconds (Unicron, 2401.00134: 0.3 to 5.6 s), a watchdog in minutes.
inline constexpr Seconds kUsualDetection{60.0};
/// Chosen, with a checkpoint of 10 s, so that Llama 3's more than 90 % effective training time comes out (2407.21783
/// section 3.3.4).
inline constexpr Seconds kUsualRestart{300.0};
/// 419 unexpected interruptions in 54 days on 16,384 H100: 50,676 GPU hours (Llama 3, 2407.21783, Table 5).
inline constexpr Seconds kGpuMtbf{54.0 * 86'400.0 * 16'384.0 / 419.0};

/// How many of a unit a cluster has; of uneven nodes as many links as cards would be if all were alike.
double units_of_cluster(const Cluster& cluster, FailureUnit unit, int rack_nodes);
/// Interruptions a second of a cause on a cluster.
double rate_of(const FailureCause& cause, const Failures& failures, const Cluster& cluster);
/// Slow phases a second.
double rate_of(const EventRate& rate, const Cluster& cluster, int rack_nodes);
/// `causes`, or the one cause that `mtbf` stands for.
std::vector<FailureCause> causes_of(const Failures& failures);

}  // namespace flopcast
