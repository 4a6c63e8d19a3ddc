#include "model/cost/collectives.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "model/cost/compute.hpp"
#include "model/hardware/network_fabric.hpp"

namespace flopcast {

namespace {

// NCCL's tuning constants (src/graph/tuning.cc, 2.28): latencies in microseconds, bandwidths in GB/s per channel.
enum Protocol { kLl, kLl128, kSimple };
using PerProtocol = std::array<double, 3>;

constexpr PerProtocol kTreeBase = {6.8, 14.0, 8.4};
constexpr PerProtocol kRingBase = {6.6, 14.0, 8.4};
constexpr PerProtocol kTreeHopIntra = {0.6, 1.25, 4.0};
constexpr PerProtocol kRingHopIntra = {0.6, 1.9, 3.4};
constexpr PerProtocol kTreeHopInter = {5.0, 8.5, 14.0};
constexpr PerProtocol kRingHopInter = {2.7, 4.0, 14.0};
constexpr double kNvlsHopIntra = 25.0;
constexpr double kNvlsHopInter = 18.0;

// Largest LL bandwidth: inside one node by generation, and between nodes (Intel hosts).
double largest_ll_bandwidth(GpuGeneration generation, int nodes) {
  if (nodes == 2) return 39.0;
  if (nodes > 2) return 20.4;
  switch (generation) {
    case GpuGeneration::kVolta:
    case GpuGeneration::kTuring:
      return 39.0;
    case GpuGeneration::kAmpere:
    case GpuGeneration::kAda:
    case GpuGeneration::kCdna2:
    case GpuGeneration::kCdna3:
    case GpuGeneration::kCpu:
      return 87.7;
    case GpuGeneration::kHopper:
      return 141.0;
    case GpuGeneration::kBlackwell:
      return 282.0;
  }
  return 87.7;
}

double ring_ll128_per_channel(GpuGeneration generation) {
  switch (generation) {
    case GpuGeneration::kVolta:
    case GpuGeneration::kTuring:
    case GpuGeneration::kAmpere:
    case GpuGeneration::kAda:
    case GpuGeneration::kCdna2:
    case GpuGeneration::kCdna3:
    case GpuGeneration::kCpu:
      return 20.0;
    case GpuGeneration::kHopper:
      return 36.7;
    case GpuGeneration::kBlackwell:
      return 40.0;
  }
  return 20.0;
}

constexpr double kGiga = 1e9;
constexpr double kMicro = 1e-6;

// A Simple-protocol all-reduce between nodes pays more per hop once a chunk fills a channel.
double simple_internode_penalty(GpuGeneration generation) {
  const bool before_ampere = generation == GpuGeneration::kVolta || generation == GpuGeneration::kTuring;
  return before_ampere ? 1.9 : 1.4;
}
constexpr double kPenaltyFromBytesPerChunk = 64.0;

// NCCL corrects a tree's bandwidth with a table over sizes for each protocol: 0.5 to 0.8 between 4 KB and 2 MB, 0.9 and
// more elsewhere. This single curve approximates them, log-linear in size, so that a larger message never takes less
// time.
double tree_size_factor(double bytes) {
  constexpr double kKib = 1024.0;
  struct Point {
    double bytes;
    double factor;
  };
  constexpr std::array<Point, 4> kCurve = {
      {{kKib, 1.0}, {4 * kKib, 0.7}, {2 * kKib * kKib, 0.7}, {16 * kKib * kKib, 0.9}}};
  if (bytes <= kCurve.front().bytes) return kCurve.front().factor;
  for (std::size_t index = 1; index < kCurve.size(); ++index) {
    const Point& from = kCurve[index - 1];
    const Point& to = kCurve[index];
    if (bytes > to.bytes) continue;
    return from.factor + (to.factor - from.factor) * std::log(bytes / from.bytes) / std::log(to.bytes / from.bytes);
  }
  return kCurve.back().factor;
}

struct Group {
  double ranks;
  double nodes;
  double ranks_per_node;
  double bus;       // GB/s that a ring of this group can carry
  double channels;  // number that NCCL opens at its usual 20 GB/s each
  double network;   // latency in us that the network adds to a hop between nodes
  GpuGeneration generation;
};

double steps_of(CollectiveKind kind, double ranks) {
  return kind == CollectiveKind::kAllReduce ? 2 * (ranks - 1) : ranks - 1;
}

double ring_us(CollectiveKind kind, double bytes, const Group& group, Protocol protocol) {
  const std::size_t index = static_cast<std::size_t>(protocol);
  const double steps = steps_of(kind, group.ranks);
  const double inter_steps =
      group.nodes > 1 ? (kind == CollectiveKind::kAllReduce ? 2.0 : 1.0) * (group.nodes - 1) : 0.0;
  double latency = kRingBase[index] + (steps - inter_steps) * kRingHopIntra[index] +
                   inter_steps * (kRingHopInter[index] + group.network);
  const bool full_chunks = bytes / (group.channels * group.ranks) >= kPenaltyFromBytesPerChunk;
  if (protocol == kSimple && kind == CollectiveKind::kAllReduce && group.nodes > 1 && full_chunks) {
    latency *= simple_internode_penalty(group.generation);
  }
  double bus = group.bus;
  if (protocol == kLl) {
    bus = std::min(largest_ll_bandwidth(group.generation, static_cast<int>(group.nodes)), group.bus * 0.5);
  }
  if (protocol == kLl128) bus = std::min(group.bus * 0.92, group.channels * ring_ll128_per_channel(group.generation));
  const double algorithm_bandwidth = bus * group.ranks / steps;
  return latency + bytes / (algorithm_bandwidth * kGiga) / kMicro;
}

struct Tree {
  double depth;        // of the part between nodes
  double size_factor;  // factor on the bandwidth
};

double tree_us(double bytes, const Tree& tree, const Group& group, Protocol protocol) {
  const std::size_t index = static_cast<std::size_t>(protocol);
  const double latency = kTreeBase[index] + 2 * ((group.ranks_per_node - 1) * kTreeHopIntra[index] +
                                                 tree.depth * (kTreeHopInter[index] + group.network));
  double bus = group.bus * 0.92;
  if (protocol == kLl) {
    bus = std::min(largest_ll_bandwidth(group.generation, static_cast<int>(group.nodes)), group.bus / 3.8);
  }
  if (protocol == kLl128) bus = group.bus * (group.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0);
  const double algorithm_bandwidth = bus * 0.5 * tree.size_factor;
  return latency + bytes / (algorithm_bandwidth * kGiga) / kMicro;
}

// In-switch reduction on Hopper and later. The switch carries each byte once, so an all-reduce needs half the traffic;
// 8 H100 measure 0.837 of the modelled rate (480 GB/s bus bandwidth, NVIDIA dgxc-benchmarking).
double nvls_us(CollectiveKind kind, double bytes, const Group& group) {
  constexpr double kMeasuredShare = 0.837;
  const double efficiency = group.generation == GpuGeneration::kHopper ? 0.85 : 0.74;
  const double channels = 16.0;
  const double factor = kind == CollectiveKind::kAllReduce ? 2.0 : 1.0;
  const double bus = group.bus * efficiency * (channels - 1) / channels * factor * kMeasuredShare;
  const double latency = kNvlsHopIntra + (group.nodes > 1 ? kNvlsHopInter : 0.0);
  const double algorithm_bandwidth = bus * group.ranks / steps_of(kind, group.ranks);
  return latency + bytes / (algorithm_bandwidth * kGiga) / kMicro;
}

// NVLS-tree. On two nodes the switches' sums cross the network once in each direction. NCCL's estimate gives them the
// full bandwidth (tuning.cc; half of it on more nodes, where a ring is as good), so the switches are the bottleneck,
// with the efficiency of trees. The pipeline between the two is filled first: sixteen channels with NCCL's 4 MiB
// buffers. `inside` is the part of the group on one node.
double nvls_tree_of_two_us(double bytes, const Group& inside, double network) {
  constexpr double kTree = 0.92;
  constexpr double kBuffers = 16 * 4 * 1024.0 * 1024.0;
  const double through_switches = nvls_us(CollectiveKind::kAllReduce, bytes, inside) / kTree;
  const double through_network = bytes / (network * kGiga) / kMicro;
  const double fill = std::min(bytes, kBuffers) / (network * kGiga) / kMicro;
  return kNvlsHopInter + 2.0 * inside.network + std::max(through_switches, through_network) + fill;
}

// A binomial tree over nodes with one rank each; the linear term is NCCL's own (tuning.cc).
double pat_us(CollectiveKind kind, double bytes, const Group& group) {
  constexpr double kBase = 8.0;
  constexpr double kOfHop = 1.0 / 3.5;
  constexpr double kPerRank = 2.8;
  constexpr double kBandwidth = 0.75;
  const double hop = kRingHopInter[kSimple] * kOfHop + group.network;
  const double latency = kBase + std::log2(group.nodes) * hop + group.ranks * kPerRank;
  const double algorithm_bandwidth = group.bus * kBandwidth * group.ranks / steps_of(kind, group.ranks);
  return latency + bytes / (algorithm_bandwidth * kGiga) / kMicro;
}

// Releases that introduced an algorithm, as 100 · major + minor.
constexpr int kNvlsSince = 217;
constexpr int kNvlsTreeSince = 218;
constexpr int kPatSince = 223;

// An unspecified release counts as having it.
bool has_since(int nccl, int release) {
  return nccl == 0 || nccl >= release;
}

bool has_pat(int nccl, CollectiveKind kind, const GroupPlacement& placement) {
  return nccl >= kPatSince && kind != CollectiveKind::kAllReduce && placement.crosses_nodes() &&
         placement.ranks_per_node == 1;
}

// True if the network's switches can reduce.
bool network_adds_up(const Cluster& cluster) {
  return cluster.network_reduction || (cluster.shares_links() && cluster.network->sharp);
}

struct PathTime {
  double us = std::numeric_limits<double>::infinity();
  CollectivePath way = CollectivePath::kRing;
};

// The fastest all-reduce that uses reducing switches in the nodes or the network; infinite if there are none.
PathTime in_switches_us(const Cluster& cluster, int nccl, double bytes, const GroupPlacement& placement,
                        const Group& group) {
  const GpuGeneration generation = cluster.device.generation;
  const bool in_node =
      cluster.in_switch_reduction && (generation == GpuGeneration::kHopper || generation == GpuGeneration::kBlackwell);
  PathTime best;
  if (in_node && has_since(nccl, kNvlsSince) && placement.nodes == 1 && placement.ranks > 2) {
    best.us = nvls_us(CollectiveKind::kAllReduce, bytes, group);
  }
  if (!placement.crosses_nodes()) return best;
  Group inside = group;
  inside.ranks = placement.ranks_per_node;
  inside.nodes = 1;
  inside.bus = cluster.ring_bandwidth(std::min(placement.ranks_per_node, cluster.devices_per_node)).value() *
               cluster.intra_efficiency / kGiga;
  const double network =
      cluster.node_network_bandwidth().value() * cluster.nic_efficiency / (kGiga * placement.groups_sharing_nics);
  const bool switched = in_node && has_since(nccl, kNvlsSince) && placement.ranks_per_node > 2;
  if (switched && has_since(nccl, kNvlsTreeSince) && placement.nodes == 2) {
    best = {nvls_tree_of_two_us(bytes, inside, network), CollectivePath::kTree};
  }
  if (!network_adds_up(cluster)) return best;
  double in_nodes = 0.0;
  if (placement.ranks_per_node > 1) {
    in_nodes = switched ? nvls_us(CollectiveKind::kAllReduce, bytes, inside)
                        : ring_us(CollectiveKind::kAllReduce, bytes, inside, kSimple);
  }
  const double hops = 2.0 * (kTreeHopInter[kSimple] + group.network);
  const double added_up = hops + std::max(in_nodes, bytes / (network * kGiga) / kMicro);
  return best.us < added_up ? best : PathTime{added_up, CollectivePath::kSwitches};
}

constexpr double kGlooBytesPerSecond = 1.15e9;
constexpr double kGlooStep = 50e-6;
constexpr double kMpiStep = 10e-6;

// Bandwidth of one rank's link to the next rank of a ring through host memory.
BytesPerSecond host_ring_bandwidth(const Cluster& cluster, Transport transport, bool crosses_nodes, int sharing) {
  BytesPerSecond rate = cluster.host_bandwidth;
  if (crosses_nodes) {
    const double share = cluster.nic_efficiency / std::max(1, sharing);
    rate = std::min(rate, cluster.node_network_bandwidth() * share);
  }
  return transport == Transport::kGloo ? std::min(rate, BytesPerSecond(kGlooBytesPerSecond)) : rate;
}

// True if no other group shares the network cards, as was the case for measured curves.
bool has_network_to_itself(const GroupPlacement& placement) {
  return !placement.crosses_nodes() || placement.groups_sharing_nics <= 1;
}

bool is_ring(std::optional<CollectiveKind> kind) {
  return kind && *kind != CollectiveKind::kAllToAll;
}

// Fraction of its buffer that a rank sends.
double sent_share(std::optional<CollectiveKind> kind, int ranks) {
  if (!kind) return 1.0;
  if (*kind == CollectiveKind::kAllToAll) return static_cast<double>(ranks - 1) / ranks;
  return steps_of(*kind, ranks) / ranks;
}

// Bandwidth of the direct links inside a node that a group fills.
BytesPerSecond direct_links(const Cluster& cluster, std::optional<CollectiveKind> kind, int ranks) {
  return is_ring(kind) ? cluster.ring_bandwidth(ranks) : cluster.intra_bandwidth;
}

// Number of network cards used by a group's ranks on a node: one each, as far as there are enough.
double cards_of(const Cluster& cluster, const GroupPlacement& placement) {
  const double all = static_cast<double>(cluster.nics_per_node) / placement.groups_sharing_nics;
  return std::min<double>(placement.ranks_per_node, all);
}

}  // namespace

Bytes all_to_all_sent_per_rank(Bytes bytes, int ranks) {
  return bytes * (static_cast<double>(ranks - 1) / ranks);
}

CommunicationModel::CommunicationModel(const Cluster& cluster, Transport transport, int nccl, const CostOverrides* laws)
    : cluster_(cluster), transport_(transport), nccl_(nccl), laws_(laws) {
  if (!cluster.shares_links() || cluster.network->hop_latency <= Seconds(0)) return;
  way_latency_ = cluster.network->hop_latency * static_cast<double>(most_hops(cluster));
}

int ring_steps(CollectiveKind kind, int ranks) {
  return static_cast<int>(steps_of(kind, ranks));
}

Seconds CommunicationModel::network_latency(CollectiveKind kind, const GroupPlacement& placement) const {
  if (transport_ != Transport::kNccl || !placement.crosses_nodes()) return Seconds(0);
  const double nodes = placement.nodes;
  double hops = nodes - 1.0;
  if (kind == CollectiveKind::kAllReduce) {
    hops = network_adds_up(cluster_) ? 2.0 : std::min(2.0 * std::log2(nodes), 2.0 * (nodes - 1.0));
  } else if (has_pat(nccl_, kind, placement)) {
    hops = std::log2(nodes);
  }
  return hop_latency() * hops;
}

Seconds CommunicationModel::user_override(std::string_view kind, Bytes bytes, const GroupPlacement& placement,
                                          Seconds ours) const {
  return laws_ != nullptr && laws_->network_time ? laws_->network_time(kind, bytes, placement, ours) : ours;
}

Seconds CommunicationModel::collective(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const {
  if (placement.ranks <= 1 || bytes.value() <= 0.0) return Seconds(0);
  return user_override(name_of(kind), bytes, placement, priced(kind, bytes, placement).time);
}

Seconds CommunicationModel::all_to_all(Bytes bytes, const GroupPlacement& placement) const {
  if (placement.ranks <= 1 || bytes.value() <= 0.0) return Seconds(0);
  return user_override(name_of(CollectiveKind::kAllToAll), bytes, placement, all_to_all_time(bytes, placement));
}

Seconds CommunicationModel::point_to_point(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const {
  const GroupPlacement pair{2, crosses_nodes ? 2 : 1, crosses_nodes ? 1 : 2, std::max(1, flows_sharing_nics)};
  return user_override("send", bytes, pair, message_time(bytes, crosses_nodes, flows_sharing_nics));
}

CollectivePath CommunicationModel::way(CollectiveKind kind, Bytes bytes, const GroupPlacement& placement) const {
  return placement.ranks <= 1 || bytes.value() <= 0.0 ? CollectivePath::kRing : priced(kind, bytes, placement).way;
}

CommunicationModel::Priced CommunicationModel::priced(CollectiveKind kind, Bytes bytes,
                                                      const GroupPlacement& placement) const {
  if (const MessageCurve* curve = cluster_.curve(kind, placement.ranks, placement.nodes);
      curve != nullptr && has_network_to_itself(placement)) {
    return {curve->time(bytes)};
  }
  const Priced model = model_price(kind, bytes, placement, false);
  return {model.time * measured_correction(kind, bytes, placement, model.time), model.way};
}

CommunicationModel::Priced CommunicationModel::model_price(CollectiveKind kind, Bytes bytes,
                                                           const GroupPlacement& placement, bool rings_alone) const {
  if (transport_ != Transport::kNccl) {
    const BytesPerSecond rate =
        host_ring_bandwidth(cluster_, transport_, placement.crosses_nodes(), placement.groups_sharing_nics);
    const double step = transport_ == Transport::kGloo ? kGlooStep : kMpiStep;
    const Seconds copies = bytes / cluster_.host_bandwidth * 2.0;
    return {Seconds(step) * static_cast<double>(ring_steps(kind, placement.ranks)) + copies +
            bytes_sent_per_rank(kind, bytes, placement.ranks) / rate};
  }
  const BytesPerSecond rings = cluster_.ring_bandwidth(std::min(placement.ranks_per_node, cluster_.devices_per_node));
  double bus = rings.value() * cluster_.intra_efficiency / kGiga;
  if (placement.crosses_nodes()) {
    const double network = cluster_.node_network_bandwidth().value() * cluster_.nic_efficiency / kGiga;
    const double share = network / placement.groups_sharing_nics;
    const double inside = bus / measured_correction_inside(kind, bytes, placement);
    bus = placement.ranks_per_node > 1 ? std::min(inside, share) : share;
  }
  constexpr double kChannelBandwidth = 20.0;
  const Group group{static_cast<double>(placement.ranks),
                    static_cast<double>(placement.nodes),
                    static_cast<double>(placement.ranks_per_node),
                    bus,
                    std::max(1.0, std::floor(bus / kChannelBandwidth)),
                    hop_latency().value() / kMicro,
                    cluster_.device.generation};

  double best = ring_us(kind, bytes.value(), group, kSimple);
  CollectivePath way = CollectivePath::kRing;
  const auto offer = [&](double us, CollectivePath by) {
    if (!(us < best)) return;
    best = us;
    way = by;
  };
  for (const Protocol protocol : {kLl, kLl128}) offer(ring_us(kind, bytes.value(), group, protocol), way);
  if (rings_alone) return {Seconds(best * kMicro), way};
  if (kind == CollectiveKind::kAllReduce) {
    const Tree tree{std::log2(group.nodes), tree_size_factor(bytes.value())};
    for (const Protocol protocol : {kLl, kLl128, kSimple}) {
      offer(tree_us(bytes.value(), tree, group, protocol), CollectivePath::kTree);
    }
  }
  if (has_pat(nccl_, kind, placement)) offer(pat_us(kind, bytes.value(), group), CollectivePath::kTree);
  if (kind == CollectiveKind::kAllReduce) {
    const PathTime switches = in_switches_us(cluster_, nccl_, bytes.value(), placement, group);
    offer(switches.us, switches.way);
  }
  return {Seconds(best * kMicro), way};
}

Seconds CommunicationModel::all_to_all_time(Bytes bytes, const GroupPlacement& placement) const {
  if (const MessageCurve* curve = cluster_.curve(CollectiveKind::kAllToAll, placement.ranks, placement.nodes);
      curve != nullptr && has_network_to_itself(placement)) {
    return curve->time(bytes);
  }
  const Seconds model = modelled_all_to_all(bytes, placement);
  return model * measured_correction(CollectiveKind::kAllToAll, bytes, placement, model);
}

Seconds CommunicationModel::modelled_all_to_all(Bytes bytes, const GroupPlacement& placement) const {
  const double part = bytes.value() / placement.ranks;
  const int inside = placement.ranks_per_node - 1;
  const int outside = placement.ranks - placement.ranks_per_node;
  Seconds within = Bytes(part * inside) / (cluster_.intra_bandwidth * cluster_.intra_efficiency);
  Seconds between(0);
  if (placement.crosses_nodes()) {
    const double senders = static_cast<double>(placement.ranks_per_node) * placement.groups_sharing_nics;
    const BytesPerSecond share = cluster_.node_network_bandwidth() * cluster_.nic_efficiency / senders;
    between = Bytes(part * outside) / share;
    within = within * measured_correction_inside(CollectiveKind::kAllToAll, bytes, placement);
  }
  const Seconds latency = placement.crosses_nodes() ? message_latency() : cluster_.intra_latency;
  return Seconds(kRingBase[kSimple] * kMicro) + latency + std::max(within, between);
}

Seconds CommunicationModel::node_wise_exchange(Bytes within, Bytes between, double share,
                                               const GroupPlacement& placement) const {
  if (placement.ranks <= 1 || within.value() <= 0.0) return Seconds(0);
  constexpr double kStart = 30e-6;
  const Bytes buffer = within * (static_cast<double>(placement.ranks) / (placement.ranks - 1));
  const double slower =
      measured_correction(CollectiveKind::kAllToAll, buffer, placement, modelled_all_to_all(buffer, placement));
  Seconds inside = within / (cluster_.intra_bandwidth * (cluster_.intra_efficiency * share));
  const std::string_view kind = name_of(CollectiveKind::kAllToAll);
  if (!placement.crosses_nodes()) return user_override(kind, within, placement, Seconds(kStart) + inside * slower);
  inside = inside * measured_correction_inside(CollectiveKind::kAllToAll, buffer, placement);
  const double senders = static_cast<double>(placement.ranks_per_node) * placement.groups_sharing_nics;
  const BytesPerSecond outside = cluster_.node_network_bandwidth() * share / senders;
  return user_override(kind, within, placement, Seconds(kStart) + std::max(inside, between / outside * slower));
}

Seconds CommunicationModel::message_time(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const {
  const MessageCurve* curve = cluster_.curve(std::nullopt, 2, crosses_nodes ? 2 : 1);
  if (curve != nullptr && (!crosses_nodes || flows_sharing_nics <= cluster_.nics_per_node)) return curve->time(bytes);
  const Seconds model = modelled_message(bytes, crosses_nodes, flows_sharing_nics);
  if (cluster_.curves.empty() || bytes.value() <= 0.0) return model;
  const GroupPlacement pair{2, crosses_nodes ? 2 : 1, crosses_nodes ? 1 : 2, std::max(1, flows_sharing_nics)};
  return model * measured_correction(std::nullopt, bytes, pair, model);
}

Seconds CommunicationModel::modelled_message(Bytes bytes, bool crosses_nodes, int flows_sharing_nics) const {
  if (transport_ != Transport::kNccl) {
    const double step = transport_ == Transport::kGloo ? kGlooStep : kMpiStep;
    return Seconds(step) + bytes / cluster_.host_bandwidth * 2.0 +
           bytes / host_ring_bandwidth(cluster_, transport_, crosses_nodes, flows_sharing_nics);
  }
  if (!crosses_nodes) return cluster_.intra_latency + bytes / (cluster_.intra_bandwidth * cluster_.intra_efficiency);
  const BytesPerSecond share = cluster_.node_network_bandwidth() / static_cast<double>(std::max(1, flows_sharing_nics));
  const BytesPerSecond flow = std::min(share, cluster_.nic_bandwidth) * cluster_.nic_efficiency;
  return message_latency() + bytes / flow;
}

Seconds CommunicationModel::modelled_any(Kind kind, Bytes bytes, const GroupPlacement& placement,
                                         bool rings_alone) const {
  if (!kind) return modelled_message(bytes, placement.crosses_nodes(), placement.groups_sharing_nics);
  if (*kind == CollectiveKind::kAllToAll) return modelled_all_to_all(bytes, placement);
  return modelled(*kind, bytes, placement, rings_alone);
}

bool CommunicationModel::measured_between() const {
  return std::any_of(cluster_.curves.begin(), cluster_.curves.end(),
                     [](const GroupCurve& curve) { return curve.nodes > 1; });
}

double CommunicationModel::measured_correction_inside(Kind kind, Bytes bytes, const GroupPlacement& placement) const {
  if (cluster_.curves.empty() || placement.ranks_per_node < 2 || measured_between()) return 1.0;
  GroupPlacement inside;
  inside.ranks = placement.ranks_per_node;
  inside.ranks_per_node = placement.ranks_per_node;
  return measured_correction(kind, bytes, inside, modelled_any(kind, bytes, inside, false));
}

double CommunicationModel::measured_correction(Kind kind, Bytes bytes, const GroupPlacement& placement,
                                               Seconds model) const {
  if (cluster_.curves.empty() || !(model > Seconds(0))) return 1.0;
  const double sent = sent_share(kind, placement.ranks) * bytes.value();
  double weights = 0.0;
  double sum = 0.0;
  for (const GroupCurve& measured : cluster_.curves) {
    if ((measured.nodes > 1) != placement.crosses_nodes()) continue;
    GroupPlacement group;
    group.ranks = measured.ranks;
    group.nodes = measured.nodes;
    group.ranks_per_node = (measured.ranks + measured.nodes - 1) / measured.nodes;
    // The measured group used direct links that this node does not have.
    if (!cluster_.links.empty() && group.ranks_per_node > cluster_.devices_per_node) continue;
    const bool alike = measured.collective == kind;
    // Between nodes, the bytes per card are compared.
    const double cards = placement.crosses_nodes() ? cards_of(cluster_, group) / cards_of(cluster_, placement) : 1.0;
    const Bytes size(sent * cards / sent_share(measured.collective, measured.ranks));
    const double took = measured.curve.time(size).value();
    const double expected = modelled_any(measured.collective, size, group, !alike).value();
    if (!(took > 0.0) || !(expected > 0.0)) continue;
    const bool fill_alike = alike || !placement.crosses_nodes() || (is_ring(kind) && is_ring(measured.collective));
    double carried_s = model.value() * took / expected;
    if (fill_alike) {
      double links = 1.0;
      if (!placement.crosses_nodes() && !cluster_.links.empty()) {
        const BytesPerSecond there = direct_links(cluster_, measured.collective, measured.ranks);
        const BytesPerSecond here = direct_links(cluster_, kind, placement.ranks);
        // One path uses host memory, the other direct links: they cannot be compared.
        if ((there == cluster_.host_bandwidth) != (here == cluster_.host_bandwidth)) continue;
        links = there / here;
      }
      const Bytes one(1.0);
      const double latency = modelled_any(kind, one, placement, !alike).value();
      // For messages and all-to-alls the measured latency is used: the job may override the cluster's.
      const double measured_latency = is_ring(measured.collective)
                                          ? modelled(*measured.collective, one, group, !alike).value()
                                          : measured.curve.time(one).value();
      constexpr double kLeast = 0.5;  // the model's latencies may exceed the measured time of small messages
      carried_s = std::max(kLeast * took * std::min(1.0, links), (took - measured_latency) * links + latency);
    }
    const bool by_switch = !alike && measured.collective == CollectiveKind::kAllReduce;
    if (by_switch) carried_s = std::max(carried_s, model.value());
    const double change = std::log(carried_s / model.value());
    const double distance = std::abs(std::log2(static_cast<double>(placement.ranks) / measured.ranks)) +
                            std::abs(std::log2(static_cast<double>(placement.nodes) / measured.nodes)) +
                            (alike ? 0.0 : 1.0);
    const double weight = 1.0 / ((1.0 + distance) * (1.0 + distance));
    weights += weight;
    sum += weight * change;
  }
  return weights > 0.0 ? std::exp(sum / weights) : 1.0;
}

Bytes bytes_sent_per_rank(CollectiveKind kind, Bytes bytes, int ranks) {
  if (ranks <= 1) return Bytes(0);
  return bytes * (steps_of(kind, ranks) / ranks);
}

}  // namespace flopcast
