#pragma once

#include "realrun/compute/cuda/cuda_device.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/device/arithmetic.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast::realrun::cuda {

/// The layers' arithmetic in a device's compute queue. Products by `products`, attention fused, everything else by
/// kernels of its own in 32 bits. With kBf16 the factors of each product are rounded first; the sums of weight
/// gradients have 32 bits and are added to in place.
/// Left out: token slices, heads wider than kLargestHead.
class CudaKernels : public Kernels<float> {
 public:
  CudaKernels(CudaDevice& device, MatrixProducts& products, GemmPrecision precision)
      : device_(device), products_(products), precision_(precision) {}

  Tensor<float> tensor(std::size_t rows, std::size_t columns) override;
  void multiply(const MatrixView<const float>& a, const MatrixView<const float>& b, const MatrixView<float>& result,
                float factor, bool accumulate) override;
  void add(const Tensor<float>& a, const Tensor<float>& b, Tensor<float>& sum) override;
  void add_bias(const Tensor<float>& x, const float* bias, Tensor<float>& y) override;
  void add_up_rows(const Tensor<float>& x, float* sums) override;
  void layer_norm(const Tensor<float>& x, const float* gain, const float* bias, Tensor<float>& normalised,
                  Tensor<float>& scale, Tensor<float>& y) override;
  void layer_norm_input_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, const Tensor<float>& scale,
                                 const float* gain, Tensor<float>& dx) override;
  void layer_norm_weight_gradient(const Tensor<float>& dy, const Tensor<float>& normalised, float* gain,
                                  float* bias) override;
  void gelu(const Tensor<float>& x, Tensor<float>& y) override;
  void gelu_gradient(const Tensor<float>& dy, const Tensor<float>& x, Tensor<float>& dx) override;
  /// Keeps the output and, for each row and head, the logarithm of the sum of exponentials.
  std::vector<Tensor<float>> attention(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                                       Tensor<float>& output) override;
  void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<float>>& slices,
                          const std::vector<Tensor<float>>& kept, const Tensor<float>& output_gradient,
                          std::vector<Tensor<float>>& gradients) override;
  void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const float* table,
               Tensor<float>& rows) override;
  void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<float>& rows,
                    float* table) override;
  void add_positions(const Tensor<float>& x, const RowPositions& positions, const float* table,
                     Tensor<float>& y) override;
  void add_to_positions(const Tensor<float>& dy, const RowPositions& positions, float* table) override;
  void row_maxima(const Tensor<float>& logits, Tensor<float>& maxima) override;
  void exponentials(const Tensor<float>& logits, const Tensor<float>& maxima, const std::vector<int>& targets,
                    const VocabularyShare& share, Tensor<float>& exponentials, Tensor<float>& sums,
                    Tensor<float>& target_logits) override;
  Loss normalise(Tensor<float>& exponentials, const Tensor<float>& sums, const Tensor<float>& target_logits) override;
  void cross_entropy_gradient(const Tensor<float>& probabilities, const std::vector<int>& targets,
                              const VocabularyShare& share, float weight, Tensor<float>& gradient) override;

 private:
  cudaStream_t stream() const { return device_.stream(Queue::kCompute); }
  Buffer rounded(const MatrixView<const float>& view);
  void sum_rows(const Tensor<float>& x, const float* factor, float* sums);

  CudaDevice& device_;
  MatrixProducts& products_;
  GemmPrecision precision_;
};

}  // namespace flopcast::realrun::cuda
