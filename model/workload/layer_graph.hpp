#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "model/units/quantity.hpp"

namespace flopcast {

/// One measured layer of a graph: what one minibatch costs on one worker.
struct GraphLayer {
  std::string name;  ///< as edges name it: "node17"
  std::string description;
  Seconds forward;
  Seconds backward;
  Bytes activation;
  Bytes parameters;
  bool is_input = false;  ///< stands for loading data
  std::size_t line = 0;   ///< of the file, for messages
  long number = 0;        ///< of the name, for the order
  std::vector<std::size_t> successors;
  std::size_t predecessors = 0;
};

/// A model as measured layers and who needs whose output. Free of cycles once read.
struct LayerGraph {
  std::vector<GraphLayer> layers;  ///< in the order of the file
  std::vector<std::size_t> row;    ///< topological order, the smaller number first where the graph leaves a choice
};

}  // namespace flopcast
