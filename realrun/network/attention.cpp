#include "realrun/network/attention.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/error/error.hpp"
#include "realrun/network/gemm.hpp"

namespace flopcast::realrun {

template <class T>
CausalAttention<T>::CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence)
    : heads_(heads), head_dim_(head_dim), sequence_(sequence) {}

template <class T>
T CausalAttention<T>::scale() const {
  return T(1) / std::sqrt(static_cast<T>(head_dim_));
}

template <class T>
typename CausalAttention<T>::Columns CausalAttention<T>::columns_of_head(std::size_t head) const {
  const std::size_t first = 3 * head * head_dim_;
  return {first, first + head_dim_, first + 2 * head_dim_};
}

namespace {

// The rows of one sequence and the columns of one part of one head.
template <class View, class Tensor>
View block(Tensor& tensor, std::size_t first_row, std::size_t rows, std::size_t column, std::size_t columns,
           Transposed transposed = Transposed::kNo) {
  return {tensor.data() + first_row * tensor.columns() + column, rows, columns, tensor.columns(), transposed};
}

// Columns that a row does not see are zero.
template <class T>
void causal_softmax(T* scores, const ScoreShape& shape) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    T* values = scores + row * shape.columns;
    const std::size_t seen = shape.seen_by(row);
    const T largest = *std::max_element(values, values + seen);
    T sum = 0;
    for (std::size_t column = 0; column < seen; ++column) {
      values[column] = std::exp(values[column] - largest);
      sum += values[column];
    }
    for (std::size_t column = 0; column < shape.columns; ++column) {
      values[column] = column < seen ? values[column] / sum : T(0);
    }
  }
}

// dS = P ∘ (dP - rowsum(dP ∘ P)), in place of dP.
template <class T>
void softmax_gradient(const T* probabilities, T* gradient, const ScoreShape& shape) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const T* p = probabilities + row * shape.columns;
    T* d = gradient + row * shape.columns;
    T projection = 0;
    for (std::size_t column = 0; column < shape.seen_by(row); ++column) projection += p[column] * d[column];
    for (std::size_t column = 0; column < shape.columns; ++column) d[column] = p[column] * (d[column] - projection);
  }
}

}  // namespace

template <class T>
Tensor<T> CausalAttention<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  const std::size_t length = pass.slice.length(sequence_);
  FLOPCAST_CHECK(input.rows() % length == 0 && input.columns() == 3 * heads_ * head_dim_);
  Slices context = {{pass.slice.index, input}};
  if (pass.slices != nullptr) {
    pass.slices->inputs[this][pass.slice.index] = input;
    context = pass.slices->inputs[this];
  }
  const ScoreShape shape{length, pass.slice.first(sequence_) + length};
  FLOPCAST_CHECK(context.size() * length == shape.columns);
  Tensor<T> probabilities(input.rows() * heads_, shape.columns);
  Tensor<T> output(input.rows(), heads_ * head_dim_);
  for (std::size_t row = 0; row < input.rows(); row += length) {
    for (std::size_t head = 0; head < heads_; ++head) {
      attend({row, head, shape}, input, context, probabilities, output);
    }
  }
  saved.tensors = {input, probabilities};
  return output;
}

// The queries of one head in one sequence, against the keys and values of every slice so far.
template <class T>
void CausalAttention<T>::attend(const Place& place, const Tensor<T>& input, const Slices& context,
                                Tensor<T>& probabilities, Tensor<T>& output) const {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const auto& [row, head, shape] = place;
  const std::size_t length = shape.rows;
  const Columns columns = columns_of_head(head);
  T* scores = probabilities.row(row * heads_ + head * length);
  T* part = scores;
  for (const auto& [slice, keys] : context) {
    multiply(block<In>(input, row, length, columns.query, head_dim_),
             block<In>(keys, row, length, columns.key, head_dim_, Transposed::kYes),
             Out{part, length, length, shape.columns}, scale());
    part += length;
  }
  causal_softmax(scores, shape);
  part = scores;
  for (const auto& [slice, values] : context) {
    multiply(In{part, length, length, shape.columns}, block<In>(values, row, length, columns.value, head_dim_),
             block<Out>(output, row, length, head * head_dim_, head_dim_), T(1), true);
    part += length;
  }
}

template <class T>
Tensor<T> CausalAttention<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass,
                                             Saved<T>& saved) const {
  const Tensor<T>& input = saved.tensors[0];
  const Tensor<T>& probabilities = saved.tensors[1];
  const std::size_t length = pass.slice.length(sequence_);
  Slices own_input = {{pass.slice.index, input}};
  Slices own_gradient;
  Slices& context = pass.slices == nullptr ? own_input : pass.slices->inputs[this];
  Slices& gradients = pass.slices == nullptr ? own_gradient : pass.slices->gradients[this];
  const ScoreShape shape{length, probabilities.columns()};
  // Slices behind this one have been here, and are gone.
  FLOPCAST_CHECK(context.size() * length == shape.columns);
  for (const auto& [slice, keys] : context) {
    if (gradients[slice].empty()) gradients[slice] = Tensor<T>(input.rows(), input.columns());
  }
  Tensor<T> scores(length, shape.columns);
  for (std::size_t row = 0; row < input.rows(); row += length) {
    for (std::size_t head = 0; head < heads_; ++head) {
      const Place place{row, head, shape};
      score_gradient(place, output_gradient, context, probabilities, scores);
      spread_gradient(place, output_gradient, context, probabilities, scores, gradients);
    }
  }
  Tensor<T> gradient = gradients.at(pass.slice.index);
  context.erase(pass.slice.index);
  gradients.erase(pass.slice.index);
  saved.tensors.clear();  // there are no weights here
  return gradient;
}

template <class T>
void CausalAttention<T>::score_gradient(const Place& place, const Tensor<T>& output_gradient, const Slices& context,
                                        const Tensor<T>& probabilities, Tensor<T>& scores) const {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const auto& [row, head, shape] = place;
  const std::size_t length = shape.rows;
  T* part = scores.data();
  for (const auto& [slice, values] : context) {
    multiply(block<In>(output_gradient, row, length, head * head_dim_, head_dim_),
             block<In>(values, row, length, columns_of_head(head).value, head_dim_, Transposed::kYes),
             Out{part, length, length, shape.columns});
    part += length;
  }
  softmax_gradient(probabilities.row(row * heads_ + head * length), scores.data(), shape);
}

// From the gradient of the scores those of queries, keys and values.
template <class T>
void CausalAttention<T>::spread_gradient(const Place& place, const Tensor<T>& output_gradient, const Slices& context,
                                         const Tensor<T>& probabilities, const Tensor<T>& scores,
                                         Slices& gradients) const {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const auto& [row, head, shape] = place;
  const std::size_t length = shape.rows;
  const Columns columns = columns_of_head(head);
  const auto last = std::prev(context.end());  // the slice at work
  const T* p = probabilities.row(row * heads_ + head * length);
  const T* s = scores.data();
  for (const auto& [slice, keys] : context) {
    Tensor<T>& gradient = gradients.at(slice);
    multiply(In{s, length, length, shape.columns}, block<In>(keys, row, length, columns.key, head_dim_),
             block<Out>(gradients.at(last->first), row, length, columns.query, head_dim_), scale(), true);
    multiply(In{s, length, length, shape.columns, Transposed::kYes},
             block<In>(last->second, row, length, columns.query, head_dim_),
             block<Out>(gradient, row, length, columns.key, head_dim_), scale(), true);
    multiply(In{p, length, length, shape.columns, Transposed::kYes},
             block<In>(output_gradient, row, length, head * head_dim_, head_dim_),
             block<Out>(gradient, row, length, columns.value, head_dim_), T(1), true);
    p += length;
    s += length;
  }
}

template class CausalAttention<float>;
template class CausalAttention<double>;

}  // namespace flopcast::realrun
