#include "model/hardware/network_fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <queue>
#include <utility>

namespace flopcast {

CableRoutes::CableRoutes(Fabric& fabric, const std::vector<NetworkCable>& cables, int nodes) : nodes_(nodes) {
  for (int node = 0; node < nodes; ++node) place_of(fmt::format("node{}", node));
  std::map<std::pair<int, int>, int> twins;
  for (const NetworkCable& cable : cables) {
    const int from = place_of(cable.from);
    const int to = place_of(cable.to);
    const int twin = twins[std::minmax(from, to)]++;
    const std::string suffix = twin == 0 ? "" : fmt::format(".{}", twin);
    add(fabric, fmt::format("{}-{}{}", cable.from, cable.to, suffix), from, to, cable.bandwidth);
    add(fabric, fmt::format("{}-{}{}", cable.to, cable.from, suffix), to, from, cable.bandwidth);
  }
  fabric.hosts = nodes;
  way_back_.resize(static_cast<std::size_t>(nodes));
}

std::vector<std::uint32_t> CableRoutes::operator()(int from, int to, std::uint64_t connection) {
  std::vector<int>& distance = distances_to(to);
  std::vector<std::uint32_t> way;
  int here = from;
  if (distance[static_cast<std::size_t>(here)] < 0) {
    fail_network("links", fmt::format("no way leads from node{} to node{}", from, to), "join all nodes");
  }
  while (here != to) {
    std::vector<std::uint32_t> nearer;
    for (const std::uint32_t link : out_[static_cast<std::size_t>(here)]) {
      const int next = ends_[link];
      if (distance[static_cast<std::size_t>(next)] == distance[static_cast<std::size_t>(here)] - 1) {
        nearer.push_back(link);
      }
    }
    const std::uint32_t taken = nearer[connection % nearer.size()];
    way.push_back(taken);
    here = ends_[taken];
  }
  return way;
}

int CableRoutes::longest() {
  int longest = 1;
  const std::vector<int>& distance = distances_to(0);
  for (int node = 0; node < nodes_; ++node) longest = std::max(longest, distance[static_cast<std::size_t>(node)]);
  return longest;
}

int CableRoutes::place_of(const std::string& name) {
  const auto [found, fresh] = places_.emplace(name, static_cast<int>(out_.size()));
  if (fresh) {
    out_.emplace_back();
    in_.emplace_back();
  }
  return found->second;
}

void CableRoutes::add(Fabric& fabric, std::string name, int from, int to, BytesPerSecond bandwidth) {
  const auto link = static_cast<std::uint32_t>(fabric.links.size());
  fabric.links.push_back({std::move(name), bandwidth});
  ends_.push_back(to);
  starts_.push_back(from);
  out_[static_cast<std::size_t>(from)].push_back(link);
  in_[static_cast<std::size_t>(to)].push_back(link);
}

std::vector<int>& CableRoutes::distances_to(int to) {
  std::vector<int>& distance = way_back_[static_cast<std::size_t>(to)];
  if (!distance.empty()) return distance;
  distance.assign(out_.size(), -1);
  distance[static_cast<std::size_t>(to)] = 0;
  std::queue<int> reached;
  reached.push(to);
  for (; !reached.empty(); reached.pop()) {
    const int here = reached.front();
    for (const std::uint32_t link : in_[static_cast<std::size_t>(here)]) {
      int& before = distance[static_cast<std::size_t>(starts_[link])];
      if (before >= 0) continue;
      before = distance[static_cast<std::size_t>(here)] + 1;
      reached.push(starts_[link]);
    }
  }
  return distance;
}

}  // namespace flopcast
