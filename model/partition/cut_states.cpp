#include "model/partition/cut_states.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Bits = std::vector<std::uint64_t>;
constexpr std::size_t kWordBits = 64;

void add(Bits& bits, std::size_t index) {
  bits[index / kWordBits] |= std::uint64_t{1} << (index % kWordBits);
}
bool has(const Bits& bits, std::size_t index) {
  return (bits[index / kWordBits] >> (index % kWordBits) & 1U) != 0;
}
Bits united(Bits bits, const Bits& others) {
  for (std::size_t word = 0; word < bits.size(); ++word) bits[word] |= others[word];
  return bits;
}

class Enumerator {
 public:
  explicit Enumerator(const LayerGraph& graph);
  CutStates enumerate(std::size_t most_states) const;

 private:
  std::vector<Bits> reachable_sets(std::size_t most_states) const;
  std::vector<Bits> row_sets() const;
  CutState state_of(Bits layers) const;
  Bytes transition_of(const Bits& layers) const;
  bool leaves(std::size_t layer, const Bits& layers) const {
    return std::any_of(successors_[layer].begin(), successors_[layer].end(),
                       [&layers](std::size_t next) { return !has(layers, next); });
  }

  const LayerGraph& graph_;
  std::vector<std::size_t> kept_;                     // in the row's order
  std::vector<std::vector<std::size_t>> successors_;  // among kept layers
  std::vector<Bits> needs_;                           // a layer and all that comes before it
  std::size_t first_ = 0;
};

Enumerator::Enumerator(const LayerGraph& graph) : graph_(graph), successors_(graph.layers.size()) {
  const std::size_t count = graph.layers.size();
  std::vector<bool> keep(count);
  for (std::size_t index = 0; index < count; ++index) keep[index] = !graph.layers[index].is_input;
  for (std::size_t index = 0; index < count; ++index) {
    const GraphLayer& layer = graph.layers[index];
    if (layer.successors.empty() && layer.description.rfind("__getitem__", 0) == 0) keep[index] = false;
  }
  needs_.assign(count, Bits((count + kWordBits - 1) / kWordBits, 0));
  std::vector<bool> preceded(count, false);
  for (const std::size_t index : graph.row) {
    if (!keep[index]) continue;
    kept_.push_back(index);
    add(needs_[index], index);
    for (const std::size_t next : graph.layers[index].successors) {
      if (!keep[next]) continue;
      successors_[index].push_back(next);
      needs_[next] = united(needs_[next], needs_[index]);
      preceded[next] = true;
    }
  }
  if (kept_.empty()) throw ConfigError({"graph", "no layers beside inputs", "", ""});
  first_ = 0;
  while (!keep[first_] || preceded[first_]) ++first_;
}

std::vector<Bits> Enumerator::reachable_sets(std::size_t most_states) const {
  std::vector<Bits> sets = {needs_[first_]};
  std::map<Bits, bool> seen = {{sets.front(), true}};
  for (std::size_t at = 0; at < sets.size() && sets.size() <= most_states; ++at) {
    for (const std::size_t layer : kept_) {
      if (!has(sets[at], layer)) continue;
      for (const std::size_t next : successors_[layer]) {
        if (has(sets[at], next)) continue;
        Bits larger = united(sets[at], needs_[next]);
        if (seen.emplace(larger, true).second) sets.push_back(std::move(larger));
      }
    }
  }
  return sets;
}

std::vector<Bits> Enumerator::row_sets() const {
  std::vector<Bits> sets;
  Bits bits(needs_.front().size(), 0);
  for (const std::size_t layer : kept_) {
    add(bits, layer);
    sets.push_back(bits);
  }
  return sets;
}

Bytes Enumerator::transition_of(const Bits& layers) const {
  Bits sent(layers.size(), 0);
  for (const std::size_t last : kept_) {
    const bool is_last = has(layers, last) && std::none_of(successors_[last].begin(), successors_[last].end(),
                                                           [&layers](std::size_t next) { return has(layers, next); });
    if (!is_last) continue;
    add(sent, last);
    for (const std::size_t before : kept_) {
      if (before == last || !has(needs_[last], before)) continue;
      const bool goes_elsewhere = std::any_of(successors_[before].begin(), successors_[before].end(),
                                              [&](std::size_t next) { return !has(needs_[last], next); });
      if (goes_elsewhere) add(sent, before);
    }
  }
  Bytes sum;
  for (const std::size_t layer : kept_) {
    if (has(sent, layer)) sum += graph_.layers[layer].activation;
  }
  return sum;
}

CutState Enumerator::state_of(Bits layers) const {
  CutState state;
  for (const std::size_t index : kept_) {
    if (!has(layers, index)) continue;
    const GraphLayer& layer = graph_.layers[index];
    state.time += layer.forward + layer.backward;
    state.activation += layer.activation;
    state.parameters += layer.parameters;
    if (leaves(index, layers)) state.crossing += layer.activation;
  }
  state.transition = transition_of(layers);
  state.layers = std::move(layers);
  return state;
}

std::size_t size_of(const CutState& state) {
  std::size_t count = 0;
  for (std::size_t layer = 0; layer < state.layers.size() * kWordBits; ++layer) count += state.holds(layer) ? 1 : 0;
  return count;
}

CutStates Enumerator::enumerate(std::size_t most_states) const {
  CutStates cuts;
  cuts.kept = kept_;
  std::vector<Bits> sets = reachable_sets(most_states);
  cuts.in_a_row = sets.size() > most_states;
  if (cuts.in_a_row) sets = row_sets();
  std::vector<std::size_t> sizes;
  std::vector<CutState> states;
  for (Bits& layers : sets) {
    states.push_back(state_of(std::move(layers)));
    sizes.push_back(size_of(states.back()));
  }
  std::vector<std::size_t> order(states.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // By time, for the planner's search; a larger set of equal time comes later.
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (states[a].time != states[b].time) return states[a].time < states[b].time;
    if (sizes[a] != sizes[b]) return sizes[a] < sizes[b];
    return states[a].layers < states[b].layers;
  });
  for (const std::size_t index : order) cuts.states.push_back(std::move(states[index]));
  return cuts;
}

}  // namespace

bool CutState::is_within(const CutState& other) const {
  for (std::size_t word = 0; word < layers.size(); ++word) {
    if ((layers[word] & ~other.layers[word]) != 0) return false;
  }
  return true;
}

CutStates cut_states(const LayerGraph& graph, std::size_t most_states) {
  return Enumerator(graph).enumerate(most_states);
}

}  // namespace flopcast
