#pragma once

#include <memory>
#include <string>

#include "realrun/compute/cuda/matrix_products.hpp"

namespace flopcast::realrun::cuda {

/// The functions of cuBLASLt, found in the library when the program runs: nothing of it is needed to start.
class CublasLt;
/// Looks for libcublasLt of this build's CUDA version where the system looks for libraries, and at
/// FLOPCAST_CUBLASLT_LIBRARY first. Throws EnvironmentError that says what was tried.
std::shared_ptr<CublasLt> load_cublaslt();
std::string version_of(const CublasLt& library);

struct ProductSettings {
  bool tf32 = false;        ///< for factors of 32 bits
  int multiprocessors = 0;  ///< that the stream runs on; 0: all
};

/// Products by cuBLASLt on `stream`. The algorithm for each shape is the first that cuBLASLt's heuristic names, asked
/// for once.
std::unique_ptr<MatrixProducts> make_cublaslt_products(std::shared_ptr<CublasLt> library, cudaStream_t stream,
                                                       const ProductSettings& settings);

}  // namespace flopcast::realrun::cuda
