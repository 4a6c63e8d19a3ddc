#pragma once

#include <string>

namespace flopcast {

/// c = a · b of row-major fp32 matrices, m x k times k x n, on the calling thread: OpenBLAS when the build found it,
/// else Eigen.
void multiply(const float* a, const float* b, float* c, int m, int n, int k);

struct ProductLibrary {
  std::string name;
  std::string version;
};
ProductLibrary product_library();

}  // namespace flopcast
