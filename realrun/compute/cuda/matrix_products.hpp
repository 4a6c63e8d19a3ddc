#pragma once

#include <cuda_runtime_api.h>
#include <cstddef>
#include <memory>
#include <string>

#include "realrun/device/buffer.hpp"

namespace flopcast::realrun::cuda {

/// Element type of a product's factors.
enum class Factors { kFloat32, kBfloat16, kFloat16, kFloat8 };
/// Bytes per element.
constexpr std::size_t size_of(Factors factors) {
  return factors == Factors::kFloat32 ? 4 : factors == Factors::kFloat8 ? 1 : 2;
}

/// result (m × n, row-major) = factor · op(a) · op(b), or += if `accumulate`. a enters the product as m × k and b as k
/// × n; `transposed` means that they are stored the other way round. Rows have no gaps.
struct Product {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  Factors factors = Factors::kFloat32;
  /// True if the result is 16-bit: the type of the factors, or bf16 if those are 8-bit. Otherwise it is 32-bit.
  bool narrow = false;
  /// For 8-bit factors: a is e5m2 instead of e4m3, and pointers to device memory with the scales of a and b, null for
  /// one.
  bool a_wide = false;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};

/// Multiplies matrices on one stream. 8-bit factors must be stored as tensor cores read them: b transposed, a not; all
/// three sizes multiples of 16 (cuBLAS documentation, cublasLtMatmul: FP8 kernels).
class MatrixProducts : public Interface {
 public:
  virtual void multiply(const Product& product, const void* a, const void* b, void* result, float factor) = 0;
};

/// The functions of cuBLASLt, loaded at run time: the program starts without the library.
class CublasLt;
/// Looks for libcublasLt of this build's CUDA version at FLOPCAST_CUBLASLT_LIBRARY first, then on the system's library
/// path. Throws EnvironmentError listing what was tried.
std::shared_ptr<CublasLt> load_cublaslt();
std::string version_of(const CublasLt& library);

struct ProductSettings {
  bool tf32 = false;        ///< for 32-bit factors
  int multiprocessors = 0;  ///< of the stream; 0: all
};

/// Products by cuBLASLt on `stream`. For each shape the first algorithm of cuBLASLt's heuristic is used, queried once.
std::unique_ptr<MatrixProducts> make_cublaslt_products(std::shared_ptr<CublasLt> library, cudaStream_t stream,
                                                       const ProductSettings& settings);

}  // namespace flopcast::realrun::cuda
