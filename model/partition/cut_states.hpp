#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/units/quantity.hpp"
#include "model/workload/layer_graph.hpp"

namespace flopcast {

/// A set of layers that can run before all others: what the stages up to some cut hold together.
struct CutState {
  std::vector<std::uint64_t> layers;  ///< a bit for each layer of the graph
  Seconds time;                       ///< of all its layers, forward and backward
  Bytes activation;                   ///< outputs of all its layers
  Bytes parameters;
  Bytes crossing;    ///< outputs made inside and needed outside
  Bytes transition;  ///< what PipeDream's optimizer sends over the cut: the last layers and every layer that has a
                     ///< successor which some last layer does not need

  bool holds(std::size_t layer) const { return (layers[layer / 64] >> (layer % 64) & 1U) != 0; }
  bool is_within(const CutState& other) const;
};

/// The cuts among which a planner may choose, sorted such that a state comes after every state within it; the last one
/// holds the whole model.
struct CutStates {
  std::vector<CutState> states;
  std::vector<std::size_t> kept;  ///< layers that count, in the row's order
  bool in_a_row = false;          ///< too many cuts: the graph was put in a row, and only cuts of the row are listed
};

/// All cuts of the graph that PipeDream's optimizer visits (its antichains, Narayanan et al. SOSP'19 §3.1): from the
/// first layer of the file without predecessors, one ready layer more at a time, together with what it needs.
/// As there, Inputs are left out, and so is what only hands on a part of a result that nobody uses ("__getitem__").
/// A graph with more than `most_states` cuts is put in a row instead.
CutStates cut_states(const LayerGraph& graph, std::size_t most_states = 2500);

}  // namespace flopcast
