#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/hardware/network_fabric.hpp"

namespace flopcast {

namespace {

// A permutation from a built-in generator, so that it is the same on every machine (SplitMix64, Steele, Lea & Flood,
// 2014).
std::vector<int> shuffled_places(int count, std::uint64_t seed) {
  std::vector<int> places(static_cast<std::size_t>(count));
  std::iota(places.begin(), places.end(), 0);
  std::uint64_t state = seed;
  const auto next = [&state] {
    state += 0x9e3779b97f4a7c15ULL;
    std::uint64_t value = state;
    value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31U);
  };
  for (std::size_t left = places.size(); left > 1; --left) std::swap(places[left - 1], places[next() % left]);
  return places;
}

// Number of nodes below a switch of each tier, lowest first.
std::vector<int> unit_sizes(const Cluster& cluster) {
  const Network& network = *cluster.network;
  std::vector<int> sizes;
  switch (network.topology) {
    case Topology::kTree:
    case Topology::kRail:
      for (const NetworkTier& tier : tiers_of(network, cluster.nics_per_node)) sizes.push_back(tier.nodes);
      break;
    case Topology::kDragonfly:
      sizes.assign(network.shape.rbegin(), network.shape.rend() - 1);
      std::partial_sum(sizes.begin(), sizes.end(), sizes.begin(), std::multiplies<>());
      break;
    case Topology::kTorus:
      sizes.assign(network.shape.begin(), network.shape.end() - 1);
      std::partial_sum(sizes.begin(), sizes.end(), sizes.begin(), std::multiplies<>());
      break;
    case Topology::kNone:
    case Topology::kStar:
    case Topology::kLinks:
      break;
  }
  return sizes;
}

// Groups sorted places into units of `size`, keeping their order.
std::vector<std::vector<int>> in_units(const std::vector<int>& places, int size) {
  std::vector<std::vector<int>> units;
  int unit = -1;
  for (const int place : places) {
    if (units.empty() || place / size != unit) units.emplace_back();
    unit = place / size;
    units.back().push_back(place);
  }
  return units;
}

std::vector<int> packed(const std::vector<int>& free, std::size_t count, std::size_t level,
                        const std::vector<int>& sizes) {
  if (level == 0) return {free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count)};
  std::vector<std::vector<int>> units = in_units(free, sizes[level - 1]);
  std::stable_sort(units.begin(), units.end(),
                   [](const std::vector<int>& a, const std::vector<int>& b) { return a.size() > b.size(); });
  std::vector<int> taken;
  auto next = units.begin();
  for (; next != units.end() && taken.size() + next->size() < count; ++next) {
    taken.insert(taken.end(), next->begin(), next->end());
  }
  // Takes the remainder from the unit with enough room where it spans the fewest switches, and the smallest such unit.
  const std::size_t left = count - taken.size();
  std::vector<int> rest;
  std::pair least(free.size() + 1, free.size());
  for (; next != units.end() && next->size() >= left; ++next) {
    std::vector<int> way = packed(*next, left, level - 1, sizes);
    std::sort(way.begin(), way.end());
    const std::pair lies(level > 1 ? in_units(way, sizes[level - 2]).size() : 1, next->size());
    if (lies >= least) continue;
    least = lies;
    rest = std::move(way);
  }
  taken.insert(taken.end(), rest.begin(), rest.end());
  return taken;
}

std::vector<int> spread(const std::vector<int>& free, std::size_t count, int size) {
  const std::vector<std::vector<int>> units = in_units(free, size);
  std::vector<int> taken;
  for (std::size_t round = 0; taken.size() < count; ++round) {
    for (const std::vector<int>& unit : units) {
      if (round < unit.size() && taken.size() < count) taken.push_back(unit[round]);
    }
  }
  return taken;
}

}  // namespace

void NetworkFabric::place_nodes() {
  constexpr std::string_view kScattered = "scattered";
  const auto count = static_cast<std::size_t>(cluster_->nodes);
  place_ = network_->allocated;
  if (!place_.empty()) {
    if (place_.size() != count) {
      fail_network("allocation", fmt::format("lists {} nodes, but the cluster has {}", place_.size(), count),
                   fmt::format("list {} nodes{}", count,
                               place_.size() > count && !cluster_->uneven()
                                   ? "; only flopcast plan accepts a longer list, of free nodes to choose from"
                                   : ""));
    }
    std::vector<int> sorted = place_;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      fail_network("allocation", fmt::format("lists node {} twice", *twice), "list each node once");
    }
    return;
  }
  const std::string& word = network_->allocation;
  if (word == "compact") {
    place_.resize(count);
    std::iota(place_.begin(), place_.end(), 0);
    return;
  }
  std::uint64_t seed = 1;
  const bool scattered = word.rfind(kScattered, 0) == 0;
  bool seeded = scattered && word.size() == kScattered.size();
  if (scattered && word.size() > kScattered.size() + 1 && word[kScattered.size()] == ':') {
    const char* const end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + kScattered.size() + 1, end, seed);
    seeded = read.ec == std::errc() && read.ptr == end;
  }
  if (!seeded) {
    fail_network("allocation", fmt::format("\"{}\" is not an allocation", word),
                 "valid: compact, scattered:SEED, or a list of nodes");
  }
  place_ = shuffled_places(nodes_, seed);
  place_.resize(count);
}

void NetworkFabric::take(const std::vector<int>& places) {
  FLOPCAST_CHECK(places.size() == place_.size());
  place_ = places;
}

std::vector<Allocation> standard_allocations(const Cluster& cluster, const std::vector<int>& free) {
  const auto count = static_cast<std::size_t>(cluster.nodes);
  if (free.size() < count) {
    fail_network("allocation",
                 fmt::format("only {} nodes of the fabric are free, but {} are needed", free.size(), count),
                 fmt::format("list at least {} nodes", count));
  }
  int of = fabric_nodes(cluster);
  for (const int place : free) of = std::max(of, place + 1);
  std::vector<Allocation> ways;
  const auto add = [&ways, of](const char* name, std::vector<int> nodes) {
    const bool known = std::any_of(ways.begin(), ways.end(), [&](const Allocation& way) { return way.nodes == nodes; });
    if (!known) ways.push_back({name, std::move(nodes), of});
  };
  add("as listed", {free.begin(), free.begin() + static_cast<std::ptrdiff_t>(count)});
  const std::vector<int> sizes = unit_sizes(cluster);
  if (sizes.empty() || free.size() == count) return ways;
  std::vector<int> sorted = free;
  std::sort(sorted.begin(), sorted.end());
  std::vector<int> few = packed(sorted, count, sizes.size(), sizes);
  std::vector<int> many = spread(sorted, count, sizes.front());
  for (std::vector<int>* nodes : {&few, &many}) std::sort(nodes->begin(), nodes->end());
  add("packed", std::move(few));
  add("spread", std::move(many));
  return ways;
}

}  // namespace flopcast
