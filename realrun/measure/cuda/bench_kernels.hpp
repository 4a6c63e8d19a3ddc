#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "realrun/compute/cuda/matrix_products.hpp"

// Kernels that only measuring needs, as functions that queue them; a launch that fails throws EnvironmentError.

namespace flopcast::realrun::cuda {

/// Does nothing.
void nothing(cudaStream_t stream);

/// Random numbers of magnitudes from 1/16 to 1, of either sign unless `positive`; `bytes` is a multiple of 4. Zeros and
/// repeated values take less power than data, and a GPU at its power limit runs faster with them.
void fill_random(void* to, std::size_t bytes, Factors factors, bool positive, std::uint64_t seed, cudaStream_t stream);

/// A block of copy_on_channels takes so much shared memory that no block of a product lies beside it, as those of
/// collectives do; every GPU from compute capability 8.0 on grants it.
inline constexpr int kChannelSharedBytes = 96 * 1024;
/// Copies with `channels` blocks; addresses and `bytes` are multiples of 16.
void copy_on_channels(const void* from, void* to, std::size_t bytes, int channels, cudaStream_t stream);

}  // namespace flopcast::realrun::cuda
