#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <initializer_list>

#include "realrun/compute/cuda/device_code.cuh"

namespace flopcast::realrun::cuda {

namespace {

// Element-wise kernels process four elements at a time, so that a thread loads and stores 16 bytes (CUDA best practices
// guide, Coalesced Access to Global Memory), and the remainder one by one.
constexpr std::size_t kVector = 4;

template <class T>
struct alignas(kVector * sizeof(T)) Vector {
  T values[kVector];
};

bool is_aligned(const void* address, std::size_t bytes) {
  return reinterpret_cast<std::uintptr_t>(address) % bytes == 0;
}

template <class To>
std::size_t vectors_in(std::size_t count, std::initializer_list<const float*> inputs, const To* output) {
  bool aligned = is_aligned(output, sizeof(Vector<To>));
  for (const float* input : inputs) aligned = aligned && is_aligned(input, sizeof(Vector<float>));
  return aligned ? count / kVector : 0;
}

template <class To, class Function, class... Given>
__device__ Vector<To> over_parts(Function function, Given... given) {
  Vector<To> result;
  for (std::size_t part = 0; part < kVector; ++part) result.values[part] = function(given.values[part]...);
  return result;
}

// result = function(inputs)
template <class To, class Function, class... Inputs>
__global__ void apply(To* result, std::size_t count, std::size_t vectors, Function function, Inputs... inputs) {
  auto* wide_result = reinterpret_cast<Vector<To>*>(result);
  for (std::size_t index = first_index(); index < vectors; index += index_stride()) {
    wide_result[index] = over_parts<To>(function, reinterpret_cast<const Vector<float>*>(inputs)[index]...);
  }
  for (std::size_t index = vectors * kVector + first_index(); index < count; index += index_stride()) {
    result[index] = function(inputs[index]...);
  }
}

template <class To, class Function, class... Inputs>
void queue_each(const char* name, To* result, std::size_t count, cudaStream_t stream, Function function,
                Inputs... inputs) {
  const std::size_t vectors = vectors_in(count, {inputs...}, result);
  // Enough threads for the vectors, and for the remainder.
  const std::size_t threads = std::max(vectors, count - vectors * kVector);
  queue_over(name, apply<To, Function, Inputs...>, threads, stream, result, count, vectors, function, inputs...);
}

struct GeluValue {
  __device__ float operator()(float x) const { return GeluPoint<float>(x).value(); }
};
struct GeluGradient {
  __device__ float operator()(float dy, float x) const { return dy * GeluPoint<float>(x).derivative(); }
};
struct Rounded {
  __device__ __nv_bfloat16 operator()(float x) const { return __float2bfloat16_rn(x); }
};

__global__ void draw_kernel(Draw draw, float* values, std::size_t count) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) values[index] = draw.at(index);
}

// One block per row, here and below: elements need no division to find their row.
__global__ void add_bias_rows(const float* x, const float* bias, float* y, std::size_t columns) {
  const std::size_t start = blockIdx.x * columns;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    y[start + column] = x[start + column] + bias[column];
  }
}

}  // namespace

void draw(const Draw& draw, float* values, std::size_t count, cudaStream_t stream) {
  queue_over("draw", draw_kernel, count, stream, draw, values, count);
}

void add(const float* a, const float* b, float* sum, std::size_t count, cudaStream_t stream) {
  queue_each("add", sum, count, stream, Sum{}, a, b);
}

void add_bias(const float* x, const float* bias, float* y, Extent extent, cudaStream_t stream) {
  queue_rows("add_bias", add_bias_rows, extent, stream, x, bias, y, extent.columns);
}

void gelu(const float* x, float* y, std::size_t count, cudaStream_t stream) {
  queue_each("gelu", y, count, stream, GeluValue{}, x);
}

void gelu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream) {
  queue_each("gelu_gradient", dx, count, stream, GeluGradient{}, dy, x);
}

namespace {

__global__ void gated_silu_pairs(const float* x, float* y, std::size_t count) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) gated_silu_at(x, y, index);
}

__global__ void gated_silu_gradient_pairs(const float* dy, const float* x, float* dx, std::size_t count) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    gated_silu_gradient_at(dy, x, dx, index);
  }
}

__global__ void copy_rows(const float* from, std::size_t from_stride, float* to, std::size_t to_stride,
                          std::size_t columns) {
  const std::size_t row = blockIdx.x;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    to[row * to_stride + column] = from[row * from_stride + column];
  }
}

}  // namespace

void gated_silu(const float* x, float* y, std::size_t count, cudaStream_t stream) {
  queue_over("gated_silu", gated_silu_pairs, count, stream, x, y, count);
}

void gated_silu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream) {
  queue_over("gated_silu_gradient", gated_silu_gradient_pairs, count, stream, dy, x, dx, count);
}

void copy_rectangle(const float* from, std::size_t from_stride, float* to, std::size_t to_stride, Extent extent,
                    cudaStream_t stream) {
  queue_rows("copy_rectangle", copy_rows, extent, stream, from, from_stride, to, to_stride, extent.columns);
}

void to_bfloat16(const float* x, void* y, std::size_t count, cudaStream_t stream) {
  queue_each("to_bfloat16", static_cast<__nv_bfloat16*>(y), count, stream, Rounded{}, x);
}

namespace {

constexpr int kFloat8Tile = 32;
static_assert(kFloat8Scratch == kThreads);

// Largest magnitude seen by each block.
__global__ void magnitudes(const float* x, float* of_block, std::size_t count) {
  float largest = 0.0F;
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    largest = fmaxf(largest, fabsf(x[index]));
  }
  largest = over_block(largest, 0.0F, Maximum{});
  if (threadIdx.x == 0) of_block[blockIdx.x] = largest;
}

// One block per tile, which passes through shared memory if it is transposed.
__global__ void round_to_float8(const float* x, Extent extent, Float8Format format, const float* of_block,
                                unsigned blocks, std::uint8_t* y, float* scale) {
  constexpr float kSmallest = 1e-30F;  // smallest magnitude that is scaled up
  __shared__ std::uint8_t tile[kFloat8Tile][kFloat8Tile + 1];
  const float largest = over_block(threadIdx.x < blocks ? of_block[threadIdx.x] : 0.0F, 0.0F, Maximum{});
  // Largest finite values of the two formats (OCP 8-bit Floating Point Specification, table 1).
  const float most = format.wide ? 57344.0F : 448.0F;
  const float factor = largest > kSmallest ? most / largest : 1.0F;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scale = 1.0F / factor;
  const std::size_t first_row = static_cast<std::size_t>(blockIdx.y) * kFloat8Tile;
  const std::size_t first_column = static_cast<std::size_t>(blockIdx.x) * kFloat8Tile;
  const int inner = static_cast<int>(threadIdx.x) % kFloat8Tile;
  const int outer = static_cast<int>(threadIdx.x) / kFloat8Tile;
  for (int row = outer; row < kFloat8Tile; row += kThreads / kFloat8Tile) {
    if (first_row + row >= extent.rows || first_column + inner >= extent.columns) continue;
    const std::size_t place = (first_row + row) * extent.columns + first_column + inner;
    const std::uint8_t value =
        __nv_cvt_float_to_fp8(x[place] * factor, __NV_SATFINITE, format.wide ? __NV_E5M2 : __NV_E4M3);
    (format.flips ? tile[row][inner] : y[place]) = value;
  }
  if (!format.flips) return;
  __syncthreads();
  for (int column = outer; column < kFloat8Tile; column += kThreads / kFloat8Tile) {
    if (first_column + column >= extent.columns || first_row + inner >= extent.rows) continue;
    y[(first_column + column) * extent.rows + first_row + inner] = tile[inner][column];
  }
}

}  // namespace

void to_float8(const float* x, Extent extent, Float8Format format, float* scratch, void* y, float* scale,
               cudaStream_t stream) {
  if (extent.size() == 0) return;
  const unsigned blocks = std::min(blocks_for(extent.size()), static_cast<unsigned>(kFloat8Scratch));
  queue("to_float8", magnitudes, blocks, kThreads, stream, x, scratch, extent.size());
  const dim3 tiles(static_cast<unsigned>((extent.columns + kFloat8Tile - 1) / kFloat8Tile),
                   static_cast<unsigned>((extent.rows + kFloat8Tile - 1) / kFloat8Tile));
  queue("to_float8", round_to_float8, tiles, kThreads, stream, x, extent, format, scratch, blocks,
        static_cast<std::uint8_t*>(y), scale);
}

namespace {

constexpr int kColumns = 32;
constexpr int kRowThreads = 8;
constexpr std::size_t kRowsOfAChunk = 256;

std::size_t chunks_of(std::size_t rows) {
  return std::max<std::size_t>(1, (rows + kRowsOfAChunk - 1) / kRowsOfAChunk);
}

// A block sums one chunk of rows in 32 columns.
__global__ void sum_chunks(const float* x, const float* factor, float* partial, Extent extent) {
  __shared__ float sums[kRowThreads][kColumns];
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kColumns + threadIdx.x;
  const std::size_t first = static_cast<std::size_t>(blockIdx.y) * kRowsOfAChunk;
  const std::size_t last = min(first + kRowsOfAChunk, extent.rows);
  float sum = 0.0F;
  if (column < extent.columns) {
    for (std::size_t row = first + threadIdx.y; row < last; row += kRowThreads) {
      const std::size_t index = row * extent.columns + column;
      sum += factor == nullptr ? x[index] : x[index] * factor[index];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= extent.columns) return;
  for (int row = 1; row < kRowThreads; ++row) sum += sums[row][threadIdx.x];
  partial[blockIdx.y * extent.columns + column] = sum;
}

__global__ void add_chunks(const float* partial, std::size_t chunks, float* sums, std::size_t columns) {
  for (std::size_t column = first_index(); column < columns; column += index_stride()) {
    float sum = 0.0F;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) sum += partial[chunk * columns + column];
    sums[column] += sum;
  }
}

}  // namespace

std::size_t column_scratch(Extent extent) {
  return chunks_of(extent.rows) * extent.columns;
}

void add_up_rows(const float* x, const float* factor, float* sums, Extent extent, float* scratch, cudaStream_t stream) {
  if (extent.size() == 0) return;
  const std::size_t chunks = chunks_of(extent.rows);
  const dim3 grid(static_cast<unsigned>((extent.columns + kColumns - 1) / kColumns), static_cast<unsigned>(chunks));
  queue("add_up_rows", sum_chunks, grid, dim3(kColumns, kRowThreads), stream, x, factor, scratch, extent);
  queue_over("add_up_rows", add_chunks, extent.columns, stream, scratch, chunks, sums, extent.columns);
}

namespace {

constexpr float kEpsilon = 1e-5F;

// One block per row.
__global__ void normalise_rows(const float* x, const float* gain, const float* bias, float* normalised, float* scale,
                               float* y, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* input = x + row * columns;
  const auto width = static_cast<float>(columns);
  float mean = 0.0F;
  if (bias != nullptr) {
    for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) mean += input[column];
    mean = over_block(mean, 0.0F, Sum{}) / width;
  }
  float squares = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float distance = input[column] - mean;
    squares += distance * distance;
  }
  const float factor = 1.0F / sqrtf(over_block(squares, 0.0F, Sum{}) / width + kEpsilon);
  if (threadIdx.x == 0) scale[row] = factor;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float value = (input[column] - mean) * factor;
    normalised[row * columns + column] = value;
    y[row * columns + column] = gain[column] * value + (bias == nullptr ? 0.0F : bias[column]);
  }
}

__global__ void input_gradient_rows(const float* dy, const float* normalised, const float* scale, const float* gain,
                                    bool centred, float* dx, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* given = dy + row * columns;
  const float* value = normalised + row * columns;
  const auto width = static_cast<float>(columns);
  float sum = 0.0F;
  float projection = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float scaled = given[column] * gain[column];
    sum += scaled;
    projection += scaled * value[column];
  }
  sum = centred ? over_block(sum, 0.0F, Sum{}) / width : 0.0F;
  projection = over_block(projection, 0.0F, Sum{}) / width;
  const float factor = scale[row];
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    dx[row * columns + column] = factor * (given[column] * gain[column] - sum - value[column] * projection);
  }
}

}  // namespace

void norm(const float* x, const float* gain, const float* bias, float* normalised, float* scale, float* y,
          Extent extent, cudaStream_t stream) {
  queue_rows("norm", normalise_rows, extent, stream, x, gain, bias, normalised, scale, y, extent.columns);
}

void norm_input_gradient(const float* dy, const float* normalised, const float* scale, const float* gain, bool centred,
                         float* dx, Extent extent, cudaStream_t stream) {
  queue_rows("norm_input_gradient", input_gradient_rows, extent, stream, dy, normalised, scale, gain, centred, dx,
             extent.columns);
}

namespace {

__global__ void look_up_rows(const int* tokens, int first, int count, const float* table, float* rows,
                             std::size_t width) {
  const std::size_t row = blockIdx.x;
  const int place = tokens[row] - first;
  const bool held = place >= 0 && place < count;
  for (std::size_t column = threadIdx.x; column < width; column += blockDim.x) {
    rows[row * width + column] = held ? table[static_cast<std::size_t>(place) * width + column] : 0.0F;
  }
}

// One block per table row that any token refers to.
__global__ void add_groups(const int* order, const int* starts, const int* places, const float* rows, float* table,
                           std::size_t width) {
  const int group = static_cast<int>(blockIdx.x);
  float* entry = table + static_cast<std::size_t>(places[group]) * width;
  for (std::size_t column = threadIdx.x; column < width; column += blockDim.x) {
    float sum = 0.0F;
    for (int index = starts[group]; index < starts[group + 1]; ++index) {
      sum += rows[static_cast<std::size_t>(order[index]) * width + column];
    }
    entry[column] += sum;
  }
}

__global__ void add_position_rows(const float* x, PositionWindow positions, const float* table, float* y,
                                  std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* entry = table + ((positions.shift + row) % positions.length + positions.first) * columns;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    y[row * columns + column] = x[row * columns + column] + entry[column];
  }
}

// One block per position, over the rows at that position.
__global__ void sum_positions(const float* dy, PositionWindow positions, float* table, Extent extent) {
  const std::size_t position = blockIdx.x;
  const std::size_t shift = positions.shift % positions.length;
  const std::size_t first = (position + positions.length - shift) % positions.length;
  float* entry = table + (position + positions.first) * extent.columns;
  for (std::size_t column = threadIdx.x; column < extent.columns; column += blockDim.x) {
    float sum = 0.0F;
    for (std::size_t row = first; row < extent.rows; row += positions.length) sum += dy[row * extent.columns + column];
    entry[column] += sum;
  }
}

}  // namespace

void look_up(const int* tokens, int first, int count, const float* table, float* rows, Extent extent,
             cudaStream_t stream) {
  queue_rows("look_up", look_up_rows, extent, stream, tokens, first, count, table, rows, extent.columns);
}

void add_to_table(const int* order, const int* starts, const int* places, int groups, const float* rows, float* table,
                  std::size_t width, cudaStream_t stream) {
  queue_rows("add_to_table", add_groups, {static_cast<std::size_t>(groups), width}, stream, order, starts, places, rows,
             table, width);
}

void add_positions(const float* x, PositionWindow positions, const float* table, float* y, Extent extent,
                   cudaStream_t stream) {
  queue_rows("add_positions", add_position_rows, extent, stream, x, positions, table, y, extent.columns);
}

void add_to_positions(const float* dy, PositionWindow positions, float* table, Extent extent, cudaStream_t stream) {
  if (extent.size() == 0) return;
  queue_rows("add_to_positions", sum_positions, {positions.length, extent.columns}, stream, dy, positions, table,
             extent);
}

namespace {

// One block per row, one thread per pair of features of one head. Angles are in double precision because those of late
// positions are large.
__global__ void rotate_rows(const float* x, RotatedHeads heads, PositionWindow positions, float direction, float* y) {
  const std::size_t row = blockIdx.x;
  const std::size_t start = row * static_cast<std::size_t>(heads.slots) * heads.head_dim;
  const auto position = static_cast<double>((positions.shift + row) % positions.length + positions.first);
  const int half = heads.head_dim / 2;
  for (int index = static_cast<int>(threadIdx.x); index < heads.slots * half; index += static_cast<int>(blockDim.x)) {
    const int slot = index / half;
    const int pair = index % half;
    const std::size_t place = start + static_cast<std::size_t>(slot) * heads.head_dim + pair;
    const float a = x[place];
    const float b = x[place + half];
    if (slot % heads.group == heads.group - 1) {
      y[place] = a;
      y[place + half] = b;
      continue;
    }
    const double angle = position * pow(10000.0, -static_cast<double>(pair) / half);
    const auto cosine = static_cast<float>(cos(angle));
    const float sine = direction * static_cast<float>(sin(angle));
    y[place] = a * cosine - b * sine;
    y[place + half] = a * sine + b * cosine;
  }
}

}  // namespace

void rotate_heads(const float* x, RotatedHeads heads, PositionWindow positions, float direction, float* y,
                  std::size_t rows, cudaStream_t stream) {
  const Extent extent{rows, static_cast<std::size_t>(heads.slots)};
  queue_rows("rotate_heads", rotate_rows, extent, stream, x, heads, positions, direction, y);
}

namespace {

constexpr float kLowest = -3.402823466e+38F;

__global__ void find_maxima(const float* logits, float* maxima, std::size_t columns) {
  const float* row = logits + blockIdx.x * columns;
  float largest = kLowest;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) largest = fmaxf(largest, row[column]);
  largest = over_block(largest, kLowest, Maximum{});
  if (threadIdx.x == 0) maxima[blockIdx.x] = largest;
}

__global__ void take_exponentials(const float* logits, const float* maxima, const int* targets, int first,
                                  float* values, float* sums, float* target_logits, std::size_t columns) {
  const std::size_t row = blockIdx.x;
  const float* given = logits + row * columns;
  const float maximum = maxima[row];
  float sum = 0.0F;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const float value = expf(given[column] - maximum);
    values[row * columns + column] = value;
    sum += value;
  }
  sum = over_block(sum, 0.0F, Sum{});
  if (threadIdx.x != 0) return;
  sums[row] = sum;
  const long place = static_cast<long>(targets[row]) - first;
  const bool held = place >= 0 && place < static_cast<long>(columns);
  target_logits[row] = held ? given[place] - maximum : 0.0F;
}

__global__ void divide_rows(float* values, const float* sums, std::size_t columns) {
  float* row = values + blockIdx.x * columns;
  const float sum = sums[blockIdx.x];
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) row[column] /= sum;
}

__global__ void mean_loss(const float* sums, const float* target_logits, double* mean, std::size_t rows) {
  double sum = 0.0;
  for (std::size_t row = threadIdx.x; row < rows; row += blockDim.x) {
    sum += log(static_cast<double>(sums[row])) - static_cast<double>(target_logits[row]);
  }
  sum = over_block(sum, 0.0, Sum{});
  if (threadIdx.x == 0) *mean = sum / static_cast<double>(rows);
}

__global__ void subtract_targets(const float* probabilities, const int* targets, int first, float weight,
                                 float* gradient, std::size_t columns) {
  const std::size_t start = blockIdx.x * columns;
  const long place = static_cast<long>(targets[blockIdx.x]) - first;
  for (std::size_t column = threadIdx.x; column < columns; column += blockDim.x) {
    const bool is_target = place == static_cast<long>(column);
    gradient[start + column] = weight * probabilities[start + column] - (is_target ? weight : 0.0F);
  }
}

}  // namespace

void row_maxima(const float* logits, float* maxima, Extent extent, cudaStream_t stream) {
  queue_rows("row_maxima", find_maxima, extent, stream, logits, maxima, extent.columns);
}

void exponentials(const float* logits, const float* maxima, const int* targets, int first, float* values, float* sums,
                  float* target_logits, Extent extent, cudaStream_t stream) {
  queue_rows("exponentials", take_exponentials, extent, stream, logits, maxima, targets, first, values, sums,
             target_logits, extent.columns);
}

void normalise(float* values, const float* sums, const float* target_logits, double* mean, Extent extent,
               cudaStream_t stream) {
  if (extent.size() == 0) return;
  queue_rows("normalise", divide_rows, extent, stream, values, sums, extent.columns);
  queue("normalise", mean_loss, 1, kThreads, stream, sums, target_logits, mean, extent.rows);
}

void cross_entropy_gradient(const float* probabilities, const int* targets, int first, float weight, float* gradient,
                            Extent extent, cudaStream_t stream) {
  queue_rows("cross_entropy_gradient", subtract_targets, extent, stream, probabilities, targets, first, weight,
             gradient, extent.columns);
}

namespace {

__global__ void sgd_kernel(UpdateRule rule, Update update, float* velocity) {
  for (std::size_t index = first_index(); index < update.count; index += index_stride()) {
    update_by_sgd(rule, update, velocity, index);
  }
}

__global__ void adam_kernel(AdamStep step, Update update, float* mean, float* square) {
  for (std::size_t index = first_index(); index < update.count; index += index_stride()) {
    step.update(update, mean, square, index);
  }
}

struct Inputs {
  const float* addresses[kMostInputs];
  int count;
};

template <class Operation>
__global__ void reduce_kernel(Inputs inputs, float* output, std::size_t count, Operation operation) {
  for (std::size_t index = first_index(); index < count; index += index_stride()) {
    float value = inputs.addresses[0][index];
    for (int input = 1; input < inputs.count; ++input) value = operation(value, inputs.addresses[input][index]);
    output[index] = value;
  }
}

}  // namespace

void sgd(const UpdateRule& rule, const Update& update, float* velocity, cudaStream_t stream) {
  queue_over("sgd", sgd_kernel, update.count, stream, rule, update, velocity);
}

void adam(const UpdateRule& rule, int step, const Update& update, float* mean, float* square, cudaStream_t stream) {
  queue_over("adam", adam_kernel, update.count, stream, AdamStep(rule, step), update, mean, square);
}

void reduce(const std::vector<const float*>& inputs, bool maximum, float* output, std::size_t count,
            cudaStream_t stream) {
  if (count == 0) return;
  if (inputs.empty() || inputs.size() > kMostInputs) return check(cudaErrorInvalidValue, "reduce");
  Inputs list{};
  list.count = static_cast<int>(inputs.size());
  for (std::size_t input = 0; input < inputs.size(); ++input) list.addresses[input] = inputs[input];
  if (maximum) return queue_over("reduce", reduce_kernel<Maximum>, count, stream, list, output, count, Maximum{});
  queue_over("reduce", reduce_kernel<Sum>, count, stream, list, output, count, Sum{});
}

}  // namespace flopcast::realrun::cuda
