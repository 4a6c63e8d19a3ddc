#include "realrun/network/host_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace flopcast::realrun {

template <class T>
Kernels<T>& host_kernels() {
  static HostKernels<T> kernels;
  return kernels;
}

template Kernels<float>& host_kernels();
template Kernels<double>& host_kernels();

template <class T>
void HostKernels<T>::add(const Tensor<T>& a, const Tensor<T>& b, Tensor<T>& sum) {
  for (std::size_t index = 0; index < sum.size(); ++index) sum.data()[index] = a.data()[index] + b.data()[index];
}

template <class T>
void HostKernels<T>::add_bias(const Tensor<T>& x, const T* bias, Tensor<T>& y) {
  for (std::size_t row = 0; row < x.rows(); ++row) {
    for (std::size_t column = 0; column < x.columns(); ++column) y.row(row)[column] = x.row(row)[column] + bias[column];
  }
}

template <class T>
void HostKernels<T>::add_up_rows(const Tensor<T>& x, T* sums) {
  for (std::size_t row = 0; row < x.rows(); ++row) {
    for (std::size_t column = 0; column < x.columns(); ++column) sums[column] += x.row(row)[column];
  }
}

template <class T>
void HostKernels<T>::layer_norm(const Tensor<T>& x, const T* gain, const T* bias, Tensor<T>& normalised,
                                Tensor<T>& scale, Tensor<T>& y) {
  const std::size_t columns = x.columns();
  const auto width = static_cast<T>(columns);
  for (std::size_t row = 0; row < x.rows(); ++row) {
    const T* input = x.row(row);
    T mean = 0;
    for (std::size_t column = 0; column < columns; ++column) mean += input[column];
    mean /= width;
    T variance = 0;
    for (std::size_t column = 0; column < columns; ++column) {
      variance += (input[column] - mean) * (input[column] - mean);
    }
    const T factor = T(1) / std::sqrt(variance / width + T(1e-5));
    scale.data()[row] = factor;
    for (std::size_t column = 0; column < columns; ++column) {
      const T value = (input[column] - mean) * factor;
      normalised.row(row)[column] = value;
      y.row(row)[column] = gain[column] * value + bias[column];
    }
  }
}

template <class T>
void HostKernels<T>::layer_norm_input_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, const Tensor<T>& scale,
                                               const T* gain, Tensor<T>& dx) {
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
    const T factor = scale.data()[row];
    for (std::size_t column = 0; column < columns; ++column) {
      dx.row(row)[column] = factor * (given[column] * gain[column] - sum / width - value[column] * projection / width);
    }
  }
}

template <class T>
void HostKernels<T>::layer_norm_weight_gradient(const Tensor<T>& dy, const Tensor<T>& normalised, T* gain, T* bias) {
  for (std::size_t row = 0; row < normalised.rows(); ++row) {
    const T* given = dy.row(row);
    for (std::size_t column = 0; column < normalised.columns(); ++column) {
      gain[column] += given[column] * normalised.row(row)[column];
      bias[column] += given[column];
    }
  }
}

namespace {

// x times the logistic function of 2·√(2/π)·(x + 0.044715 x³), which is (1 + tanh(√(2/π)·…)) / 2.
template <class T>
class GeluPoint {
 public:
  explicit GeluPoint(T x) : x_(x) {
    // Beyond it the shares are 0 and 1 to the last bit; the exponential stays finite.
    constexpr T kFar = T(60);
    const T power = std::exp(std::min(kFar, std::max(-kFar, -kSlope * (x + kCubic * x * x * x))));
    share_ = T(1) / (T(1) + power);
    rest_ = power * share_;
  }
  T value() const { return x_ * share_; }
  T derivative() const { return share_ * (T(1) + x_ * rest_ * kSlope * (T(1) + T(3) * kCubic * x_ * x_)); }

 private:
  static constexpr T kCubic = T(0.044715);
  static constexpr T kSlope = T(2) * std::numbers::sqrt2_v<T> * std::numbers::inv_sqrtpi_v<T>;

  T x_;
  T share_;
  T rest_;  // 1 - share
};

}  // namespace

template <class T>
void HostKernels<T>::gelu(const Tensor<T>& x, Tensor<T>& y) {
  for (std::size_t index = 0; index < x.size(); ++index) y.data()[index] = GeluPoint<T>(x.data()[index]).value();
}

template <class T>
void HostKernels<T>::gelu_gradient(const Tensor<T>& dy, const Tensor<T>& x, Tensor<T>& dx) {
  for (std::size_t index = 0; index < x.size(); ++index) {
    dx.data()[index] = dy.data()[index] * GeluPoint<T>(x.data()[index]).derivative();
  }
}

namespace {

// The row of a token among those held here.
std::optional<std::size_t> place_of(int token, const VocabularyShare& share) {
  const auto place = static_cast<std::size_t>(token);
  if (place < share.first || place >= share.first + share.count) return std::nullopt;
  return place - share.first;
}

}  // namespace

template <class T>
void HostKernels<T>::look_up(const std::vector<int>& tokens, const VocabularyShare& share, const T* table,
                             Tensor<T>& rows) {
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

template <class T>
void HostKernels<T>::add_to_table(const std::vector<int>& tokens, const VocabularyShare& share, const Tensor<T>& rows,
                                  T* table) {
  const std::size_t width = rows.columns();
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto place = place_of(tokens[row], share);
    if (!place) continue;
    T* entry = table + *place * width;
    for (std::size_t column = 0; column < width; ++column) entry[column] += rows.row(row)[column];
  }
}

template <class T>
void HostKernels<T>::add_positions(const Tensor<T>& x, const RowPositions& positions, const T* table, Tensor<T>& y) {
  const std::size_t width = x.columns();
  for (std::size_t row = 0; row < x.rows(); ++row) {
    const T* position = table + positions.of(row) * width;
    for (std::size_t column = 0; column < width; ++column) y.row(row)[column] = x.row(row)[column] + position[column];
  }
}

template <class T>
void HostKernels<T>::add_to_positions(const Tensor<T>& dy, const RowPositions& positions, T* table) {
  const std::size_t width = dy.columns();
  for (std::size_t row = 0; row < dy.rows(); ++row) {
    T* position = table + positions.of(row) * width;
    for (std::size_t column = 0; column < width; ++column) position[column] += dy.row(row)[column];
  }
}

template <class T>
void HostKernels<T>::row_maxima(const Tensor<T>& logits, Tensor<T>& maxima) {
  for (std::size_t row = 0; row < logits.rows(); ++row) {
    maxima.data()[row] = *std::max_element(logits.row(row), logits.row(row) + logits.columns());
  }
}

template <class T>
void HostKernels<T>::exponentials(const Tensor<T>& logits, const Tensor<T>& maxima, const std::vector<int>& targets,
                                  const VocabularyShare& share, Tensor<T>& exponentials, Tensor<T>& sums,
                                  Tensor<T>& target_logits) {
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

template <class T>
Loss HostKernels<T>::normalise(Tensor<T>& exponentials, const Tensor<T>& sums, const Tensor<T>& target_logits) {
  double loss = 0;
  for (std::size_t row = 0; row < exponentials.rows(); ++row) {
    const T sum = sums.data()[row];
    for (std::size_t column = 0; column < exponentials.columns(); ++column) exponentials.row(row)[column] /= sum;
    loss += std::log(static_cast<double>(sum)) - static_cast<double>(target_logits.data()[row]);
  }
  const double mean = loss / static_cast<double>(exponentials.rows());
  return [mean] { return mean; };
}

template <class T>
void HostKernels<T>::cross_entropy_gradient(const Tensor<T>& probabilities, const std::vector<int>& targets,
                                            const VocabularyShare& share, T weight, Tensor<T>& gradient) {
  for (std::size_t row = 0; row < gradient.rows(); ++row) {
    for (std::size_t column = 0; column < gradient.columns(); ++column) {
      gradient.row(row)[column] = weight * probabilities.row(row)[column];
    }
    if (const auto place = place_of(targets[row], share)) gradient.row(row)[*place] -= weight;
  }
}

template class HostKernels<float>;
template class HostKernels<double>;

}  // namespace flopcast::realrun
