#include <fmt/format.h>
#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "realrun/device/arithmetic.hpp"
#include "realrun/network/kernels.hpp"

#ifdef FLOPCAST_HAS_OPENBLAS
#include <cblas.h>
#endif

namespace flopcast::realrun {

namespace {

template <class T>
using Matrix = Eigen::Matrix<std::remove_const_t<T>, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

auto map(const auto& view) {
  using Element = std::remove_pointer_t<decltype(view.data)>;
  using Mapped = std::conditional_t<std::is_const_v<Element>, const Matrix<Element>, Matrix<Element>>;
  return Eigen::Map<Mapped, 0, Eigen::OuterStride<>>(view.data, static_cast<Eigen::Index>(view.rows),
                                                     static_cast<Eigen::Index>(view.columns),
                                                     Eigen::OuterStride<>(static_cast<Eigen::Index>(view.stride)));
}

template <class T>
void multiply_with_eigen(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result,
                         T factor, bool accumulate) {
  const auto left = map(a);
  const auto right = map(b);
  auto out = map(result);
  if (!accumulate) out.setZero();
  const bool left_transposed = a.transposed == Transposed::kYes;
  const bool right_transposed = b.transposed == Transposed::kYes;
  if (left_transposed && right_transposed) {
    out.noalias() += factor * left.transpose() * right.transpose();
  } else if (left_transposed) {
    out.noalias() += factor * left.transpose() * right;
  } else if (right_transposed) {
    out.noalias() += factor * left * right.transpose();
  } else {
    out.noalias() += factor * left * right;
  }
}

#ifdef FLOPCAST_HAS_OPENBLAS
void multiply_with_openblas(const MatrixView<const float>& a, const MatrixView<const float>& b,
                            const MatrixView<float>& result, float factor, bool accumulate) {
  static const bool one_thread = (openblas_set_num_threads(1), true);
  static_cast<void>(one_thread);
  const auto transposition = [](Transposed t) { return t == Transposed::kYes ? CblasTrans : CblasNoTrans; };
  const std::size_t inner = a.transposed == Transposed::kYes ? a.rows : a.columns;
  cblas_sgemm(CblasRowMajor, transposition(a.transposed), transposition(b.transposed),
              static_cast<blasint>(result.rows), static_cast<blasint>(result.columns), static_cast<blasint>(inner),
              factor, a.data, static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride),
              accumulate ? 1.0F : 0.0F, result.data, static_cast<blasint>(result.stride));
}
#endif

}  // namespace

template <class T>
void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor,
              bool accumulate) {
#ifdef FLOPCAST_HAS_OPENBLAS
  if constexpr (std::is_same_v<T, float>) {
    multiply_with_openblas(a, b, result, factor, accumulate);
    return;
  }
#endif
  multiply_with_eigen(a, b, result, factor, accumulate);
}

template void multiply(const MatrixView<const float>&, const MatrixView<const float>&, const MatrixView<float>&, float,
                       bool);
template void multiply(const MatrixView<const double>&, const MatrixView<const double>&, const MatrixView<double>&,
                       double, bool);

ProductLibrary product_library() {
#ifdef FLOPCAST_HAS_OPENBLAS
  return {"OpenBLAS", openblas_get_config()};
#else
  return {"Eigen", fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION)};
#endif
}

namespace {

// Row of a token in this rank's share of the table.
std::optional<std::size_t> place_of(int token, const VocabularyShare& share) {
  const auto place = static_cast<std::size_t>(token);
  if (place < share.first || place >= share.first + share.count) return std::nullopt;
  return place - share.first;
}

/// Scores of `rows` queries over `columns` keys; the queries are at the last positions of the keys.
struct ScoreShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  AttentionMask mask;

  std::size_t position(std::size_t row) const { return columns - rows + row; }
  std::size_t first_seen(std::size_t row) const { return mask.first_seen(position(row)); }
  std::size_t end_seen(std::size_t row) const { return mask.end_seen(position(row), columns); }
};

struct HeadColumns {
  std::size_t query = 0;
  std::size_t key = 0;
  std::size_t value = 0;
};

/// One head of one sequence.
struct HeadPlace {
  const AttentionExtent& attention;
  ScoreShape scores;
  std::size_t first_row = 0;  // first row of the sequence in every slice's tensors
  std::size_t head = 0;

  HeadColumns columns() const {
    const HeadLayout& heads = attention.heads;
    return {heads.query(head), heads.key(head), heads.value(head)};
  }
  // First row of its scores among those of all heads of all sequences.
  std::size_t score_row() const { return first_row * attention.heads.heads + head * attention.length; }
};

// The rows of one sequence and the columns of one part of one head.
template <class View, class Tensor>
View block(Tensor& tensor, const HeadPlace& place, std::size_t column, Transposed transposed = Transposed::kNo) {
  return {tensor.data() + place.first_row * tensor.columns() + column, place.attention.length,
          place.attention.heads.head_dim, tensor.columns(), transposed};
}

template <class T>
T scale_of(const AttentionExtent& shape) {
  return T(1) / std::sqrt(static_cast<T>(shape.heads.head_dim));
}

template <class T>
void add_linear_biases(T* scores, const ScoreShape& shape, T slope) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    for (std::size_t column = 0; column < shape.columns; ++column) {
      const T distance = static_cast<T>(column) - static_cast<T>(shape.position(row));
      scores[row * shape.columns + column] += slope * distance;
    }
  }
}

// Columns masked for a row become zero.
template <class T>
void masked_softmax(T* scores, const ScoreShape& shape) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    T* values = scores + row * shape.columns;
    const std::size_t first = shape.first_seen(row);
    const std::size_t end = shape.end_seen(row);
    const T largest = *std::max_element(values + first, values + end);
    T sum = 0;
    for (std::size_t column = first; column < end; ++column) {
      values[column] = std::exp(values[column] - largest);
      sum += values[column];
    }
    for (std::size_t column = 0; column < shape.columns; ++column) {
      values[column] = column >= first && column < end ? values[column] / sum : T(0);
    }
  }
}

// dS = P ∘ (dP - rowsum(dP ∘ P)); replaces dP.
template <class T>
void softmax_gradient(const T* probabilities, T* gradient, const ScoreShape& shape) {
  for (std::size_t row = 0; row < shape.rows; ++row) {
    const T* p = probabilities + row * shape.columns;
    T* d = gradient + row * shape.columns;
    T projection = 0;
    for (std::size_t column = shape.first_seen(row); column < shape.end_seen(row); ++column) {
      projection += p[column] * d[column];
    }
    for (std::size_t column = 0; column < shape.columns; ++column) d[column] = p[column] * (d[column] - projection);
  }
}

// Attention of one head's queries in one sequence over the keys and values of every slice so far.
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
  const LinearBiases& biases = place.attention.biases;
  if (biases.heads > 0) {
    add_linear_biases(scores, shape, static_cast<T>(biases.slope(biases.first_head + place.head)));
  }
  masked_softmax(scores, shape);
  part = scores;
  for (const Tensor<T>& values : slices) {
    multiply(In{part, length, length, shape.columns}, block<In>(values, place, columns.value),
             block<Out>(output, place, place.head * place.attention.heads.head_dim), T(1), true);
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
    multiply(block<In>(output_gradient, place, place.head * place.attention.heads.head_dim),
             block<In>(values, place, place.columns().value, Transposed::kYes),
             Out{part, shape.rows, shape.rows, shape.columns});
    part += shape.rows;
  }
  softmax_gradient(probabilities.row(place.score_row()), scores.data(), shape);
}

// Computes the gradients of queries, keys and values from that of the scores.
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
             block<In>(output_gradient, place, place.head * place.attention.heads.head_dim),
             block<Out>(gradient, place, columns.value), T(1), true);
    p += length;
    s += length;
  }
}

template <class T>
class HostKernels : public Kernels<T> {
 public:
  /// Zeroed.
  Tensor<T> tensor(std::size_t rows, std::size_t columns) override { return Tensor<T>(rows, columns); }
  void multiply(const MatrixView<const T>& a, const MatrixView<const T>& b, const MatrixView<T>& result, T factor,
                bool accumulate) override {
    realrun::multiply(a, b, result, factor, accumulate);
  }
  void add(const Tensor<T>& a, const Tensor<T>& b, Tensor<T>& sum) override {
    for (std::size_t index = 0; index < sum.size(); ++index) sum.data()[index] = a.data()[index] + b.data()[index];
  }
  void add_bias(const Tensor<T>& x, const T* bias, Tensor<T>& y) override {
    for (std::size_t row = 0; row < x.rows(); ++row) {
      for (std::size_t column = 0; column < x.columns(); ++column)
        y.row(row)[column] = x.row(row)[column] + bias[column];
    }
  }
  void add_up_rows(const Tensor<T>& x, T* sums) override {
    for (std::size_t row = 0; row < x.rows(); ++row) {
      for (std::size_t column = 0; column < x.columns(); ++column) sums[column] += x.row(row)[column];
    }
  }
  void norm(const Tensor<T>& x, const T* gain, const T* bias, Tensor<T>& normalised, Tensor<T>& scale,
            Tensor<T>& y) override {
    const std::size_t columns = x.columns();
    const auto width = static_cast<T>(columns);
    for (std::size_t row = 0; row < x.rows(); ++row) {
      const T* input = x.row(row);
      const T mean = bias == nullptr ? T(0) : std::accumulate(input, input + columns, T(0)) / width;
      T squares = 0;
      for (std::size_t column = 0; column < columns; ++column) {
        squares += (input[column] - mean) * (input[column] - mean);
      }
      const T factor = T(1) / std::sqrt(squares / width + T(1e-5));
      scale.data()[row] = factor;
      for (std::size_t column = 0; column < columns; ++column) {
        const T value = (input[column] - mean) * factor;
        normalised.row(row)[column] = value;
        y.row(row)[column] = gain[column] * value + (bias == nullptr ? T(0) : bias[column]);
      }
    }
  }
  void norm_input_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, const Tensor<T>& scale, const T* gain,
                           bool centred, Tensor<T>& dx) override {
    const std::size_t columns = dy.columns();
    const auto width = static_cast<T>(columns);
    for (std::size_t row = 0; row < dx.rows(); ++row) {
      const T* given = dy.row(row);
      const T* value = normalised.row(row);
      T sum = 0;
      T projection = 0;
      for (std::size_t column = 0; column < columns; ++column) {
        const T scaled = given[column] * gain[column];
        sum += scaled;
        projection += scaled * value[column];
      }
      const T mean = centred ? sum / width : T(0);
      const T factor = scale.data()[row];
      for (std::size_t column = 0; column < columns; ++column) {
        dx.row(row)[column] = factor * (given[column] * gain[column] - mean - value[column] * projection / width);
      }
    }
  }
  void norm_weight_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, T* gain, T* bias) override {
    for (std::size_t row = 0; row < normalised.rows(); ++row) {
      for (std::size_t column = 0; column < normalised.columns(); ++column) {
        gain[column] += dy.row(row)[column] * normalised.row(row)[column];
      }
    }
    if (bias != nullptr) add_up_rows(dy, bias);
  }
  void gelu(const Tensor<T>& x, Tensor<T>& y) override {
    for (std::size_t index = 0; index < x.size(); ++index) y.data()[index] = GeluPoint<T>(x.data()[index]).value();
  }
  void gelu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) override {
    for (std::size_t index = 0; index < x.size(); ++index) {
      dx.data()[index] = dy.data()[index] * GeluPoint<T>(x.data()[index]).derivative();
    }
  }
  void gated_silu(const Tensor<T>& x, Tensor<T>& y) override {
    for (std::size_t index = 0; index < y.size(); ++index) gated_silu_at(x.data(), y.data(), index);
  }
  void gated_silu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) override {
    for (std::size_t index = 0; index < dy.size(); ++index) {
      gated_silu_gradient_at(dy.data(), x.data(), dx.data(), index);
    }
  }
  void copy(const MatrixView<const T>& from, const MatrixView<T>& to) override {
    for (std::size_t row = 0; row < from.rows; ++row) {
      std::copy_n(from.data + row * from.stride, from.columns, to.data + row * to.stride);
    }
  }
  void rotate_heads(const Tensor<T>& x, const HeadLayout& heads, const RowPositions& positions, T direction,
                    Tensor<T>& y) override {
    const std::size_t half = heads.head_dim / 2;
    std::vector<T> cosines(half);
    std::vector<T> sines(half);
    for (std::size_t row = 0; row < x.rows(); ++row) {
      for (std::size_t pair = 0; pair < half; ++pair) {
        const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(pair) / static_cast<double>(2 * half));
        const double angle = static_cast<double>(positions.of(row)) * frequency;
        cosines[pair] = static_cast<T>(std::cos(angle));
        sines[pair] = direction * static_cast<T>(std::sin(angle));
      }
      const T* from = x.row(row);
      T* to = y.row(row);
      for (std::size_t slot = 0; slot < x.columns() / heads.head_dim; ++slot) {
        const bool is_value = slot % (heads.group() + 2) == heads.group() + 1;
        for (std::size_t pair = 0; pair < half; ++pair) {
          const T a = from[pair];
          const T b = from[pair + half];
          to[pair] = is_value ? a : a * cosines[pair] - b * sines[pair];
          to[pair + half] = is_value ? b : a * sines[pair] + b * cosines[pair];
        }
        from += heads.head_dim;
        to += heads.head_dim;
      }
    }
  }
  /// Keeps the probabilities.
  std::vector<Tensor<T>> attention(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                                   Tensor<T>& output) override {
    const ScoreShape scores{shape.length, slices.size() * shape.length, shape.mask};
    Tensor<T> probabilities(output.rows() * shape.heads.heads, scores.columns);
    std::fill_n(output.data(), output.size(), T(0));
    for (std::size_t row = 0; row < output.rows(); row += shape.length) {
      for (std::size_t head = 0; head < shape.heads.heads; ++head) {
        attend({shape, scores, row, head}, slices, probabilities, output);
      }
    }
    return {probabilities};
  }
  void attention_gradient(const AttentionExtent& shape, const std::vector<Tensor<T>>& slices,
                          const std::vector<Tensor<T>>& kept, const Tensor<T>& output_gradient,
                          std::vector<Tensor<T>>& gradients) override {
    const Tensor<T>& probabilities = kept.front();
    const ScoreShape scores{shape.length, probabilities.columns(), shape.mask};
    for (std::size_t slice = 0; slice < slices.size(); ++slice) {
      if (gradients[slice].empty()) gradients[slice] = Tensor<T>(slices[slice].rows(), slices[slice].columns());
    }
    Tensor<T> score_gradients(shape.length, scores.columns);
    for (std::size_t row = 0; row < output_gradient.rows(); row += shape.length) {
      for (std::size_t head = 0; head < shape.heads.heads; ++head) {
        const HeadPlace place{shape, scores, row, head};
        score_gradient(place, output_gradient, slices, probabilities, score_gradients);
        spread_gradient(place, output_gradient, slices, probabilities, score_gradients, gradients);
      }
    }
  }
  void look_up(const std::vector<int>& tokens, const VocabularyShare& share, const T* table, Tensor<T>& rows) override {
    const std::size_t width = rows.columns();
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const auto place = place_of(tokens[row], share);
      if (!place) {
        std::fill_n(rows.row(row), width, T(0));
        continue;
      }
      const T* entry = table + *place * width;
      std::copy_n(entry, width, rows.row(row));
    }
  }
  void add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<T>& rows,
                    T* table) override {
    const std::size_t width = rows.columns();
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      const auto place = place_of(tokens[row], share);
      if (!place) continue;
      T* entry = table + *place * width;
      for (std::size_t column = 0; column < width; ++column) entry[column] += rows.row(row)[column];
    }
  }
  void add_positions(const Tensor<T>& x, const RowPositions& positions, const T* table, Tensor<T>& y) override {
    const std::size_t width = x.columns();
    for (std::size_t row = 0; row < x.rows(); ++row) {
      const T* position = table + positions.of(row) * width;
      for (std::size_t column = 0; column < width; ++column) y.row(row)[column] = x.row(row)[column] + position[column];
    }
  }
  void add_to_positions(const Tensor<T>& dy, const RowPositions& positions, T* table) override {
    const std::size_t width = dy.columns();
    for (std::size_t row = 0; row < dy.rows(); ++row) {
      T* position = table + positions.of(row) * width;
      for (std::size_t column = 0; column < width; ++column) position[column] += dy.row(row)[column];
    }
  }
  void row_maxima(const Tensor<T>& logits, Tensor<T>& maxima) override {
    for (std::size_t row = 0; row < logits.rows(); ++row) {
      maxima.data()[row] = *std::max_element(logits.row(row), logits.row(row) + logits.columns());
    }
  }
  void exponentials(const Tensor<T>& logits, const Tensor<T>& maxima, const std::vector<int>& targets,
                    const VocabularyShare& share, Tensor<T>& exponentials, Tensor<T>& sums,
                    Tensor<T>& target_logits) override {
    for (std::size_t row = 0; row < logits.rows(); ++row) {
      const T* x = logits.row(row);
      const T maximum = maxima.data()[row];
      T sum = 0;
      for (std::size_t column = 0; column < logits.columns(); ++column) {
        exponentials.row(row)[column] = std::exp(x[column] - maximum);
        sum += exponentials.row(row)[column];
      }
      sums.data()[row] = sum;
      const auto place = place_of(targets[row], share);
      target_logits.data()[row] = place ? x[*place] - maximum : T(0);
    }
  }
  Loss normalise(Tensor<T>& exponentials, const Tensor<T>& sums, const Tensor<T>& target_logits) override {
    double loss = 0;
    for (std::size_t row = 0; row < exponentials.rows(); ++row) {
      const T sum = sums.data()[row];
      for (std::size_t column = 0; column < exponentials.columns(); ++column) exponentials.row(row)[column] /= sum;
      loss += std::log(static_cast<double>(sum)) - static_cast<double>(target_logits.data()[row]);
    }
    const double mean = loss / static_cast<double>(exponentials.rows());
    return [mean] { return mean; };
  }
  void cross_entropy_gradient(const Tensor<T>& probabilities, const std::vector<int>& targets,
                              const VocabularyShare& share, T weight, Tensor<T>& gradient) override {
    for (std::size_t row = 0; row < gradient.rows(); ++row) {
      for (std::size_t column = 0; column < gradient.columns(); ++column) {
        gradient.row(row)[column] = weight * probabilities.row(row)[column];
      }
      if (const auto place = place_of(targets[row], share)) gradient.row(row)[*place] -= weight;
    }
  }
};

}  // namespace

double LinearBiases::slope(std::size_t head) const {
  std::size_t power = 1;
  while (2 * power <= heads) power *= 2;
  const bool above = head >= power;
  const double place = above ? static_cast<double>(2 * (head - power) + 1) : static_cast<double>(head + 1);
  return std::exp2(-8.0 * place / static_cast<double>(above ? 2 * power : power));
}

template <class T>
Kernels<T>& host_kernels() {
  static HostKernels<T> kernels;
  return kernels;
}

template Kernels<float>& host_kernels();
template Kernels<double>& host_kernels();

}  // namespace flopcast::realrun
