#include "realrun/compute/cuda/attention_code.cuh"

// Attention that keeps tiles of scores in shared memory and updates the softmax incrementally (Dao et al. 2205.14135,
// algorithm 1; Milakov & Gimelshein 1805.02867). The backward pass recomputes the scores twice, once for the gradients
// of keys and values and once for those of the queries, so that no two blocks add to the same address. 32-bit
// arithmetic.
//
// A block has 16 × 16 threads. Thread (x, y) handles rows y, y + 16, … and columns x, x + 16, … of each tile.

namespace flopcast::realrun::cuda {

namespace {

constexpr int kSide = 16;
constexpr int kPad = 4;           // aligns rows for 16-byte loads, and avoids bank conflicts
constexpr int kWidestOfTwo = 64;  // widest heads for which two blocks share a multiprocessor

// Loads rows first … first + kRows - 1 of a matrix into shared memory, with zeros beyond its bounds.
template <int kWidth, int kRows>
__device__ void load_tile(float* tile, const float* from, std::size_t stride, int first, int rows, int columns) {
  for (int index = static_cast<int>(threadIdx.x); index < kRows * kWidth; index += kSide * kSide) {
    const int row = index / kWidth;
    const int column = index % kWidth;
    const bool inside = first + row < rows && column < columns;
    tile[row * (kWidth + kPad) + column] =
        inside ? from[static_cast<std::size_t>(first + row) * stride + column] : 0.0F;
  }
}

// scores += a · bᵀ, both tiles of kWidth columns.
template <int kWidth, int kI, int kJ>
__device__ void multiply_rows(const float* a, const float* b, int x, int y, float (&scores)[kI][kJ]) {
  for (int k = 0; k < kWidth; k += 4) {
    float4 left[kI];
    float4 right[kJ];
#pragma unroll
    for (int i = 0; i < kI; ++i) left[i] = *reinterpret_cast<const float4*>(a + (y + kSide * i) * (kWidth + kPad) + k);
#pragma unroll
    for (int j = 0; j < kJ; ++j) right[j] = *reinterpret_cast<const float4*>(b + (x + kSide * j) * (kWidth + kPad) + k);
#pragma unroll
    for (int i = 0; i < kI; ++i) {
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        scores[i][j] +=
            left[i].x * right[j].x + left[i].y * right[j].y + left[i].z * right[j].z + left[i].w * right[j].w;
      }
    }
  }
}

// sums += weights · rows, over the kInner rows of a tile of kWidth columns. The stride between weights is kDown along
// the rows of the sums, and kAlong along the summed index.
template <int kInner, int kWidth, int kDown, int kAlong, int kI, int kC>
__device__ void multiply_columns(const float* weights, const float* rows, int x, int y, float (&sums)[kI][kC]) {
  for (int k = 0; k < kInner; ++k) {
    float left[kI];
    float right[kC];
#pragma unroll
    for (int i = 0; i < kI; ++i) left[i] = weights[(y + kSide * i) * kDown + k * kAlong];
#pragma unroll
    for (int c = 0; c < kC; ++c) right[c] = rows[k * (kWidth + kPad) + x + kSide * c];
#pragma unroll
    for (int i = 0; i < kI; ++i) {
#pragma unroll
      for (int c = 0; c < kC; ++c) sums[i][c] += left[i] * right[c];
    }
  }
}

// Reduces over the 16 threads of a row.
template <class Operation>
__device__ float over_row(float value, Operation operation) {
  for (int offset = kSide / 2; offset > 0; offset /= 2) {
    value = operation(value, __shfl_xor_sync(0xffffffffU, value, offset));
  }
  return value;
}

template <int kWidth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kSide* kSide, kWidth > kWidestOfTwo ? 1 : 2)
    forward(const float* qkv, float* output, float* logsumexp, AttentionSize size) {
  constexpr int kI = kQueries / kSide;
  constexpr int kJ = kKeys / kSide;
  constexpr int kC = kWidth / kSide;
  FLOPCAST_DYNAMIC_SHARED(memory);
  float* queries = memory;
  float* keys = queries + kQueries * (kWidth + kPad);
  float* values = keys + kKeys * (kWidth + kPad);
  float* weights = values + kKeys * (kWidth + kPad);
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  const Head head = head_of(qkv, size, static_cast<int>(blockIdx.y));
  // Longest rows first, because they finish last.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  load_tile<kWidth, kQueries>(queries, head.queries, head.stride, first_query, head.length, head.head_dim);
  float largest[kI];
  float sum[kI] = {};
  float result[kI][kC] = {};
  for (int i = 0; i < kI; ++i) largest[i] = kMasked;
  const int end_key = head.end_seen(min(first_query + kQueries, head.length) - 1);
  for (int first_key = head.first_seen(first_query) / kKeys * kKeys; first_key < end_key; first_key += kKeys) {
    __syncthreads();
    load_tile<kWidth, kKeys>(keys, head.keys, head.stride, first_key, head.length, head.head_dim);
    load_tile<kWidth, kKeys>(values, head.values(), head.stride, first_key, head.length, head.head_dim);
    __syncthreads();
    float scores[kI][kJ] = {};
    multiply_rows<kWidth>(queries, keys, x, y, scores);
#pragma unroll
    for (int i = 0; i < kI; ++i) {
      const Range seen = head.seen_by(first_query + y + kSide * i);
      float of_tile = kMasked;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        const int key = first_key + x + kSide * j;
        scores[i][j] = seen.has(key) ? scores[i][j] * head.scale : kMasked;
        of_tile = fmaxf(of_tile, scores[i][j]);
      }
      const float now = fmaxf(largest[i], over_row(of_tile, Maximum{}));
      const float shrink = expf(largest[i] - now);
      largest[i] = now;
      float added = 0.0F;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
        const float weight = scores[i][j] == kMasked ? 0.0F : expf(scores[i][j] - now);
        weights[(y + kSide * i) * (kKeys + kPad) + x + kSide * j] = weight;
        added += weight;
      }
      sum[i] = sum[i] * shrink + over_row(added, Sum{});
#pragma unroll
      for (int c = 0; c < kC; ++c) result[i][c] *= shrink;
    }
    __syncthreads();
    multiply_columns<kKeys, kWidth, kKeys + kPad, 1>(weights, values, x, y, result);
  }
  for (int i = 0; i < kI; ++i) {
    const int query = first_query + y + kSide * i;
    if (query >= head.length) continue;
    const std::size_t row = static_cast<std::size_t>(head.first_row) + query;
    float* target = output + (row * size.heads + blockIdx.y) * head.head_dim;
    for (int c = 0; c < kC; ++c) {
      if (x + kSide * c < head.head_dim) target[x + kSide * c] = result[i][c] / sum[i];
    }
    const std::size_t place = (static_cast<std::size_t>(blockIdx.z) * size.heads + blockIdx.y) * head.length + query;
    if (x == 0) logsumexp[place] = largest[i] + logf(sum[i]);
  }
}

// dy · y of every row and head: the term that the softmax subtracts from the gradient of the scores. One warp each.
__global__ void project(const float* output, const float* dy, float* projection, AttentionSize size) {
  const int row = static_cast<int>(blockIdx.x);
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (int first = 0; first < size.heads; first += warps) {
    const int head = first + static_cast<int>(threadIdx.x) / kWarp;
    const bool exists = head < size.heads;
    float sum = 0.0F;
    for (int column = lane; exists && column < size.head_dim; column += kWarp) {
      const std::size_t index = (static_cast<std::size_t>(row) * size.heads + head) * size.head_dim + column;
      sum += output[index] * dy[index];
    }
    for (int offset = kWarp / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, offset);
    const int sequence = row / size.length;
    if (exists && lane == 0) {
      projection[(static_cast<std::size_t>(sequence) * size.heads + head) * size.length + row % size.length] = sum;
    }
  }
}

/// Tiles in shared memory, for both kernels of the backward pass.
struct GradientTiles {
  const float* queries;
  const float* keys;
  const float* gradients;  // of the output
  const float* values;
};

// Computes, from the products q · k and dy · v, the weights of the tile's keys for its queries, unless `weights` is
// null, and the gradients of their scores.
template <int kWidth, int kQueries, int kKeys>
__device__ void weigh(const GradientTiles& tiles, const Head& head, const GivenRows& given, int first_query,
                      int first_key, float* weights, float* of_scores) {
  constexpr int kI = kQueries / kSide;
  constexpr int kJ = kKeys / kSide;
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  float scores[kI][kJ] = {};
  float of_weights[kI][kJ] = {};
  multiply_rows<kWidth>(tiles.queries, tiles.keys, x, y, scores);
  multiply_rows<kWidth>(tiles.gradients, tiles.values, x, y, of_weights);
#pragma unroll
  for (int i = 0; i < kI; ++i) {
    const int query = first_query + y + kSide * i;
    const Range seen = head.seen_by(query);
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
      const int place = (y + kSide * i) * (kKeys + kPad) + x + kSide * j;
      const bool sees = seen.has(first_key + x + kSide * j);
      const float weight = sees ? expf(scores[i][j] * head.scale - given.logsumexp[query]) : 0.0F;
      if (weights != nullptr) weights[place] = weight;
      of_scores[place] = sees ? weight * (of_weights[i][j] - given.projection[query]) : 0.0F;
    }
  }
}

template <int kWidth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kSide* kSide, kWidth > kWidestOfTwo ? 1 : 2)
    key_value_gradient(const float* qkv, Given all, float* dqkv, AttentionSize size) {
  constexpr int kJ = kKeys / kSide;
  constexpr int kC = kWidth / kSide;
  FLOPCAST_DYNAMIC_SHARED(memory);
  float* keys = memory;
  float* values = keys + kKeys * (kWidth + kPad);
  float* queries = values + kKeys * (kWidth + kPad);
  float* gradients = queries + kQueries * (kWidth + kPad);
  float* weights = gradients + kQueries * (kWidth + kPad);
  float* of_scores = weights + kQueries * (kKeys + kPad);
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  // One block per key/value head: it sums over all query heads that read it.
  const int group = size.heads / size.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const Head any = head_of(qkv, size, first_head);
  const int first_key = static_cast<int>(blockIdx.x) * kKeys;
  load_tile<kWidth, kKeys>(keys, any.keys, any.stride, first_key, any.length, any.head_dim);
  load_tile<kWidth, kKeys>(values, any.values(), any.stride, first_key, any.length, any.head_dim);
  float of_keys[kJ][kC] = {};
  float of_values[kJ][kC] = {};
  const int first_query = size.causal ? first_key / kQueries * kQueries : 0;
  for (int number = first_head; number < first_head + group; ++number) {
    const Head head = head_of(qkv, size, number);
    const GivenRows given = rows_of_head(all, head, size);
    for (int first = first_query; first < head.length; first += kQueries) {
      __syncthreads();
      load_tile<kWidth, kQueries>(queries, head.queries, head.stride, first, head.length, head.head_dim);
      load_tile<kWidth, kQueries>(gradients, given.dy, given.dy_stride, first, head.length, head.head_dim);
      __syncthreads();
      weigh<kWidth, kQueries, kKeys>({queries, keys, gradients, values}, head, given, first, first_key, weights,
                                     of_scores);
      __syncthreads();
      multiply_columns<kQueries, kWidth, 1, kKeys + kPad>(weights, gradients, x, y, of_values);
      multiply_columns<kQueries, kWidth, 1, kKeys + kPad>(of_scores, queries, x, y, of_keys);
    }
  }
  float* target = dqkv + (any.keys - qkv);
  for (int j = 0; j < kJ; ++j) {
    const int key = first_key + y + kSide * j;
    if (key >= any.length) continue;
    float* row = target + static_cast<std::size_t>(key) * any.stride;
    for (int c = 0; c < kC; ++c) {
      const int column = x + kSide * c;
      if (column >= any.head_dim) continue;
      row[column] = of_keys[j][c] * any.scale;
      row[any.head_dim + column] = of_values[j][c];
    }
  }
}

template <int kWidth, int kQueries, int kKeys>
__global__ void __launch_bounds__(kSide* kSide, kWidth > kWidestOfTwo ? 1 : 2)
    query_gradient(const float* qkv, Given all, float* dqkv, AttentionSize size) {
  constexpr int kI = kQueries / kSide;
  constexpr int kC = kWidth / kSide;
  FLOPCAST_DYNAMIC_SHARED(memory);
  float* queries = memory;
  float* gradients = queries + kQueries * (kWidth + kPad);
  float* keys = gradients + kQueries * (kWidth + kPad);
  float* values = keys + kKeys * (kWidth + kPad);
  float* of_scores = values + kKeys * (kWidth + kPad);
  const int x = static_cast<int>(threadIdx.x) % kSide;
  const int y = static_cast<int>(threadIdx.x) / kSide;
  const Head head = head_of(qkv, size, static_cast<int>(blockIdx.y));
  const GivenRows given = rows_of_head(all, head, size);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kQueries;
  load_tile<kWidth, kQueries>(queries, head.queries, head.stride, first_query, head.length, head.head_dim);
  load_tile<kWidth, kQueries>(gradients, given.dy, given.dy_stride, first_query, head.length, head.head_dim);
  float of_queries[kI][kC] = {};
  const int end_key = head.end_seen(min(first_query + kQueries, head.length) - 1);
  for (int first_key = head.first_seen(first_query) / kKeys * kKeys; first_key < end_key; first_key += kKeys) {
    __syncthreads();
    load_tile<kWidth, kKeys>(keys, head.keys, head.stride, first_key, head.length, head.head_dim);
    load_tile<kWidth, kKeys>(values, head.values(), head.stride, first_key, head.length, head.head_dim);
    __syncthreads();
    weigh<kWidth, kQueries, kKeys>({queries, keys, gradients, values}, head, given, first_query, first_key, nullptr,
                                   of_scores);
    __syncthreads();
    multiply_columns<kKeys, kWidth, kKeys + kPad, 1>(of_scores, keys, x, y, of_queries);
  }
  float* target = dqkv + (head.queries - qkv);
  for (int i = 0; i < kI; ++i) {
    const int query = first_query + y + kSide * i;
    if (query >= head.length) continue;
    float* row = target + static_cast<std::size_t>(query) * head.stride;
    for (int c = 0; c < kC; ++c) {
      if (x + kSide * c < head.head_dim) row[x + kSide * c] = of_queries[i][c] * head.scale;
    }
  }
}

template <int kWidth, int kQueries, int kKeys>
void queue_forward(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream) {
  constexpr std::size_t kFloats = (kQueries + 2 * kKeys) * (kWidth + kPad) + kQueries * (kKeys + kPad);
  queue_tiles("attention", forward<kWidth, kQueries, kKeys>, grid_over(size.length, kQueries, size.heads, size),
              kSide * kSide, kFloats * sizeof(float), stream, qkv, output, logsumexp, size);
}

// Shared memory of the larger of the two backward kernels.
template <int kWidth, int kQueries, int kKeys>
constexpr std::size_t gradient_floats() {
  return 2 * (kQueries + kKeys) * (kWidth + kPad) + 2 * kQueries * (kKeys + kPad);
}

// True if a block can use that much shared memory: 163 KiB on compute capability 8.0, 227 KiB on 9.0, but 99 KiB on 8.6
// and 8.9.
bool can_share(std::size_t floats) {
  int device = 0;
  int limit = 0;
  check(cudaGetDevice(&device), "attention_gradient");
  check(cudaDeviceGetAttribute(&limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "attention_gradient");
  return floats * sizeof(float) <= static_cast<std::size_t>(limit);
}

template <int kWidth, int kQueries, int kKeys>
void queue_gradients(const float* qkv, const Given& given, float* dqkv, AttentionSize size, cudaStream_t stream) {
  // Tiles of keys are as wide as the tiles of queries in the other kernel.
  queue_tiles("attention_gradient", key_value_gradient<kWidth, kQueries, kKeys>,
              grid_over(size.length, kKeys, size.kv_heads, size), kSide * kSide,
              gradient_floats<kWidth, kQueries, kKeys>() * sizeof(float), stream, qkv, given, dqkv, size);
  constexpr std::size_t kFewer = 2 * (kQueries + kKeys) * (kWidth + kPad) + kKeys * (kQueries + kPad);
  queue_tiles("attention_gradient", query_gradient<kWidth, kKeys, kQueries>,
              grid_over(size.length, kKeys, size.heads, size), kSide * kSide, kFewer * sizeof(float), stream, qkv,
              given, dqkv, size);
}

}  // namespace

void queue_projection(const float* output, const float* dy, float* projection, AttentionSize size,
                      cudaStream_t stream) {
  constexpr int kProjectThreads = 128;
  queue("attention_gradient", project, static_cast<unsigned>(size.sequences * size.length), kProjectThreads, stream,
        output, dy, projection, size);
}

void attention(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream) {
  if (size.head_dim <= 16) return queue_forward<16, 64, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= 32) return queue_forward<32, 64, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= 64) return queue_forward<64, 64, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= kLargestHead) return queue_forward<128, 64, 32>(qkv, output, logsumexp, size, stream);
  check(cudaErrorInvalidValue, "attention");
}

void attention_gradient(const float* qkv, const float* output, const float* logsumexp, const float* dy,
                        float* projection, float* dqkv, AttentionSize size, cudaStream_t stream) {
  if (size.head_dim > kLargestHead) return check(cudaErrorInvalidValue, "attention_gradient");
  queue_projection(output, dy, projection, size, stream);
  const Given given{logsumexp, dy, projection};
  if (size.head_dim <= 16) return queue_gradients<16, 64, 64>(qkv, given, dqkv, size, stream);
  if (size.head_dim <= 32) return queue_gradients<32, 64, 64>(qkv, given, dqkv, size, stream);
  if (size.head_dim <= 64) return queue_gradients<64, 32, 32>(qkv, given, dqkv, size, stream);
  if (can_share(gradient_floats<128, 32, 64>())) return queue_gradients<128, 32, 64>(qkv, given, dqkv, size, stream);
  queue_gradients<128, 32, 32>(qkv, given, dqkv, size, stream);
}

}  // namespace flopcast::realrun::cuda
