#include "model/hardware/cluster.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/text/error.hpp"

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

// Whether links lead from each of the first `devices` to every other, and to two where there are more than two: else no
// ring passes all.
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

}  // namespace flopcast
