#pragma once

#include "realrun/compute/cuda/device_code.cuh"

// Head layout and masks shared by the attention kernels in 32-bit arithmetic (attention.cu) and on tensor cores
// (tensor_attention.cu).

namespace flopcast::realrun::cuda {

inline constexpr float kMasked = -1e30F;

/// Half-open range of the keys that a query sees, or of the queries that see a key.
struct Range {
  int first = 0;
  int end = 0;

  __device__ bool has(int place) const { return place >= first && place < end; }
};

/// Location of one query head of one sequence, and of the key/value head it reads. Key and value are adjacent.
struct Head {
  const float* queries;
  const float* keys;
  std::size_t stride;  // elements between rows, of queries and keys alike
  int number;          // index among the query heads
  int first_row;       // first row of the sequence
  int head_dim;
  int length;
  float scale;
  AttentionSize size;

  __device__ const float* values() const { return keys + head_dim; }
  // First key that a query sees; end_seen() is one past the last.
  __device__ int first_seen(int query) const {
    if (size.chunk > 0) return query / size.chunk * size.chunk;
    return size.window > 0 ? max(0, query + 1 - size.window) : 0;
  }
  __device__ int end_seen(int query) const { return size.causal ? min(query + 1, length) : length; }
  // Empty if there is no such query.
  __device__ Range seen_by(int query) const {
    return query < length ? Range{first_seen(query), end_seen(query)} : Range{};
  }
  // Empty if there is no such key.
  __device__ Range seen_from(int key) const {
    if (key >= length) return {};
    const int first = size.causal ? key : 0;
    if (size.chunk > 0) return {first, min(length, (key / size.chunk + 1) * size.chunk)};
    return {first, size.window > 0 ? min(length, key + size.window) : length};
  }
};

inline __device__ Head head_of(const float* qkv, AttentionSize size, int number) {
  const auto sequence = static_cast<int>(blockIdx.z);
  const int group = size.heads / size.kv_heads;
  const std::size_t width = static_cast<std::size_t>(group + 2) * size.head_dim;
  const std::size_t stride = width * size.kv_heads;
  const float* first = qkv + static_cast<std::size_t>(sequence) * size.length * stride +
                       static_cast<std::size_t>(number / group) * width;
  return {first + static_cast<std::size_t>(number % group) * size.head_dim,
          first + static_cast<std::size_t>(group) * size.head_dim,
          stride,
          number,
          sequence * size.length,
          size.head_dim,
          size.length,
          rsqrtf(static_cast<float>(size.head_dim)),
          size};
}

/// Inputs of the backward pass besides qkv.
struct Given {
  const float* logsumexp;
  const float* dy;
  const float* projection;
};

/// Rows of one head within these inputs.
struct GivenRows {
  const float* logsumexp;
  const float* projection;
  const float* dy;
  std::size_t dy_stride;
};

inline __device__ GivenRows rows_of_head(const Given& given, const Head& head, AttentionSize size) {
  const std::size_t place = (static_cast<std::size_t>(blockIdx.z) * size.heads + head.number) * head.length;
  const std::size_t stride = static_cast<std::size_t>(size.heads) * head.head_dim;
  return {given.logsumexp + place, given.projection + place,
          given.dy + head.first_row * stride + head.number * static_cast<std::size_t>(head.head_dim), stride};
}

inline dim3 grid_over(int rows, int tile, int heads, AttentionSize size) {
  return dim3(static_cast<unsigned>((rows + tile - 1) / tile), static_cast<unsigned>(heads),
              static_cast<unsigned>(size.sequences));
}

// A block gets more than 48 KiB of shared memory only on request.
template <class... Parameters, class... Arguments>
void queue_tiles(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t bytes,
                 cudaStream_t stream, Arguments... arguments) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
  FLOPCAST_LAUNCH(kernel, grid, threads, bytes, stream)(arguments...);
  check(cudaGetLastError(), name);
}

/// dy · y of every row and head: the term that the softmax subtracts from the gradient of the scores.
void queue_projection(const float* output, const float* dy, float* projection, AttentionSize size, cudaStream_t stream);

}  // namespace flopcast::realrun::cuda
