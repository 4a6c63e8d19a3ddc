#pragma once

#include <functional>

namespace flopcast {

/// What times the samples; tests have one that only moves when they say so. Called from the threads of all ranks.
struct Clock {
  std::function<double()> wall;       ///< seconds; only runs forward
  std::function<double()> processor;  ///< CPU time of the calling thread
};

Clock machine_clock();

}  // namespace flopcast
