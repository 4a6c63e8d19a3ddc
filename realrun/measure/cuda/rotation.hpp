#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "realrun/compute/cuda/matrix_products.hpp"

namespace flopcast::realrun::cuda {

/// A part of the GPU's memory, and the stream whose works lie in it.
struct Lane {
  cudaStream_t stream = nullptr;
  std::byte* memory = nullptr;
  std::size_t bytes = 0;
  MatrixProducts* products = nullptr;
};

/// The buffers of a work, as many times one behind the other as are twice the GPU's cache: a repetition takes the next
/// ones, and finds nothing of them in the cache.
class Rotation {
 public:
  Rotation(const Lane& lane, std::size_t cache_bytes) : lane_(lane), cache_bytes_(cache_bytes) {}

  /// Asks for a buffer of each repetition; returns where it begins.
  std::size_t part(std::size_t bytes);
  /// When all parts are known: fills them, queued on the lane's stream. Throws EnvironmentError when the lane is too
  /// small.
  void fill(Factors factors, bool positive);

  template <class Value>
  Value* at(std::size_t part, int round) const {
    return reinterpret_cast<Value*>(address(part, round));
  }
  std::size_t slots() const { return slots_; }

 private:
  std::byte* address(std::size_t part, int round) const;

  Lane lane_;
  std::size_t cache_bytes_;
  std::size_t stride_ = 0;
  std::size_t slots_ = 0;
};

}  // namespace flopcast::realrun::cuda
