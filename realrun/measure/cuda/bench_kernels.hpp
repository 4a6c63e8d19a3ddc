#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "realrun/compute/cuda/matrix_products.hpp"

// Functions that queue kernels used only for measuring; a launch that fails throws EnvironmentError.

namespace flopcast::realrun::cuda {

/// Queues an empty kernel.
void nothing(cudaStream_t stream);

/// Fills memory with random numbers of magnitude 1/16 to 1, with random signs unless `positive`; `bytes` is a multiple
/// of 4. Zeros and repeated values consume less power than real data, and a GPU at its power limit would run faster
/// with them.
void fill_random(void* to, std::size_t bytes, Factors factors, bool positive, std::uint64_t seed, cudaStream_t stream);

/// Shared memory of a block of copy_on_channels: enough that no block of a product runs on the same multiprocessor, as
/// with blocks of collectives. Every GPU from compute capability 8.0 on provides it.
inline constexpr int kChannelSharedBytes = 96 * 1024;
/// Copies with `channels` blocks; addresses and `bytes` are multiples of 16.
void copy_on_channels(const void* from, void* to, std::size_t bytes, int channels, cudaStream_t stream);

}  // namespace flopcast::realrun::cuda
