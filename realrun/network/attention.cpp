#include "realrun/network/attention.hpp"

#include <algorithm>
#include <cmath>

#include "model/error/error.hpp"
#include "realrun/network/gemm.hpp"

namespace flopcast::realrun {

template <class T>
CausalAttention<T>::CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence)
    : heads_(heads), head_dim_(head_dim), sequence_(sequence) {}

namespace {

// The rows of one sequence and the columns of one part of one head.
template <class View, class Tensor>
View block(Tensor& tensor, std::size_t first_row, std::size_t rows, std::size_t column, std::size_t columns,
           Transposed transposed = Transposed::kNo) {
  return {tensor.data() + first_row * tensor.columns() + column, rows, columns, tensor.columns(), transposed};
}

// Each row over the columns up to its own index; the others are zero.
template <class T>
void causal_softmax(T* scores, std::size_t size) {
  for (std::size_t row = 0; row < size; ++row) {
    T* values = scores + row * size;
    const T largest = *std::max_element(values, values + row + 1);
    T sum = 0;
    for (std::size_t column = 0; column <= row; ++column) {
      values[column] = std::exp(values[column] - largest);
      sum += values[column];
    }
    for (std::size_t column = 0; column < size; ++column) {
      values[column] = column <= row ? values[column] / sum : T(0);
    }
  }
}

// dS = P ∘ (dP - rowsum(dP ∘ P)), in place of dP.
template <class T>
void softmax_gradient(const T* probabilities, T* gradient, std::size_t size) {
  for (std::size_t row = 0; row < size; ++row) {
    const T* p = probabilities + row * size;
    T* d = gradient + row * size;
    T projection = 0;
    for (std::size_t column = 0; column <= row; ++column) projection += p[column] * d[column];
    for (std::size_t column = 0; column < size; ++column) d[column] = p[column] * (d[column] - projection);
  }
}

}  // namespace

template <class T>
Tensor<T> CausalAttention<T>::forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& saved) const {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  FLOPCAST_CHECK(input.rows() % sequence_ == 0 && input.columns() == 3 * heads_ * head_dim_);
  const std::size_t sequences = input.rows() / sequence_;
  Tensor<T> probabilities(sequences * heads_ * sequence_, sequence_);
  Tensor<T> output(input.rows(), heads_ * head_dim_);
  const T scale = T(1) / std::sqrt(static_cast<T>(head_dim_));
  for (std::size_t item = 0; item < sequences; ++item) {
    const std::size_t row = item * sequence_;
    for (std::size_t head = 0; head < heads_; ++head) {
      const std::size_t column = 3 * head * head_dim_;
      T* scores = probabilities.row((item * heads_ + head) * sequence_);
      const Out square{scores, sequence_, sequence_, sequence_};
      multiply(block<In>(input, row, sequence_, column, head_dim_),
               block<In>(input, row, sequence_, column + head_dim_, head_dim_, Transposed::kYes), square, scale);
      causal_softmax(scores, sequence_);
      multiply(In{scores, sequence_, sequence_, sequence_},
               block<In>(input, row, sequence_, column + 2 * head_dim_, head_dim_),
               block<Out>(output, row, sequence_, head * head_dim_, head_dim_));
    }
  }
  saved.tensors = {input, probabilities};
  return output;
}

template <class T>
Tensor<T> CausalAttention<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                                             Saved<T>& saved) const {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const Tensor<T>& input = saved.tensors[0];
  const Tensor<T>& probabilities = saved.tensors[1];
  Tensor<T> gradient(input.rows(), input.columns());
  Tensor<T> scores(sequence_, sequence_);
  const T scale = T(1) / std::sqrt(static_cast<T>(head_dim_));
  for (std::size_t item = 0; item < input.rows() / sequence_; ++item) {
    const std::size_t row = item * sequence_;
    for (std::size_t head = 0; head < heads_; ++head) {
      const std::size_t query = 3 * head * head_dim_;
      const std::size_t key = query + head_dim_;
      const std::size_t value = key + head_dim_;
      const T* p = probabilities.row((item * heads_ + head) * sequence_);
      const In result = block<In>(output_gradient, row, sequence_, head * head_dim_, head_dim_);
      multiply(result, block<In>(input, row, sequence_, value, head_dim_, Transposed::kYes),
               Out{scores.data(), sequence_, sequence_, sequence_});
      softmax_gradient(p, scores.data(), sequence_);
      const In square{scores.data(), sequence_, sequence_, sequence_};
      multiply(square, block<In>(input, row, sequence_, key, head_dim_),
               block<Out>(gradient, row, sequence_, query, head_dim_), scale);
      multiply(In{scores.data(), sequence_, sequence_, sequence_, Transposed::kYes},
               block<In>(input, row, sequence_, query, head_dim_), block<Out>(gradient, row, sequence_, key, head_dim_),
               scale);
      multiply(In{p, sequence_, sequence_, sequence_, Transposed::kYes}, result,
               block<Out>(gradient, row, sequence_, value, head_dim_));
    }
  }
  return gradient;
}

template class CausalAttention<float>;
template class CausalAttention<double>;

}  // namespace flopcast::realrun
