#include "model/hardware/cluster.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/hardware/device.hpp"

namespace flopcast {

namespace {

Seconds piece_time(const MessageSegment& segment, Bytes bytes) {
  return segment.alpha + Seconds(segment.beta * bytes.value());
}

}  // namespace

MessageCurve::MessageCurve(std::vector<MessageSegment> segments) : segments_(std::move(segments)) {
  FLOPCAST_CHECK(!segments_.empty() && segments_.front().from.value() == 0.0);
  Seconds floor(0);
  for (std::size_t index = 0; index < segments_.size(); ++index) {
    const MessageSegment& segment = segments_[index];
    FLOPCAST_CHECK(segment.alpha.value() >= 0.0 && segment.beta >= 0.0);
    if (index > 0) {
      FLOPCAST_CHECK(segments_[index - 1].from < segment.from);
      floor = std::max(floor, piece_time(segments_[index - 1], segment.from));
    }
    floors_.push_back(floor);
  }
}

Seconds MessageCurve::time(Bytes bytes) const {
  FLOPCAST_CHECK(!segments_.empty());
  std::size_t index = segments_.size() - 1;
  while (index > 0 && bytes < segments_[index].from) --index;
  return std::max(floors_[index], piece_time(segments_[index], bytes));
}

int Cluster::devices() const {
  if (!uneven()) return nodes * devices_per_node;
  return uneven_nodes.back().first_rank + uneven_nodes.back().devices;
}

int Cluster::uneven_node_of(int rank) const {
  const auto after = std::upper_bound(uneven_nodes.begin(), uneven_nodes.end(), rank,
                                      [](int value, const ClusterNode& node) { return value < node.first_rank; });
  return static_cast<int>(after - uneven_nodes.begin()) - 1;
}

const Device& Cluster::device_of(int rank) const {
  if (!uneven()) return device;
  return node_devices[static_cast<std::size_t>(uneven_nodes[static_cast<std::size_t>(node_of(rank))].device)];
}

namespace {

// True if the links connect the first `devices` and, if these are more than two, each has at least two neighbours;
// otherwise no ring visits all of them.
bool have_rings(const std::vector<DeviceLink>& links, int devices) {
  const auto place = [](int device) { return static_cast<std::size_t>(device); };
  std::vector<int> neighbour(place(devices), -1);
  std::vector<bool> has_two(place(devices), devices == 2);
  std::vector<bool> reached(place(devices), false);
  reached[0] = true;
  for (bool grows = true; grows;) {
    grows = false;
    for (const DeviceLink& link : links) {
      if (link.one >= devices || link.other >= devices) continue;
      for (const auto& [from, to] : {std::pair(link.one, link.other), std::pair(link.other, link.one)}) {
        if (neighbour[place(from)] < 0) neighbour[place(from)] = to;
        if (neighbour[place(from)] != to) has_two[place(from)] = true;
        if (!reached[place(from)] || reached[place(to)]) continue;
        reached[place(to)] = grows = true;
      }
    }
  }
  const auto all = [](const std::vector<bool>& of) { return std::find(of.begin(), of.end(), false) == of.end(); };
  return all(reached) && all(has_two);
}

}  // namespace

BytesPerSecond Cluster::ring_bandwidth(int devices) const {
  if (links.empty() || devices <= 1) return intra_bandwidth;
  if (!have_rings(links, devices)) return host_bandwidth;
  std::vector<int> of_device(static_cast<std::size_t>(devices), 0);
  int all = 0;
  int widest = 0;
  std::map<int, int> of_whole_node;
  for (const DeviceLink& link : links) {
    for (const int end : {link.one, link.other}) of_whole_node[end] += link.links;
    if (link.one >= devices || link.other >= devices) continue;
    for (const int end : {link.one, link.other}) of_device[static_cast<std::size_t>(end)] += link.links;
    all += link.links;
  }
  for (const auto& [device_index, count] : of_whole_node) widest = std::max(widest, count);
  const int least = *std::min_element(of_device.begin(), of_device.end());
  const int rings = std::min(least, 2 * all / devices);
  return rings == 0 ? host_bandwidth : intra_bandwidth * (static_cast<double>(rings) / widest);
}

const MessageCurve* Cluster::curve(std::optional<CollectiveKind> collective, int ranks, int over_nodes) const {
  for (const GroupCurve& group : curves) {
    if (group.collective == collective && group.ranks == ranks && group.nodes == over_nodes) return &group.curve;
  }
  return nullptr;
}

namespace {

constexpr double kLaunch = 3e-6;

DeviceDefaults defaults(double gemm, double memory, double flash_forward, double flash_backward, const char* source) {
  return {gemm, memory, flash_forward, flash_backward, Seconds(kLaunch), source};
}

}  // namespace

double Device::clock_under_limit() const {
  const double locked = clock_hz > 0.0 && boost_clock_hz > 0.0 ? std::min(1.0, clock_hz / boost_clock_hz) : 1.0;
  if (power_limit_w <= 0.0 || tdp_w <= 0.0) return locked;
  constexpr double kStatic = 0.15;
  constexpr double kLeast = 0.01;
  const double left = std::max(kLeast, (std::min(1.0, power_limit_w / tdp_w) - kStatic) / (1.0 - kStatic));
  return std::min(locked, std::cbrt(left));
}

const DeviceDefaults& device_defaults(GpuGeneration generation) {
  static const DeviceDefaults ampere = defaults(
      0.8, 0.69, 0.55, 0.5, "fitted to published A100 training steps; FlashAttention-2 as Dao 2307.08691 measured");
  static const DeviceDefaults like_ampere = defaults(0.8, 0.69, 0.55, 0.5, "assumed like A100, which is measured");
  static const DeviceDefaults hopper =
      defaults(0.65, 0.53, 0.57, 0.52,
               "fitted to published H100 training steps; FlashAttention-3 forward as measured, backward assumed");
  static const DeviceDefaults blackwell = defaults(0.45, 0.46, 0.43, 0.39, "fitted to published B200 training steps");
  static const DeviceDefaults cdna2 = defaults(0.51, 0.8, 0.3, 0.25, "assumed like MI300X, which is measured");
  static const DeviceDefaults cdna3 =
      defaults(0.51, 0.8, 0.3, 0.25, "best isolated GEMM of MI300X (mamf-finder); flash attention assumed, unmeasured");
  static const DeviceDefaults cpu =
      defaults(0.8, 0.8, 0.4, 0.4, "assumed for a CPU, unmeasured; flopcast calibrate --cpu measures it");
  switch (generation) {
    case GpuGeneration::kVolta:
    case GpuGeneration::kTuring:
    case GpuGeneration::kAda:
      return like_ampere;
    case GpuGeneration::kAmpere:
      return ampere;
    case GpuGeneration::kHopper:
      return hopper;
    case GpuGeneration::kBlackwell:
      return blackwell;
    case GpuGeneration::kCdna2:
      return cdna2;
    case GpuGeneration::kCdna3:
      return cdna3;
    case GpuGeneration::kCpu:
      return cpu;
  }
  return ampere;
}

}  // namespace flopcast
