#pragma once

#include <functional>
#include <string>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// What times the samples; tests have one that only moves when they say so. Called from the threads of all ranks.
struct Clock {
  std::function<double()> wall;       ///< seconds; only runs forward
  std::function<double()> processor;  ///< CPU time of the calling thread
};

Clock machine_clock();

/// This machine's processor, name, memory, today's date and the library that multiplies; no samples.
Measurement describe_host();

/// c = a · b of row-major fp32 matrices, m x k times k x n, on the calling thread: OpenBLAS when the build found it,
/// else Eigen.
void multiply(const float* a, const float* b, float* c, int m, int n, int k);

struct ProductLibrary {
  std::string name;
  std::string version;
};
ProductLibrary product_library();

}  // namespace flopcast
