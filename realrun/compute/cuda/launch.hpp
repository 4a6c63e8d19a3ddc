#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "realrun/device/arithmetic.hpp"

// Functions that queue the kernels. Matrices are row-major without gaps; addresses are the device's. The order of
// summation depends on the sizes only: equal runs give equal bits. Nothing here waits. A launch that fails throws
// EnvironmentError with the function's name.

namespace flopcast::realrun::cuda {

/// Throws EnvironmentError with the name of the call and CUDA's error message unless the call succeeded.
void check(cudaError_t result, const char* call);

/// Size of a matrix.
struct Extent {
  std::size_t rows = 0;
  std::size_t columns = 0;

  constexpr std::size_t size() const { return rows * columns; }
};

// element-wise
void draw(const Draw& draw, float* values, std::size_t count, cudaStream_t stream);
void add(const float* a, const float* b, float* sum, std::size_t count, cudaStream_t stream);
void add_bias(const float* x, const float* bias, float* y, Extent extent, cudaStream_t stream);
void gelu(const float* x, float* y, std::size_t count, cudaStream_t stream);
void gelu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream);
/// From each pair of elements of x: the second times silu of the first. `count` elements of y.
void gated_silu(const float* x, float* y, std::size_t count, cudaStream_t stream);
void gated_silu_gradient(const float* dy, const float* x, float* dx, std::size_t count, cudaStream_t stream);
/// Copies a rectangle; `from_stride` and `to_stride` are elements between rows.
void copy_rectangle(const float* from, std::size_t from_stride, float* to, std::size_t to_stride, Extent extent,
                    cudaStream_t stream);
/// Rounded to nearest, ties to even; 16 bits each.
void to_bfloat16(const float* x, void* y, std::size_t count, cudaStream_t stream);
struct Float8Format {
  bool wide = false;   ///< e5m2, else e4m3
  bool flips = false;  ///< transposes the result
};
inline constexpr std::size_t kFloat8Scratch = 256;
/// Converts a matrix to 8 bits, rounded to nearest, scaled so that its largest magnitude becomes the format's. `scale`
/// receives the factor that undoes the scaling. Uses `scratch` of kFloat8Scratch floats.
void to_float8(const float* x, Extent extent, Float8Format format, float* scratch, void* y, float* scale,
               cudaStream_t stream);

// spin.cu
/// Keeps one thread busy. Returns the error of its launch.
cudaError_t spin(std::int64_t nanoseconds, cudaStream_t stream);

// See UpdateRule.
void sgd(const UpdateRule& rule, const Update& update, float* velocity, cudaStream_t stream);
void adam(const UpdateRule& rule, int step, const Update& update, float* mean, float* square, cudaStream_t stream);
/// Reduces element by element in the order of the inputs, of which there are at most kMostInputs; the output may be one
/// of them.
void reduce(const std::vector<const float*>& inputs, bool maximum, float* output, std::size_t count,
            cudaStream_t stream);

// Two-step sums over rows, through `scratch` of column_scratch() floats.
std::size_t column_scratch(Extent extent);
/// sums += the rows of x, multiplied by the rows of `factor` unless that is null.
void add_up_rows(const float* x, const float* factor, float* sums, Extent extent, float* scratch, cudaStream_t stream);

// norms; those without a bias are not centred
void norm(const float* x, const float* gain, const float* bias, float* normalised, float* scale, float* y,
          Extent extent, cudaStream_t stream);
void norm_input_gradient(const float* dy, const float* normalised, const float* scale, const float* gain, bool centred,
                         float* dx, Extent extent, cudaStream_t stream);

// embedding
void look_up(const int* tokens, int first, int count, const float* table, float* rows, Extent extent,
             cudaStream_t stream);
/// Adds rows to table rows. `order` lists the rows sorted by token; group g covers entries starts[g] to starts[g + 1]
/// and is added to row places[g] of the table.
void add_to_table(const int* order, const int* starts, const int* places, int groups, const float* rows, float* table,
                  std::size_t width, cudaStream_t stream);
/// Row r lies at position (shift + r) mod length + first.
struct PositionWindow {
  std::size_t shift;
  std::size_t length;
  std::size_t first;
};
void add_positions(const float* x, PositionWindow positions, const float* table, float* y, Extent extent,
                   cudaStream_t stream);
void add_to_positions(const float* dy, PositionWindow positions, float* table, Extent extent, cudaStream_t stream);

/// See Kernels::rotate_heads. A row has `slots` heads of `head_dim`; the last slot of every `group` is left unchanged.
struct RotatedHeads {
  int slots;
  int group;
  int head_dim;
};
void rotate_heads(const float* x, RotatedHeads heads, PositionWindow positions, float direction, float* y,
                  std::size_t rows, cudaStream_t stream);

// cross entropy
void row_maxima(const float* logits, float* maxima, Extent extent, cudaStream_t stream);
void exponentials(const float* logits, const float* maxima, const int* targets, int first, float* values, float* sums,
                  float* target_logits, Extent extent, cudaStream_t stream);
/// Divides the rows by their sums and writes the mean of log(sum) - target.
void normalise(float* values, const float* sums, const float* target_logits, double* mean, Extent extent,
               cudaStream_t stream);
void cross_entropy_gradient(const float* probabilities, const int* targets, int first, float weight, float* gradient,
                            Extent extent, cudaStream_t stream);

// attention.cu: fused attention; the scores never leave the chip.
struct AttentionSize {
  int sequences;
  int heads;
  int head_dim;  ///< at most kLargestHead
  int length;    ///< rows of a sequence
  int kv_heads;  ///< divides heads
  /// See AttentionMask.
  bool causal = true;
  int window = 0;
  int chunk = 0;
};
/// `qkv` is laid out as HeadLayout describes; `logsumexp` by sequence, head and row.
void attention(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream);
/// Writes the gradient of `qkv`. `projection` is scratch of the size of `logsumexp`.
void attention_gradient(const float* qkv, const float* output, const float* logsumexp, const float* dy,
                        float* projection, float* dqkv, AttentionSize size, cudaStream_t stream);
// tensor_attention.cu: the same with the factors of products rounded to bfloat16; sums and softmax are 32-bit.
void tensor_attention(const float* qkv, float* output, float* logsumexp, AttentionSize size, cudaStream_t stream);
void tensor_attention_gradient(const float* qkv, const float* output, const float* logsumexp, const float* dy,
                               float* projection, float* dqkv, AttentionSize size, cudaStream_t stream);

}  // namespace flopcast::realrun::cuda
