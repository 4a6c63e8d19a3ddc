#include <algorithm>
#include <cmath>

#include "realrun/network/host_kernels.hpp"

namespace flopcast::realrun {

namespace {

/// Scores of `rows` queries over `columns` keys. A row sees the keys up to its own; the queries are the last of them.
struct ScoreShape {
  std::size_t rows = 0;
  std::size_t columns = 0;

  std::size_t seen_by(std::size_t row) const { return columns - rows + row + 1; }
};

struct HeadColumns {
  std::size_t query = 0;
  std::size_t key = 0;
  std::size_t value = 0;
};

/// One head of one sequence.
struct HeadPlace {
  const AttentionShape& attention;
  ScoreShape scores;
  std::size_t first_row = 0;  // of the sequence in every slice's tensors
  std::size_t head = 0;

  HeadColumns columns() const {
    const std::size_t first = 3 * head * attention.head_dim;
    return {first, first + attention.head_dim, first + 2 * attention.head_dim};
  }
  // Of its scores among those of all heads of all sequences.
  std::size_t score_row() const { return first_row * attention.heads + head * attention.length; }
};

// The rows of one sequence and the columns of one part of one head.
template <class View, class Tensor>
View block(Tensor& tensor, const HeadPlace& place, std::size_t column, Transposed transposed = Transposed::kNo) {
  return {tensor.data() + place.first_row * tensor.columns() + column, place.attention.length, place.attention.head_dim,
          tensor.columns(), transposed};
}

template <class T>
T scale_of(const AttentionShape& shape) {
  return T(1) / std::sqrt(static_cast<T>(shape.head_dim));
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

// The queries of one head in one sequence, against the keys and values of every slice so far.
template <class T>
void attend(const HeadPlace& place, const std::vector<Tensor<T>>& slices, Tensor<T>& probabilities, Tensor<T>& output) {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const ScoreShape& shape = place.scores;
  const std::size_t length = shape.rows;
  const HeadColumns columns = place.columns();
  T* scores = probabilities.row(place.score_row());
  T* part = scores;
  for (const Tensor<T>& keys : slices) {
    multiply(block<In>(slices.back(), place, columns.query), block<In>(keys, place, columns.key, Transposed::kYes),
             Out{part, length, length, shape.columns}, scale_of<T>(place.attention));
    part += length;
  }
  causal_softmax(scores, shape);
  part = scores;
  for (const Tensor<T>& values : slices) {
    multiply(In{part, length, length, shape.columns}, block<In>(values, place, columns.value),
             block<Out>(output, place, place.head * place.attention.head_dim), T(1), true);
    part += length;
  }
}

template <class T>
void score_gradient(const HeadPlace& place, const Tensor<T>& output_gradient, const std::vector<Tensor<T>>& slices,
                    const Tensor<T>& probabilities, Tensor<T>& scores) {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const ScoreShape& shape = place.scores;
  T* part = scores.data();
  for (const Tensor<T>& values : slices) {
    multiply(block<In>(output_gradient, place, place.head * place.attention.head_dim),
             block<In>(values, place, place.columns().value, Transposed::kYes),
             Out{part, shape.rows, shape.rows, shape.columns});
    part += shape.rows;
  }
  softmax_gradient(probabilities.row(place.score_row()), scores.data(), shape);
}

// From the gradient of the scores those of queries, keys and values.
template <class T>
void spread_gradient(const HeadPlace& place, const Tensor<T>& output_gradient, const std::vector<Tensor<T>>& slices,
                     const Tensor<T>& probabilities, const Tensor<T>& scores, std::vector<Tensor<T>>& gradients) {
  using In = MatrixView<const T>;
  using Out = MatrixView<T>;
  const ScoreShape& shape = place.scores;
  const std::size_t length = shape.rows;
  const HeadColumns columns = place.columns();
  const T scale = scale_of<T>(place.attention);
  const T* p = probabilities.row(place.score_row());
  const T* s = scores.data();
  for (std::size_t slice = 0; slice < slices.size(); ++slice) {
    Tensor<T>& gradient = gradients[slice];
    multiply(In{s, length, length, shape.columns}, block<In>(slices[slice], place, columns.key),
             block<Out>(gradients.back(), place, columns.query), scale, true);
    multiply(In{s, length, length, shape.columns, Transposed::kYes}, block<In>(slices.back(), place, columns.query),
             block<Out>(gradient, place, columns.key), scale, true);
    multiply(In{p, length, length, shape.columns, Transposed::kYes},
             block<In>(output_gradient, place, place.head * place.attention.head_dim),
             block<Out>(gradient, place, columns.value), T(1), true);
    p += length;
    s += length;
  }
}

}  // namespace

template <class T>
std::vector<Tensor<T>> HostKernels<T>::attention(const AttentionShape& shape, const std::vector<Tensor<T>>& slices,
                                                 Tensor<T>& output) {
  const ScoreShape scores{shape.length, slices.size() * shape.length};
  Tensor<T> probabilities(output.rows() * shape.heads, scores.columns);
  std::fill_n(output.data(), output.size(), T(0));
  for (std::size_t row = 0; row < output.rows(); row += shape.length) {
    for (std::size_t head = 0; head < shape.heads; ++head) {
      attend({shape, scores, row, head}, slices, probabilities, output);
    }
  }
  return {probabilities};
}

template <class T>
void HostKernels<T>::attention_gradient(const AttentionShape& shape, const std::vector<Tensor<T>>& slices,
                                        const std::vector<Tensor<T>>& kept, const Tensor<T>& output_gradient,
                                        std::vector<Tensor<T>>& gradients) {
  const Tensor<T>& probabilities = kept.front();
  const ScoreShape scores{shape.length, probabilities.columns()};
  for (std::size_t slice = 0; slice < slices.size(); ++slice) {
    if (gradients[slice].empty()) gradients[slice] = Tensor<T>(slices[slice].rows(), slices[slice].columns());
  }
  Tensor<T> score_gradients(shape.length, scores.columns);
  for (std::size_t row = 0; row < output_gradient.rows(); row += shape.length) {
    for (std::size_t head = 0; head < shape.heads; ++head) {
      const HeadPlace place{shape, scores, row, head};
      score_gradient(place, output_gradient, slices, probabilities, score_gradients);
      spread_gradient(place, output_gradient, slices, probabilities, score_gradients, gradients);
    }
  }
}

template std::vector<Tensor<float>> HostKernels<float>::attention(const AttentionShape&,
                                                                  const std::vector<Tensor<float>>&, Tensor<float>&);
template std::vector<Tensor<double>> HostKernels<double>::attention(const AttentionShape&,
                                                                    const std::vector<Tensor<double>>&,
                                                                    Tensor<double>&);
template void HostKernels<float>::attention_gradient(const AttentionShape&, const std::vector<Tensor<float>>&,
                                                     const std::vector<Tensor<float>>&, const Tensor<float>&,
                                                     std::vector<Tensor<float>>&);
template void HostKernels<double>::attention_gradient(const AttentionShape&, const std::vector<Tensor<double>>&,
                                                      const std::vector<Tensor<double>>&, const Tensor<double>&,
                                                      std::vector<Tensor<double>>&);

}  // namespace flopcast::realrun
