#include <initializer_list>

#include "realrun/compute/cuda/attention_code.cuh"

// Attention on tensor cores with bfloat16 factors: tiles, softmax and its correction as in attention.cu, work
// distribution as in FlashAttention-2 (Dao 2307.08691, §3): each warp has 16 rows of a tile, and its results stay in
// registers as a factor of the next product. As in attention.cu, the backward pass recomputes the scores once for keys
// and values and once for queries. Written for compute capability 8.0, without newer features.

namespace flopcast::realrun::cuda {

namespace {

constexpr int kTensorThreads = 128;
constexpr int kRowsOfWarp = 16;
constexpr int kTensorRows = kTensorThreads / kWarp * kRowsOfWarp;  // rows of the tile that the warps share
constexpr float kLog2E = 1.44269504F;
constexpr int kColumns = 8;  // of a matrix of sums
// Blocks that share a multiprocessor and its 65536 registers.
constexpr int blocks_of(int width) {
  return width > 64 ? 2 : 3;
}

using Pairs = std::uint32_t;

/// A tile of bfloat16 in shared memory, two per word. Rows are padded by 16 bytes to avoid bank conflicts.
template <int kWidth>
struct Tile {
  static constexpr int kStride = (kWidth + 8) / 2;
  static constexpr std::size_t bytes(int rows) { return static_cast<std::size_t>(rows) * kStride * sizeof(Pairs); }

  Pairs* words;

  // Loads rows first … first + kRows - 1 of a matrix, with zeros beyond its bounds.
  template <int kRows>
  __device__ void load(const float* from, std::size_t stride, int first, int rows, int columns) const {
    constexpr int kFours = kWidth / 4;
#pragma unroll 2
    for (int index = static_cast<int>(threadIdx.x); index < kRows * kFours; index += kTensorThreads) {
      const int row = index / kFours;
      const int column = index % kFours * 4;
      const float* source = from + static_cast<std::size_t>(first + row) * stride + column;
      float4 values = {0.0F, 0.0F, 0.0F, 0.0F};
      if (first + row < rows && columns % 4 == 0) {
        if (column < columns) values = *reinterpret_cast<const float4*>(source);
      } else if (first + row < rows) {
        if (column < columns) values.x = source[0];
        if (column + 1 < columns) values.y = source[1];
        if (column + 2 < columns) values.z = source[2];
        if (column + 3 < columns) values.w = source[3];
      }
      Pairs* target = words + row * kStride + column / 2;
      target[0] = rounded_pair(values.x, values.y);
      target[1] = rounded_pair(values.z, values.w);
    }
  }
  // The 16 × 16 tile at that position, as the left factor.
  __device__ void left(Pairs (&tiles)[4], int row, int column) const {
    load_tiles(tiles, corner(row, column));
  }
  // 16 columns of 16 rows as the right factor, from the tile as stored: two matrices of 16 × 8.
  __device__ void right(Pairs (&tiles)[4], int row, int column) const {
    load_tiles_transposed(tiles, corner(row, column));
  }
  // The same from the transposed tile: its rows are columns of the factor.
  __device__ void right_of_transposed(Pairs (&tiles)[4], int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    load_tiles(tiles, words + (row + lane % 8 + lane / 16 * 8) * kStride + column / 2 + lane / 8 % 2 * 4);
  }

 private:
  __device__ const Pairs* corner(int row, int column) const {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    return words + (row + lane % 16) * kStride + column / 2 + lane / 16 * 4;
  }
};

// sums += left · rightᵀ: the left tile's 16 rows starting at `row`, and all columns of both.
template <int kWidth, int kJ>
__device__ void multiply_by_transposed(const Tile<kWidth>& left, int row, const Tile<kWidth>& right,
                                       float (&sums)[kJ][4]) {
#pragma unroll 1
  for (int k = 0; k < kWidth; k += 16) {
    Pairs a[4];
    left.left(a, row, k);
#pragma unroll
    for (int j = 0; j < kJ; j += 2) {
      Pairs b[4];
      right.right_of_transposed(b, j * kColumns, k);
      multiply_tiles(sums[j], a, b[0], b[1]);
      multiply_tiles(sums[j + 1], a, b[2], b[3]);
    }
  }
}

// sums += weights · right: the registers' contents from multiply_by_transposed(), rounded, times the rows of a tile.
template <int kWidth, int kJ>
__device__ void multiply_registers(const float (&weights)[kJ][4], const Tile<kWidth>& right,
                                   float (&sums)[kWidth / kColumns][4]) {
#pragma unroll
  for (int j = 0; j < kJ; j += 2) {
    const Pairs a[4] = {rounded_pair(weights[j][0], weights[j][1]), rounded_pair(weights[j][2], weights[j][3]),
                        rounded_pair(weights[j + 1][0], weights[j + 1][1]),
                        rounded_pair(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (int c = 0; c < kWidth / kColumns; c += 2) {
      Pairs b[4];
      right.right(b, j * kColumns, c * kColumns);
      multiply_tiles(sums[c], a, b[0], b[1]);
      multiply_tiles(sums[c + 1], a, b[2], b[3]);
    }
  }
}

// Reduces over the four lanes that hold a row.
template <class Operation>
__device__ float over_lanes(float value, Operation operation) {
  value = operation(value, __shfl_xor_sync(0xffffffffU, value, 1));
  return operation(value, __shfl_xor_sync(0xffffffffU, value, 2));
}

// Row of the warp's 16 that holds sum `place`.
__device__ int row_of(int place) {
  return static_cast<int>(threadIdx.x) % kWarp / 4 + (place >= 2 ? 8 : 0);
}
__device__ int column_of(int matrix, int place) {
  return matrix * kColumns + 2 * (static_cast<int>(threadIdx.x) % 4) + place % 2;
}

// Stores 16 rows of sums, each multiplied by its factor, restricted to `rows` and `columns`.
template <int kC>
__device__ void store_rows(const float (&sums)[kC][4], const float (&factors)[2], float* target, std::size_t stride,
                           int first, int rows, int columns) {
#pragma unroll
  for (int c = 0; c < kC; ++c) {
#pragma unroll
    for (int place = 0; place < 4; ++place) {
      const int row = first + row_of(place);
      const int column = column_of(c, place);
      if (row < rows && column < columns)
        target[static_cast<std::size_t>(row) * stride + column] = sums[c][place] * factors[place / 2];
    }
  }
}

template <int kWidth, int kKeys>
__global__ void __launch_bounds__(kTensorThreads, blocks_of(kWidth))
    tensor_forward(const float* qkv, float* output, float* logsumexp, AttentionSize size) {
  constexpr int kJ = kKeys / kColumns;
  FLOPCAST_DYNAMIC_SHARED(memory);
  const Tile<kWidth> queries{reinterpret_cast<Pairs*>(memory)};
  const Tile<kWidth> keys{queries.words + kTensorRows * Tile<kWidth>::kStride};
  const Tile<kWidth> values{keys.words + kKeys * Tile<kWidth>::kStride};
  const int own_row = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;
  const Head head = head_of(qkv, size, static_cast<int>(blockIdx.y));
  const float scale = head.scale * kLog2E;
  // Longest rows first, because they finish last.
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTensorRows;
  queries.template load<kTensorRows>(head.queries, head.stride, first_query, head.length, head.head_dim);
  Range seen[2];
  for (int half = 0; half < 2; ++half) seen[half] = head.seen_by(first_query + own_row + row_of(2 * half));
  float largest[2] = {kMasked, kMasked};  // largest score, as a power of two
  float sum[2] = {};
  float result[kWidth / kColumns][4] = {};
  const int end_key = head.end_seen(min(first_query + kTensorRows, head.length) - 1);
  for (int first_key = head.first_seen(first_query) / kKeys * kKeys; first_key < end_key; first_key += kKeys) {
    __syncthreads();
    keys.template load<kKeys>(head.keys, head.stride, first_key, head.length, head.head_dim);
    values.template load<kKeys>(head.values(), head.stride, first_key, head.length, head.head_dim);
    __syncthreads();
    float scores[kJ][4] = {};
    multiply_by_transposed(queries, own_row, keys, scores);
    float shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float of_tile = kMasked;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
#pragma unroll
        for (int place = 2 * half; place < 2 * half + 2; ++place) {
          scores[j][place] = seen[half].has(first_key + column_of(j, place)) ? scores[j][place] * scale : kMasked;
          of_tile = fmaxf(of_tile, scores[j][place]);
        }
      }
      const float now = fmaxf(largest[half], over_lanes(of_tile, Maximum{}));
      shrink[half] = exp2f(largest[half] - now);
      largest[half] = now;
      float added = 0.0F;
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
#pragma unroll
        for (int place = 2 * half; place < 2 * half + 2; ++place) {
          scores[j][place] = scores[j][place] == kMasked ? 0.0F : exp2f(scores[j][place] - now);
          added += scores[j][place];
        }
      }
      sum[half] = sum[half] * shrink[half] + over_lanes(added, Sum{});
    }
#pragma unroll
    for (int c = 0; c < kWidth / kColumns; ++c) {
#pragma unroll
      for (int place = 0; place < 4; ++place) result[c][place] *= shrink[place / 2];
    }
    multiply_registers<kWidth>(scores, values, result);
  }
  const float factors[2] = {1.0F / sum[0], 1.0F / sum[1]};
  const std::size_t stride = static_cast<std::size_t>(size.heads) * head.head_dim;
  store_rows(result, factors, output + head.first_row * stride + head.number * static_cast<std::size_t>(head.head_dim),
             stride, first_query + own_row, head.length, head.head_dim);
  const std::size_t place = (static_cast<std::size_t>(blockIdx.z) * size.heads + blockIdx.y) * head.length;
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + own_row + row_of(2 * half);
    if (query < head.length && threadIdx.x % 4 == 0)
      logsumexp[place + query] = (largest[half] + log2f(sum[half])) / kLog2E;
  }
}

// Computes the weight of a key for a query from their product, and the gradient of the score from that of the weight.
__device__ void weigh_rounded(float scale, float logsumexp, float projection, bool seen, float& score,
                              float& of_weight) {
  score = seen ? exp2f(score * scale - logsumexp * kLog2E) : 0.0F;
  of_weight = seen ? score * (of_weight - projection) : 0.0F;
}

template <int kWidth, int kQueries>
__global__ void __launch_bounds__(kTensorThreads, 2)
    tensor_key_value_gradient(const float* qkv, Given all, float* dqkv, AttentionSize size) {
  constexpr int kJ = kQueries / kColumns;
  FLOPCAST_DYNAMIC_SHARED(memory);
  const Tile<kWidth> keys{reinterpret_cast<Pairs*>(memory)};
  const Tile<kWidth> values{keys.words + kTensorRows * Tile<kWidth>::kStride};
  const Tile<kWidth> queries{values.words + kTensorRows * Tile<kWidth>::kStride};
  const Tile<kWidth> gradients{queries.words + kQueries * Tile<kWidth>::kStride};
  auto* logsumexp = reinterpret_cast<float*>(gradients.words + kQueries * Tile<kWidth>::kStride);
  float* projection = logsumexp + kQueries;
  const int own_row = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;
  // One block per key/value head: it sums over all query heads that read it.
  const int group = size.heads / size.kv_heads;
  const int first_head = static_cast<int>(blockIdx.y) * group;
  const Head any = head_of(qkv, size, first_head);
  const int first_key = static_cast<int>(blockIdx.x) * kTensorRows;
  keys.template load<kTensorRows>(any.keys, any.stride, first_key, any.length, any.head_dim);
  values.template load<kTensorRows>(any.values(), any.stride, first_key, any.length, any.head_dim);
  float of_keys[kWidth / kColumns][4] = {};
  float of_values[kWidth / kColumns][4] = {};
  const int first_query = size.causal ? first_key / kQueries * kQueries : 0;
  const int end_query = any.seen_from(min(first_key + kTensorRows, any.length) - 1).end;
  Range seers[2];
  for (int half = 0; half < 2; ++half) seers[half] = any.seen_from(first_key + own_row + row_of(2 * half));
  for (int number = first_head; number < first_head + group; ++number) {
    const Head head = head_of(qkv, size, number);
    const GivenRows given = rows_of_head(all, head, size);
    for (int first = first_query; first < end_query; first += kQueries) {
      __syncthreads();
      queries.template load<kQueries>(head.queries, head.stride, first, head.length, head.head_dim);
      gradients.template load<kQueries>(given.dy, given.dy_stride, first, head.length, head.head_dim);
      for (int row = static_cast<int>(threadIdx.x); row < kQueries; row += kTensorThreads) {
        const bool inside = first + row < head.length;
        logsumexp[row] = inside ? given.logsumexp[first + row] : 0.0F;
        projection[row] = inside ? given.projection[first + row] : 0.0F;
      }
      __syncthreads();
      // Keys are rows and queries are columns, because the following products sum over queries.
      float scores[kJ][4] = {};
      float of_weights[kJ][4] = {};
      multiply_by_transposed(keys, own_row, queries, scores);
      multiply_by_transposed(values, own_row, gradients, of_weights);
#pragma unroll
      for (int j = 0; j < kJ; ++j) {
#pragma unroll
        for (int place = 0; place < 4; ++place) {
          const int query = column_of(j, place);
          weigh_rounded(head.scale * kLog2E, logsumexp[query], projection[query], seers[place / 2].has(first + query),
                        scores[j][place], of_weights[j][place]);
        }
      }
      multiply_registers<kWidth>(scores, gradients, of_values);
      multiply_registers<kWidth>(of_weights, queries, of_keys);
    }
  }
  float* target = dqkv + (any.keys - qkv);
  const float scales[2] = {any.scale, any.scale};
  const float ones[2] = {1.0F, 1.0F};
  store_rows(of_keys, scales, target, any.stride, first_key + own_row, any.length, any.head_dim);
  store_rows(of_values, ones, target + any.head_dim, any.stride, first_key + own_row, any.length, any.head_dim);
}

template <int kWidth, int kKeys>
__global__ void __launch_bounds__(kTensorThreads, blocks_of(kWidth))
    tensor_query_gradient(const float* qkv, Given all, float* dqkv, AttentionSize size) {
  constexpr int kJ = kKeys / kColumns;
  FLOPCAST_DYNAMIC_SHARED(memory);
  const Tile<kWidth> queries{reinterpret_cast<Pairs*>(memory)};
  const Tile<kWidth> gradients{queries.words + kTensorRows * Tile<kWidth>::kStride};
  const Tile<kWidth> keys{gradients.words + kTensorRows * Tile<kWidth>::kStride};
  const Tile<kWidth> values{keys.words + kKeys * Tile<kWidth>::kStride};
  const int own_row = static_cast<int>(threadIdx.x) / kWarp * kRowsOfWarp;
  const Head head = head_of(qkv, size, static_cast<int>(blockIdx.y));
  const GivenRows given = rows_of_head(all, head, size);
  const int first_query = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kTensorRows;
  queries.template load<kTensorRows>(head.queries, head.stride, first_query, head.length, head.head_dim);
  gradients.template load<kTensorRows>(given.dy, given.dy_stride, first_query, head.length, head.head_dim);
  Range seen[2];
  float logsumexp[2] = {};
  float projection[2] = {};
  for (int half = 0; half < 2; ++half) {
    const int query = first_query + own_row + row_of(2 * half);
    seen[half] = head.seen_by(query);
    if (query < head.length) logsumexp[half] = given.logsumexp[query];
    if (query < head.length) projection[half] = given.projection[query];
  }
  float of_queries[kWidth / kColumns][4] = {};
  const int end_key = head.end_seen(min(first_query + kTensorRows, head.length) - 1);
  for (int first_key = head.first_seen(first_query) / kKeys * kKeys; first_key < end_key; first_key += kKeys) {
    __syncthreads();
    keys.template load<kKeys>(head.keys, head.stride, first_key, head.length, head.head_dim);
    values.template load<kKeys>(head.values(), head.stride, first_key, head.length, head.head_dim);
    __syncthreads();
    float scores[kJ][4] = {};
    float of_weights[kJ][4] = {};
    multiply_by_transposed(queries, own_row, keys, scores);
    multiply_by_transposed(gradients, own_row, values, of_weights);
#pragma unroll
    for (int j = 0; j < kJ; ++j) {
#pragma unroll
      for (int place = 0; place < 4; ++place) {
        weigh_rounded(head.scale * kLog2E, logsumexp[place / 2], projection[place / 2],
                      seen[place / 2].has(first_key + column_of(j, place)), scores[j][place], of_weights[j][place]);
      }
    }
    multiply_registers<kWidth>(of_weights, keys, of_queries);
  }
  const float scales[2] = {head.scale, head.scale};
  store_rows(of_queries, scales, dqkv + (head.queries - qkv), head.stride, first_query + own_row, head.length,
             head.head_dim);
}

template <int kWidth, int kKeys>
void queue_tensor_forward(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream) {
  queue_tiles("tensor_attention", tensor_forward<kWidth, kKeys>, grid_over(size.length, kTensorRows, size.heads, size),
              kTensorThreads, Tile<kWidth>::bytes(kTensorRows + 2 * kKeys), stream, qkv, output, logsumexp, size);
}

template <int kWidth, int kQueries, int kKeys>
void queue_tensor_gradients(const float* qkv, const Given& given, float* dqkv, AttentionSize size,
                            cudaStream_t stream) {
  queue_tiles("tensor_attention_gradient", tensor_key_value_gradient<kWidth, kQueries>,
              grid_over(size.length, kTensorRows, size.kv_heads, size), kTensorThreads,
              Tile<kWidth>::bytes(2 * kTensorRows + 2 * kQueries) + 2 * kQueries * sizeof(float), stream, qkv, given,
              dqkv, size);
  queue_tiles("tensor_attention_gradient", tensor_query_gradient<kWidth, kKeys>,
              grid_over(size.length, kTensorRows, size.heads, size), kTensorThreads,
              Tile<kWidth>::bytes(2 * kTensorRows + 2 * kKeys), stream, qkv, given, dqkv, size);
}

// Heads whose size is a multiple of four are loaded 16 bytes at a time.
void check_alignment(const char* name, AttentionSize size, std::initializer_list<const float*> loaded) {
  for (const float* matrix : loaded) {
    if (size.head_dim % 4 == 0 && reinterpret_cast<std::uintptr_t>(matrix) % sizeof(float4) != 0)
      check(cudaErrorMisalignedAddress, name);
  }
}

}  // namespace

void tensor_attention(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream) {
  check_alignment("tensor_attention", size, {qkv});
  if (size.head_dim <= 16) return queue_tensor_forward<16, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= 32) return queue_tensor_forward<32, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= 64) return queue_tensor_forward<64, 64>(qkv, output, logsumexp, size, stream);
  if (size.head_dim <= kLargestHead) return queue_tensor_forward<128, 64>(qkv, output, logsumexp, size, stream);
  check(cudaErrorInvalidValue, "tensor_attention");
}

void tensor_attention_gradient(const float* qkv, const float* output, const float* logsumexp, const float* dy,
                               float* projection, float* dqkv, AttentionSize size, cudaStream_t stream) {
  if (size.head_dim > kLargestHead) return check(cudaErrorInvalidValue, "tensor_attention_gradient");
  check_alignment("tensor_attention_gradient", size, {qkv, dy});
  queue_projection(output, dy, projection, size, stream);
  const Given given{logsumexp, dy, projection};
  if (size.head_dim <= 16) return queue_tensor_gradients<16, 64, 64>(qkv, given, dqkv, size, stream);
  if (size.head_dim <= 32) return queue_tensor_gradients<32, 32, 64>(qkv, given, dqkv, size, stream);
  if (size.head_dim <= 64) return queue_tensor_gradients<64, 32, 64>(qkv, given, dqkv, size, stream);
  queue_tensor_gradients<128, 16, 32>(qkv, given, dqkv, size, stream);
}

}  // namespace flopcast::realrun::cuda
