#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "realrun/device/buffer.hpp"

namespace flopcast::realrun {

enum class Transposed { kNo, kYes };

/// 8-bit format that a matrix may have as a factor of a product, where products support it: e4m3 for values (more
/// digits), e5m2 for gradients (more range) (Micikevicius et al. 2209.05433, §3). A product is 8-bit if both factors
/// may be.
enum class Float8 : std::uint8_t { kNo, kE4m3, kE5m2 };

/// A row-major matrix in memory, as stored; `stride` is the number of elements between rows.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t stride = 0;
  Transposed transposed = Transposed::kNo;
  bool lasting = false;  ///< true for weights, which are constant until Kernels::weights_changed()
  Float8 float8 = Float8::kNo;
};

/// A row-major matrix, one row per token (microbatch and position flattened) and one column per feature. Copies share
/// the memory; new values go to a new tensor.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  /// Allocates zeroed host memory.
  Tensor(std::size_t rows, std::size_t columns) : Tensor(allocate_host(rows * columns * sizeof(T)), rows, columns) {}
  Tensor(Buffer buffer, std::size_t rows, std::size_t columns)
      : buffer_(std::move(buffer)), rows_(rows), columns_(columns) {}

  bool empty() const { return buffer_.empty(); }
  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  std::size_t size() const { return rows_ * columns_; }
  const Buffer& buffer() const { return buffer_; }
  T* data() { return reinterpret_cast<T*>(buffer_.address()); }
  const T* data() const { return reinterpret_cast<const T*>(buffer_.address()); }
  T* row(std::size_t index) { return data() + index * columns_; }
  const T* row(std::size_t index) const { return data() + index * columns_; }
  MatrixView<const T> view(Transposed transposed = Transposed::kNo, Float8 float8 = Float8::kNo) const {
    return {data(), rows_, columns_, columns_, transposed, false, float8};
  }
  /// View for writing.
  MatrixView<T> target() { return {data(), rows_, columns_, columns_}; }

 private:
  Buffer buffer_;
  std::size_t rows_ = 0;
  std::size_t columns_ = 0;
};

/// Mean loss of a microbatch; called after the step, because a device may compute it asynchronously.
using Loss = std::function<double()>;

/// The share of the vocabulary held here: `count` tokens starting at `first`.
struct VocabularyShare {
  std::size_t first = 0;
  std::size_t count = 0;
};

/// Positions of rows in their sequences: row r is at position (shift + r) mod length + first. If `split` is not 0, rows
/// from `split` on are at positions from `second` on.
struct RowPositions {
  std::size_t shift = 0;
  std::size_t length = 1;
  std::size_t first = 0;
  std::size_t split = 0;
  std::size_t second = 0;

  std::size_t of(std::size_t row) const {
    const std::size_t place = (shift + row) % length;
    return split == 0 || place < split ? place + first : place - split + second;
  }
};

/// Selects the keys that a query attends to, by their positions in the sequence. At most one of window and chunk is
/// set, and only if causal.
struct AttentionMask {
  bool causal = true;
  std::size_t window = 0;  ///< the last `window` positions, including the query's; 0: all
  std::size_t chunk = 0;   ///< positions in the query's chunk of `chunk` positions; 0: all

  std::size_t first_seen(std::size_t query) const {
    if (chunk > 0) return query / chunk * chunk;
    return window > 0 && query + 1 > window ? query + 1 - window : 0;
  }
  /// Returns one past the last visible of `keys` keys.
  std::size_t end_seen(std::size_t query, std::size_t keys) const { return causal ? query + 1 : keys; }
};

/// Layout of the queries, keys and values of a row. Query heads share a key/value head in groups of equal size: the
/// columns hold, group by group, its queries, its key and its value, of `head_dim` features each.
struct HeadLayout {
  std::size_t heads = 1;
  std::size_t kv_heads = 1;
  std::size_t head_dim = 1;

  std::size_t group() const { return heads / kv_heads; }
  std::size_t group_width() const { return (group() + 2) * head_dim; }
  std::size_t width() const { return kv_heads * group_width(); }
  std::size_t query(std::size_t head) const { return head / group() * group_width() + head % group() * head_dim; }
  std::size_t key(std::size_t head) const { return head / group() * group_width() + group() * head_dim; }
  std::size_t value(std::size_t head) const { return key(head) + head_dim; }
};

/// Linear biases of the scores, slope · (key - query) with one slope per head (ALiBi, Press et al. 2108.12409 §3).
struct LinearBiases {
  std::size_t first_head = 0;  ///< index among `heads` of the first local head
  std::size_t heads = 0;       ///< of the model; 0: no biases

  /// 2^(-8(h+1)/n) for n heads if n is a power of two; otherwise, as in the paper's code, the slopes of the next lower
  /// power followed by every other slope of the next higher one.
  double slope(std::size_t head) const;
};

/// Attention of one microbatch: every `length` rows are a sequence or a slice of one. See Attention.
struct AttentionExtent {
  HeadLayout heads = {};
  std::size_t length = 1;
  AttentionMask mask = {};
  LinearBiases biases = {};
};

/// The arithmetic of the layers on one device. Layers define the operations and kernels implement them: by loops and a
/// BLAS on a CPU, asynchronously on a GPU. Calls take effect in order. Addresses are the device's; tensors come from
/// tensor(). Results are overwritten completely unless a function adds to them.
template <class T>
class Kernels : public Interface {
 public:
  /// Returns a new tensor with undefined contents.
  virtual Tensor<T> tensor(std::size_t rows, std::size_t columns) = 0;

  /// The values at the addresses of weights may have changed.
  virtual void weights_changed() {}
  /// result = factor · op(a) · op(b), or += when `accumulate`.
  virtual void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result,
                        T factor, bool accumulate) = 0;
  virtual void add(const Tensor<T>& a, const Tensor<T>& b, Tensor<T>& sum) = 0;
  /// y = x + bias in every row.
  virtual void add_bias(const Tensor<T>& x, const T* bias, Tensor<T>& y) = 0;
  /// sums += the rows of x.
  virtual void add_up_rows(const Tensor<T>& x, T* sums) = 0;

  /// For each row y = gain · (x - mean) / sqrt(variance + 1e-5) + bias (Ba et al. 1607.06450), or without a bias y =
  /// gain · x / sqrt(mean of x² + 1e-5) (RMSNorm, Zhang & Sennrich 1910.07467 §3). Also outputs the normalised rows and
  /// each row's factor.
  virtual void norm(const Tensor<T>& x, const T* gain, const T* bias, Tensor<T>& normalised, Tensor<T>& scale,
                    Tensor<T>& y) = 0;
  /// `centred`: true for a norm with a bias.
  virtual void norm_input_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, const Tensor<T>& scale,
                                   const T* gain, bool centred, Tensor<T>& dx) = 0;
  /// Adds to the gradients of gain and bias; `bias` may be null.
  virtual void norm_weight_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, T* gain, T* bias) = 0;

  virtual void gelu(const Tensor<T>& x, Tensor<T>& y) = 0;
  virtual void gelu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) = 0;

  /// y_j = silu(x_2j) · x_2j+1: y has half as many columns.
  virtual void gated_silu(const Tensor<T>& x, Tensor<T>& y) = 0;
  virtual void gated_silu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) = 0;

  /// Copies a rectangle to one of the same shape.
  virtual void copy(const MatrixView<const T>& from, const MatrixView<T>& to) = 0;
  /// Rotates features i and i + d/2 of every query and key head of d features by direction · position · 10000^(-2i/d)
  /// (Su et al. 2104.09864 §3.4.2); values are copied.
  virtual void rotate_heads(const Tensor<T>& x, const HeadLayout& heads, const RowPositions& positions, T direction,
                            Tensor<T>& y) = 0;

  /// Attention of the queries of the last slice over the keys and values of all `slices`. Returns what the backward
  /// pass needs besides the inputs.
  virtual std::vector<Tensor<T>> attention(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                                           Tensor<T>& output) = 0;
  /// Adds to `gradients` by slice; allocates those that are empty.
  virtual void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                                  const std::vector<Tensor<T>>& kept, const Tensor<T>& output_gradient,
                                  std::vector<Tensor<T>>& gradients) = 0;

  /// Looks up one row of the table per token; zeros for tokens held by other ranks.
  virtual void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const T* table,
                       Tensor<T>& rows) = 0;
  /// Adds each row to the table row of its token.
  virtual void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<T>& rows,
                            T* table) = 0;
  virtual void add_positions(const Tensor<T>& x, const RowPositions& positions, const T* table, Tensor<T>& y) = 0;
  virtual void add_to_positions(const Tensor<T>& dy, const RowPositions& positions, T* table) = 0;

  // Cross-entropy in three steps; in between, tensor-parallel ranks reduce over their shares of the vocabulary.
  virtual void row_maxima(const Tensor<T>& logits, Tensor<T>& maxima) = 0;
  /// Exponentials of the logits minus the row's maximum, their sums, and logit minus maximum of the targets held here.
  virtual void exponentials(const Tensor<T>& logits, const Tensor<T>& maxima, const std::vector<int>& targets,
                            const VocabularyShare& share, Tensor<T>& exponentials, Tensor<T>& sums,
                            Tensor<T>& target_logits) = 0;
  /// Divides each row by its sum; returns the mean over the rows of log(sum) - target logit.
  virtual Loss normalise(Tensor<T>& exponentials, const Tensor<T>& sums, const Tensor<T>& target_logits) = 0;
  /// weight · (probabilities - 1 at the target).
  virtual void cross_entropy_gradient(const Tensor<T>& probabilities, const std::vector<int>& targets,
                                      const VocabularyShare& share, T weight, Tensor<T>& gradient) = 0;
};

/// result = factor · op(a) · op(b), or += if `accumulate`, in host memory. Single-threaded: a rank is one core. Uses
/// OpenBLAS if the build found it (32-bit floats), otherwise Eigen.
template <class T>
void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor = T(1),
              bool accumulate = false);

/// "OpenBLAS" or "Eigen", with its version.
struct ProductLibrary {
  std::string name;
  std::string version;
};
ProductLibrary product_library();

/// Kernels on the calling thread's CPU: plain loops, products by multiply(). Sums run in row order. Stateless: all
/// ranks share them.
template <class T>
Kernels<T>& host_kernels();

}  // namespace flopcast::realrun
