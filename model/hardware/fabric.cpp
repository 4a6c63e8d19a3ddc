#include "model/hardware/fabric.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/text/error.hpp"

namespace flopcast {

namespace {

using Route = std::vector<std::uint32_t>;

std::uint32_t add_link(Fabric& fabric, std::string name, BytesPerSecond bandwidth) {
  fabric.links.push_back({std::move(name), bandwidth});
  return static_cast<std::uint32_t>(fabric.links.size() - 1);
}

// Adds `count` links such as up0, up1 …; returns the index of the first.
std::uint32_t add_links(Fabric& fabric, std::string_view name, int count, BytesPerSecond bandwidth) {
  const auto first = static_cast<std::uint32_t>(fabric.links.size());
  for (int index = 0; index < count; ++index) add_link(fabric, fmt::format("{}{}", name, index), bandwidth);
  return first;
}

std::uint32_t nth(std::uint32_t first, int index) {
  return first + static_cast<std::uint32_t>(index);
}

// The finaliser of SplitMix64 (Steele, Lea & Flood, 2014).
std::uint64_t scrambled(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

// A fat tree's switch is identified by the subtree below it and by the ports that lead to it. An up link is identified
// by a child (host or switch) and one of its ports.
class TreeRoutes {
 public:
  TreeRoutes(Fabric& fabric, std::vector<TreeLevel> levels, TreeRouting routing, std::uint64_t seed)
      : levels_(std::move(levels)), routing_(routing), seed_(seed) {
    hosts_ = 1;
    for (const TreeLevel& level : levels_) hosts_ *= level.down;
    fabric.hosts = hosts_;
    int subtrees = hosts_;  // subtrees formed by this level's children
    int twins = 1;          // children over the same hosts
    for (std::size_t index = 0; index < levels_.size(); ++index) {
      const TreeLevel& level = levels_[index];
      const bool last = index + 1 == levels_.size();
      first_up_.push_back(static_cast<std::uint32_t>(fabric.links.size()));
      for (int link = 0; link < subtrees * twins * level.up; ++link) {
        const auto [child, parent] = names_of(index, last, link, twins);
        add_link(fabric, index == 0 ? "up" + child : fmt::format("{}-{}", child, parent), level.bandwidth);
        add_link(fabric, index == 0 ? "down" + child : fmt::format("{}-{}", parent, child), level.bandwidth);
      }
      twins_.push_back(twins);
      subtrees /= level.down;
      twins *= level.up;
    }
  }

  Route operator()(int from, int to, std::uint64_t flow) const {
    Route up;
    Route down;
    int below = 1;            // hosts in a child's subtree
    int twin = 0;             // index among the children over the same hosts
    std::uint64_t ports = 1;  // product of the lower levels' `up`
    for (std::size_t index = 0; index < levels_.size() && from / below != to / below; ++index) {
      const TreeLevel& level = levels_[index];
      const auto count = static_cast<std::uint64_t>(level.up);
      const std::uint64_t port = (routing_ == TreeRouting::kDestination ? static_cast<std::uint64_t>(to) / ports
                                                                        : hash_of(from, to, flow, index)) %
                                 count;
      const auto link = [&](int host) {
        return 2 * ((host / below * twins_[index] + twin) * level.up + static_cast<int>(port));
      };
      up.push_back(nth(first_up_[index], link(from)));
      down.push_back(nth(first_up_[index], link(to) + 1));
      twin = twin * level.up + static_cast<int>(port);
      ports *= count;
      below *= level.down;
    }
    up.insert(up.end(), down.rbegin(), down.rend());
    return up;
  }

 private:
  std::uint64_t hash_of(int from, int to, std::uint64_t flow, std::size_t level) const {
    std::uint64_t hash = scrambled(seed_ + level);
    for (const std::uint64_t each : {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to), flow})
      hash = scrambled(hash ^ each);
    return hash;
  }

  // Names of the ends of a level's link: hosts by number, then leaves, pods and levels; the top switches are spines.
  std::pair<std::string, std::string> names_of(std::size_t index, bool last, int link, int twins) const {
    const int up = levels_[index].up;
    const int child = link / up;
    if (index == 0) return {up == 1 ? fmt::format("{}", child) : fmt::format("{}.{}", child, link % up), ""};
    const char* const kind = index == 1 ? "leaf" : index == 2 ? "pod" : "level";
    const std::string name =
        twins == 1 ? fmt::format("{}{}", kind, child) : fmt::format("{}{}.{}", kind, child / twins, child % twins);
    const int parent = child % twins * up + link % up;
    return {name, fmt::format("{}{}", last ? "spine" : "up", parent)};
  }

  std::vector<TreeLevel> levels_;
  TreeRouting routing_;
  std::uint64_t seed_;
  int hosts_ = 0;
  std::vector<std::uint32_t> first_up_;  // by level; each up link is followed by its down link
  std::vector<int> twins_;
};

// In every dimension, each host has the link to its next neighbour and the one back.
class TorusRoutes {
 public:
  TorusRoutes(Fabric& fabric, std::vector<int> sizes, BytesPerSecond bandwidth) : sizes_(std::move(sizes)) {
    fabric.hosts = 1;
    for (const int size : sizes_) fabric.hosts *= size;
    for (std::size_t index = 0; index < sizes_.size(); ++index) {
      first_up_.push_back(add_links(fabric, fmt::format("dim{}-up", index), fabric.hosts, bandwidth));
      first_down_.push_back(add_links(fabric, fmt::format("dim{}-down", index), fabric.hosts, bandwidth));
    }
  }

  Route operator()(int from, int to, std::uint64_t /*flow*/) const {
    Route way;
    int here = from;
    int stride = 1;
    for (std::size_t index = 0; index < sizes_.size(); ++index) {
      const int size = sizes_[index];
      const int ahead = (to / stride % size - from / stride % size + size) % size;
      const bool upward = 2 * ahead <= size;
      for (int step = 0; step < (upward ? ahead : size - ahead); ++step) {
        const int place = here / stride % size;
        const int next = here + ((place + (upward ? 1 : size - 1)) % size - place) * stride;
        way.push_back(upward ? nth(first_up_[index], here) : nth(first_down_[index], next));
        here = next;
      }
      stride *= size;
    }
    return way;
  }

 private:
  std::vector<int> sizes_;
  std::vector<std::uint32_t> first_up_;    // by dimension: from a host to the next
  std::vector<std::uint32_t> first_down_;  // by dimension: from the next host back
};

class DragonflyRoutes {
 public:
  DragonflyRoutes(Fabric& fabric, const Dragonfly& shape) : shape_(shape) {
    const int of_group = shape.chassis * shape.routers;
    if (shape.groups > 1 && of_group < shape.groups) {
      throw InternalError("a group of the dragonfly has fewer routers than there are groups");
    }
    const int routers = shape.groups * of_group;
    fabric.hosts = routers * shape.nodes;
    up_ = add_links(fabric, "up", fabric.hosts, shape.node_bandwidth);
    down_ = add_links(fabric, "down", fabric.hosts, shape.node_bandwidth);
    // One link to each router of the chassis, to each at the same position, and to each group; self-links are unused.
    green_ = add_links(fabric, "green", routers * shape.routers, shape.green_bandwidth);
    black_ = add_links(fabric, "black", routers * shape.chassis, shape.black_bandwidth);
    blue_ = add_links(fabric, "blue", shape.groups * shape.groups, shape.blue_bandwidth);
  }

  Route operator()(int from, int to, std::uint64_t /*flow*/) const {
    if (from == to) return {};
    const int of_group = shape_.chassis * shape_.routers;
    Route way = {nth(up_, from)};
    int router = from / shape_.nodes;
    const int last = to / shape_.nodes;
    const int group = router / of_group;
    const int last_group = last / of_group;
    if (group != last_group) {
      router = within_group(router, group * of_group + last_group, way);
      way.push_back(nth(blue_, group * shape_.groups + last_group));
      router = last_group * of_group + group;
    }
    within_group(router, last, way);
    way.push_back(nth(down_, to));
    return way;
  }

 private:
  int within_group(int router, int wanted, Route& way) const {
    const int place = router % shape_.routers;
    const int wanted_place = wanted % shape_.routers;
    if (place != wanted_place) {
      way.push_back(nth(green_, router * shape_.routers + wanted_place));
      router += wanted_place - place;
    }
    if (router != wanted) {
      const int wanted_chassis = wanted / shape_.routers % shape_.chassis;
      way.push_back(nth(black_, router * shape_.chassis + wanted_chassis));
    }
    return wanted;
  }

  Dragonfly shape_;
  std::uint32_t up_ = 0;
  std::uint32_t down_ = 0;
  std::uint32_t green_ = 0;
  std::uint32_t black_ = 0;
  std::uint32_t blue_ = 0;
};

class RailRoutes {
 public:
  RailRoutes(Fabric& fabric, const RailShape& shape) : shape_(shape) {
    fabric.hosts = shape.nodes * shape.gpus_per_node;
    segments_ = (shape.nodes + shape.nodes_per_segment - 1) / shape.nodes_per_segment;
    nvlink_out_ = add_links(fabric, "nv-up", fabric.hosts, shape.nvlink_bandwidth);
    nvlink_in_ = add_links(fabric, "nv-down", fabric.hosts, shape.nvlink_bandwidth);
    card_out_ = add_links(fabric, "nic-up", fabric.hosts, shape.card_bandwidth);
    card_in_ = add_links(fabric, "nic-down", fabric.hosts, shape.card_bandwidth);
    first_trunk_ = static_cast<std::uint32_t>(fabric.links.size());
    for (int segment = 0; segment < segments_; ++segment) {
      for (int rail = 0; rail < shape.gpus_per_node; ++rail) {
        for (int spine = 0; spine < shape.spines; ++spine) {
          const std::string leaf = fmt::format("seg{}-rail{}", segment, rail);
          add_link(fabric, fmt::format("{}-spine{}", leaf, spine), shape.uplink_bandwidth);
          add_link(fabric, fmt::format("spine{}-{}", spine, leaf), shape.uplink_bandwidth);
        }
      }
    }
  }

  Route operator()(int from, int to, std::uint64_t /*flow*/) const {
    if (from == to) return {};
    const int gpus = shape_.gpus_per_node;
    if (from / gpus == to / gpus) return {nth(nvlink_out_, from), nth(nvlink_in_, to)};
    Route way;
    int sender = from;
    if (shape_.pxn && from % gpus != to % gpus) {
      sender = from / gpus * gpus + to % gpus;
      way = {nth(nvlink_out_, from), nth(nvlink_in_, sender)};
    }
    way.push_back(nth(card_out_, sender));
    const int leaf = leaf_of(sender);
    const int last_leaf = leaf_of(to);
    if (leaf != last_leaf) {
      const int spine = to % shape_.spines;
      way.push_back(nth(first_trunk_, 2 * (leaf * shape_.spines + spine)));
      way.push_back(nth(first_trunk_, 2 * (last_leaf * shape_.spines + spine) + 1));
    }
    way.push_back(nth(card_in_, to));
    return way;
  }

 private:
  int leaf_of(int gpu) const {
    const int segment = gpu / shape_.gpus_per_node / shape_.nodes_per_segment;
    return segment * shape_.gpus_per_node + gpu % shape_.gpus_per_node;
  }

  RailShape shape_;
  int segments_ = 1;
  std::uint32_t nvlink_out_ = 0;
  std::uint32_t nvlink_in_ = 0;
  std::uint32_t card_out_ = 0;
  std::uint32_t card_in_ = 0;
  std::uint32_t first_trunk_ = 0;
};

}  // namespace

Fabric star_fabric(int hosts, BytesPerSecond up, BytesPerSecond down) {
  Fabric fabric;
  fabric.hosts = hosts;
  const std::uint32_t first_up = add_links(fabric, "up", hosts, up);
  const std::uint32_t first_down = add_links(fabric, "down", hosts, down);
  fabric.route = [first_up, first_down](int from, int to, std::uint64_t /*flow*/) {
    return from == to ? Route() : Route{nth(first_up, from), nth(first_down, to)};
  };
  return fabric;
}

Fabric tree_fabric(const std::vector<TreeLevel>& levels, TreeRouting routing, std::uint64_t seed) {
  Fabric fabric;
  fabric.route = TreeRoutes(fabric, levels, routing, seed);
  return fabric;
}

Fabric torus_fabric(const std::vector<int>& sizes, BytesPerSecond bandwidth) {
  Fabric fabric;
  fabric.route = TorusRoutes(fabric, sizes, bandwidth);
  return fabric;
}

Fabric dragonfly_fabric(const Dragonfly& shape) {
  Fabric fabric;
  fabric.route = DragonflyRoutes(fabric, shape);
  return fabric;
}

Fabric rail_fabric(const RailShape& shape) {
  Fabric fabric;
  fabric.route = RailRoutes(fabric, shape);
  return fabric;
}

}  // namespace flopcast
