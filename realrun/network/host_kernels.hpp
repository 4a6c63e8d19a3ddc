#pragma once

#include "realrun/network/kernels.hpp"

namespace flopcast::realrun {

/// Plain loops, products by gemm.hpp. Sums run in the order of the rows.
template <class T>
class HostKernels : public Kernels<T> {
 public:
  /// Filled with zeros.
  Tensor<T> tensor(std::size_t rows, std::size_t columns) override { return Tensor<T>(rows, columns); }
  void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor,
                bool accumulate) override {
    realrun::multiply(a, b, result, factor, accumulate);
  }
  void add(const Tensor<T>& a, const Tensor<T>& b, Tensor<T>& sum) override;
  void add_bias(const Tensor<T>& x, const T* bias, Tensor<T>& y) override;
  void add_up_rows(const Tensor<T>& x, T* sums) override;
  void layer_norm(const Tensor<T>& x, const T* gain, const T* bias, Tensor<T>& normalised, Tensor<T>& scale,
                  Tensor<T>& y) override;
  void layer_norm_input_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, const Tensor<T>& scale,
                                 const T* gain, Tensor<T>& dx) override;
  void layer_norm_weight_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, T* gain, T* bias) override;
  void gelu(const Tensor<T>& x, Tensor<T>& y) override;
  void gelu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) override;
  /// Keeps the probabilities.
  std::vector<Tensor<T>> attention(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                                   Tensor<T>& output) override;
  void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                          const std::vector<Tensor<T>>& kept, const Tensor<T>& output_gradient,
                          std::vector<Tensor<T>>& gradients) override;
  void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const T* table, Tensor<T>& rows) override;
  void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<T>& rows,
                    T* table) override;
  void add_positions(const Tensor<T>& x, const RowPositions& positions, const T* table, Tensor<T>& y) override;
  void add_to_positions(const Tensor<T>& dy, const RowPositions& positions, T* table) override;
  void row_maxima(const Tensor<T>& logits, Tensor<T>& maxima) override;
  void exponentials(const Tensor<T>& logits, const Tensor<T>& maxima, const std::vector<int>& targets,
                    const VocabularyShare& share, Tensor<T>& exponentials, Tensor<T>& sums,
                    Tensor<T>& target_logits) override;
  Loss normalise(Tensor<T>& exponentials, const Tensor<T>& sums, const Tensor<T>& target_logits) override;
  void cross_entropy_gradient(const Tensor<T>& probabilities, const std::vector<int>& targets,
                              const VocabularyShare& share, T weight, Tensor<T>& gradient) override;
};

}  // namespace flopcast::realrun
