#pragma once

#include <cuda_runtime_api.h>
#include <cstddef>
#include <memory>
#include <string>

#include "realrun/device/buffer.hpp"

namespace flopcast::realrun::cuda {

/// What the factors of a product are made of.
enum class Factors { kFloat32, kBfloat16, kFloat16, kFloat8 };
/// Bytes of an element.
constexpr std::size_t size_of(Factors factors) {
  return factors == Factors::kFloat32 ? 4 : factors == Factors::kFloat8 ? 1 : 2;
}

/// result (m × n, row-major) = factor · op(a) · op(b), += when `accumulate`. a is m × k as it enters the product and b
/// k × n; `transposed` says that they are stored the other way round. Rows without gaps.
struct Product {
  std::size_t m = 0;
  std::size_t n = 0;
  std::size_t k = 0;
  bool a_transposed = false;
  bool b_transposed = false;
  bool accumulate = false;
  Factors factors = Factors::kFloat32;
  /// Whether the result has 16 bits, as the factors have or bf16 where they have 8; else it has 32.
  bool narrow = false;
  /// Of factors of 8 bits: a in e5m2 instead of e4m3; and numbers in the device's memory that they are multiplied by,
  /// null for one.
  bool a_wide = false;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
};

/// Multiplies matrices on one stream. Factors of 8 bits must enter as tensor cores take them: b transposed, a not; all
/// three sizes multiples of 16 (cuBLAS documentation, cublasLtMatmul: FP8 kernels).
class MatrixProducts : public Interface {
 public:
  virtual void multiply(const Product& product, const void* a, const void* b, void* result, float factor) = 0;
};

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
