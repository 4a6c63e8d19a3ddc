#include "sim/flow/flow_program.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <unordered_map>
#include <utility>

namespace flopcast {

namespace {

using Colour = std::uint64_t;

// The finaliser of SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014).
Colour mixed(Colour value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

// Emscripten's library has no std::bit_cast yet.
Colour colour_of(double value) {
  Colour bits = 0;
  static_assert(sizeof(bits) == sizeof(value));
  std::memcpy(&bits, &value, sizeof(bits));
  return mixed(bits);
}

// Colour of a use: its other side and its weight.
Colour colour_of_use(Colour other, double weight) {
  return mixed(other ^ colour_of(weight));
}

// Number of distinct colours; `most` + 1 if there are more than `most`. The colours are hashes already, so they index a
// table.
std::size_t distinct(const std::vector<Colour>& colours, std::size_t most) {
  std::vector<Colour> table(std::bit_ceil(2 * std::min(most, colours.size()) + 2), 0);
  const std::size_t last = table.size() - 1;
  std::size_t count = 0;
  bool zero = false;
  for (const Colour colour : colours) {
    if (colour == 0) {
      count += zero ? 0 : 1;
      zero = true;
      continue;
    }
    std::size_t place = colour & last;
    while (table[place] != 0 && table[place] != colour) place = (place + 1) & last;
    if (table[place] == colour) continue;
    table[place] = colour;
    if (++count > most) return count;
  }
  return count;
}

struct Colours {
  std::vector<Colour> flows;
  std::vector<Colour> links;
};

// Sums of hashes do not depend on the order of the summands.
Colours next_colours(const FlowProgram& program, const std::vector<FlowId>& order, bool has_cycles,
                     const Colours& now) {
  Colours next = {std::vector<Colour>(now.flows.size()), now.links};
  std::vector<Colour> before;
  for (const FlowId flow : order) {
    Colour sum = mixed(now.flows[flow]);
    for (const auto& [link, weight] : program.uses_of(flow)) sum += colour_of_use(now.links[link], weight);
    // Predecessors already have their next colour, so one round propagates through whole chains; with cycles, none of
    // them has. Sorting and removing duplicates makes their colours a set: a flow that waits for several flows of a
    // class waits for the class.
    before.clear();
    const std::vector<Colour>& known = has_cycles ? now.flows : next.flows;
    for (const FlowId predecessor : program.predecessors_of(flow)) before.push_back(known[predecessor]);
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const Colour colour : before) sum += mixed(~colour);
    next.flows[flow] = mixed(sum);
    for (const auto& [link, weight] : program.uses_of(flow)) {
      next.links[link] += colour_of_use(now.flows[flow], weight);
    }
  }
  for (std::size_t link = 0; link < next.links.size(); ++link) next.links[link] = mixed(next.links[link]);
  return next;
}

// Class of each colour, numbered in order of appearance, and the first member of each class.
struct Classes {
  explicit Classes(const std::vector<Colour>& colours) {
    std::unordered_map<Colour, std::uint32_t> found;
    of.reserve(colours.size());
    for (const Colour colour : colours) {
      const auto [place, fresh] = found.emplace(colour, static_cast<std::uint32_t>(first.size()));
      if (fresh) first.push_back(static_cast<std::uint32_t>(of.size()));
      of.push_back(place->second);
    }
  }
  std::vector<std::uint32_t> of;
  std::vector<std::uint32_t> first;
};

using ClassUses = std::vector<std::pair<std::uint32_t, double>>;  // class of the other side, weight

ClassUses uses_by_class(const FlowProgram& program, FlowId flow, const Classes& links) {
  ClassUses uses;
  for (const auto& [link, weight] : program.uses_of(flow)) uses.emplace_back(links.of[link], weight);
  std::sort(uses.begin(), uses.end());
  return uses;
}

std::vector<std::uint32_t> predecessor_classes(const FlowProgram& program, FlowId flow, const Classes& flows) {
  std::vector<std::uint32_t> classes;
  for (const FlowId predecessor : program.predecessors_of(flow)) classes.push_back(flows.of[predecessor]);
  std::sort(classes.begin(), classes.end());
  classes.erase(std::unique(classes.begin(), classes.end()), classes.end());
  return classes;
}

// Uses of each link: the class of the flow and its weight, sorted so that links can be compared and summed.
std::vector<ClassUses> uses_by_link(const FlowProgram& program, const Classes& flows) {
  std::vector<ClassUses> uses(program.links());
  for (FlowId flow = 0; flow < program.flows(); ++flow) {
    for (const auto& [link, weight] : program.uses_of(flow)) uses[link].emplace_back(flows.of[flow], weight);
  }
  for (ClassUses& each : uses) std::sort(each.begin(), each.end());
  return uses;
}

bool is_equitable(const FlowProgram& program, const Classes& flows, const Classes& links,
                  const std::vector<ClassUses>& of_links) {
  for (FlowId flow = 0; flow < program.flows(); ++flow) {
    const FlowId first = flows.first[flows.of[flow]];
    if (first == flow) continue;
    if (program.bytes(flow) != program.bytes(first) || program.cap(flow) != program.cap(first) ||
        (program.predecessors_of(flow).empty() && program.start(flow) != program.start(first)) ||
        uses_by_class(program, flow, links) != uses_by_class(program, first, links) ||
        predecessor_classes(program, flow, flows) != predecessor_classes(program, first, flows)) {
      return false;
    }
  }
  for (LinkId link = 0; link < program.links(); ++link) {
    const LinkId first = links.first[links.of[link]];
    if (program.capacity(link) != program.capacity(first) || of_links[link] != of_links[first]) return false;
  }
  return true;
}

FlowProgram quotient(const FlowProgram& program, const Classes& flows, const Classes& links,
                     const std::vector<ClassUses>& of_links) {
  // Indexed by class of flows: each class of links that it uses, and how often all its flows use one such link.
  std::vector<std::vector<LinkUse>> uses(flows.first.size());
  for (std::uint32_t link = 0; link < links.first.size(); ++link) {
    const ClassUses& users = of_links[links.first[link]];
    for (std::size_t index = 0; index < users.size();) {
      const std::uint32_t user = users[index].first;
      double weight = 0.0;
      for (; index < users.size() && users[index].first == user; ++index) weight += users[index].second;
      uses[user].push_back({link, weight});
    }
  }
  FlowProgram classes;
  for (const LinkId link : links.first) classes.add_link(program.capacity(link));
  for (std::uint32_t index = 0; index < flows.first.size(); ++index) {
    const FlowId flow = flows.first[index];
    classes.add_flow(program.bytes(flow), program.start(flow), program.cap(flow));
    for (const auto& [link, weight] : uses[index]) classes.add_use(link, weight);
    for (const std::uint32_t before : predecessor_classes(program, flow, flows)) classes.add_predecessor(before);
  }
  return classes;
}

}  // namespace

std::optional<FlowClasses> refine(const FlowProgram& program) {
  std::vector<FlowId> order = in_order(program);
  const bool has_cycles = order.size() != program.flows();
  if (has_cycles) {
    order.resize(program.flows());
    std::iota(order.begin(), order.end(), FlowId{0});
  }
  if (order.empty()) return std::nullopt;
  Colours colours;
  for (FlowId flow = 0; flow < program.flows(); ++flow) {
    const double start = program.predecessors_of(flow).empty() ? program.start(flow) : 0.0;
    colours.flows.push_back(
        mixed(colour_of(program.bytes(flow)) ^ mixed(colour_of(start)) ^ mixed(mixed(colour_of(program.cap(flow))))));
  }
  for (LinkId link = 0; link < program.links(); ++link) colours.links.push_back(colour_of(program.capacity(link)));
  // A round splits classes or leaves them all unchanged, so an unchanged count means that none was split.
  std::size_t before = 0;
  for (;;) {
    const std::size_t flows = distinct(colours.flows, program.flows() / 2);
    if (flows > program.flows() / 2) return std::nullopt;
    const std::size_t classes = flows + distinct(colours.links, program.links());
    if (classes == before) break;
    before = classes;
    colours = next_colours(program, order, has_cycles, colours);
  }
  const Classes flows(colours.flows);
  const Classes links(colours.links);
  const std::vector<ClassUses> of_links = uses_by_link(program, flows);
  if (!is_equitable(program, flows, links, of_links)) return std::nullopt;
  return FlowClasses{flows.of, links.of, quotient(program, flows, links, of_links)};
}

}  // namespace flopcast
