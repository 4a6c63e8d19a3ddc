#include "realrun/measure/cuda/bench_kernels.hpp"

#include "realrun/compute/cuda/device_code.cuh"

namespace flopcast::realrun::cuda {

namespace {

__global__ void do_nothing() {}

// A bijection that mixes all bits (MurmurHash3's finalizer).
__device__ std::uint64_t mixed(std::uint64_t value) {
  value ^= value >> 33U;
  value *= 0xff51afd7ed558ccdULL;
  value ^= value >> 33U;
  value *= 0xc4ceb9fe1a85ec53ULL;
  value ^= value >> 33U;
  return value;
}

/// Bit patterns of one number format between 1/16 and 1: exponents of four octaves, any mantissa.
struct Format {
  std::uint32_t least;  ///< of 1/16
  std::uint32_t range;  ///< up to 1, a power of two
  unsigned bits;
};

__device__ std::uint32_t word_of(std::uint64_t random, const Format& format, bool positive) {
  std::uint32_t word = 0;
  for (unsigned place = 0; place < 32; place += format.bits) {
    const auto part = static_cast<std::uint32_t>(random >> place);
    std::uint32_t number = format.least + (part & (format.range - 1U));
    // Uses a bit that the number does not depend on.
    const std::uint64_t sign = (random >> (format.bits == 32 ? 63U : place + format.bits - 1U)) & 1U;
    if (sign != 0 && !positive) number |= 1U << (format.bits - 1U);
    word |= number << place;
  }
  return word;
}

__global__ void fill_words(std::uint32_t* words, std::size_t count, Format format, bool positive, std::uint64_t seed) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    words[index] = word_of(mixed(index + seed), format, positive);
  }
}

__global__ void copy_blocks(const float4* from, float4* to, std::size_t count) {
  constexpr std::size_t kAtOnce = 4;
  const std::size_t stride = index_stride();
  std::size_t index = first_index();
  for (; index + (kAtOnce - 1) * stride < count; index += kAtOnce * stride) {
    float4 values[kAtOnce];
#pragma unroll
    for (std::size_t part = 0; part < kAtOnce; ++part) values[part] = from[index + part * stride];
#pragma unroll
    for (std::size_t part = 0; part < kAtOnce; ++part) to[index + part * stride] = values[part];
  }
  for (; index < count; index += stride) to[index] = from[index];
}

Format format_of(Factors factors) {
  switch (factors) {
    case Factors::kFloat32:
      return {0x3d800000U, 0x02000000U, 32};
    case Factors::kBfloat16:
      return {0x3d80U, 0x0200U, 16};
    case Factors::kFloat16:
      return {0x2c00U, 0x1000U, 16};
    case Factors::kFloat8:
      break;
  }
  return {0x18U, 0x20U, 8};  // e4m3
}

}  // namespace

void nothing(cudaStream_t stream) {
  queue("an empty kernel", do_nothing, 1, 1, stream);
}

void fill_random(void* to, std::size_t bytes, Factors factors, bool positive, std::uint64_t seed, cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(std::uint32_t);
  queue_over("fill_random", fill_words, count, stream, static_cast<std::uint32_t*>(to), count, format_of(factors),
             positive, seed);
}

void copy_on_channels(const void* from, void* to, std::size_t bytes, int channels, cudaStream_t stream) {
  if (bytes == 0) return;
  check(channels < 1
            ? cudaErrorInvalidValue
            : cudaFuncSetAttribute(copy_blocks, cudaFuncAttributeMaxDynamicSharedMemorySize, kChannelSharedBytes),
        "copy_on_channels");
  constexpr int kChannelThreads = 512;
  FLOPCAST_LAUNCH(copy_blocks, static_cast<unsigned>(channels), (kChannelThreads), kChannelSharedBytes, stream)
  (static_cast<const float4*>(from), static_cast<float4*>(to), bytes / sizeof(float4));
  check(cudaGetLastError(), "copy_on_channels");
}

}  // namespace flopcast::realrun::cuda
