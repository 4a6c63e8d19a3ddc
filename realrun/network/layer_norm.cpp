#include "realrun/network/layer_norm.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace flopcast::realrun {

template <class T>
LayerNorm<T>::LayerNorm(std::string name, std::size_t width, bool partial)
    : name_(std::move(name)), width_(width), partial_(partial) {}

template <class T>
void LayerNorm<T>::declare(ParameterList& list) {
  const Shard shard = whole_matrix(1, width_);
  gain_ = list.add({.name = name_ + ".gain", .shard = shard, .value = 1, .partial = partial_});
  bias_ = list.add({.name = name_ + ".bias", .shard = shard, .partial = partial_});
}

// Keeps the normalised rows and 1 / deviation of each.
template <class T>
Tensor<T> LayerNorm<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  const auto width = static_cast<T>(width_);
  Tensor<T> normalised(input.rows(), width_);
  Tensor<T> scale(input.rows(), 1);
  Tensor<T> output(input.rows(), width_);
  const T* gain = pass.weights + gain_;
  const T* bias = pass.weights + bias_;
  for (std::size_t row = 0; row < input.rows(); ++row) {
    const T* x = input.row(row);
    T mean = 0;
    for (std::size_t column = 0; column < width_; ++column) mean += x[column];
    mean /= width;
    T variance = 0;
    for (std::size_t column = 0; column < width_; ++column) variance += (x[column] - mean) * (x[column] - mean);
    const T factor = T(1) / std::sqrt(variance / width + T(1e-5));
    scale.data()[row] = factor;
    for (std::size_t column = 0; column < width_; ++column) {
      const T value = (x[column] - mean) * factor;
      normalised.row(row)[column] = value;
      output.row(row)[column] = gain[column] * value + bias[column];
    }
  }
  saved.tensors = {normalised, scale};
  return output;
}

template <class T>
Tensor<T> LayerNorm<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  saved.tensors.push_back(output_gradient);
  const Tensor<T>& normalised = saved.tensors[0];
  const auto width = static_cast<T>(width_);
  const T* gain = pass.weights + gain_;
  Tensor<T> gradient(output_gradient.rows(), width_);
  for (std::size_t row = 0; row < gradient.rows(); ++row) {
    const T* dy = output_gradient.row(row);
    const T* value = normalised.row(row);
    T sum = 0;
    T projection = 0;
    for (std::size_t column = 0; column < width_; ++column) {
      const T scaled = dy[column] * gain[column];
      sum += scaled;
      projection += scaled * value[column];
    }
    const T factor = saved.tensors[1].data()[row];
    for (std::size_t column = 0; column < width_; ++column) {
      gradient.row(row)[column] =
          factor * (dy[column] * gain[column] - sum / width - value[column] * projection / width);
    }
  }
  return gradient;
}

template <class T>
void LayerNorm<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  const Tensor<T>& normalised = saved.tensors[0];
  const Tensor<T>& output_gradient = saved.tensors[2];
  for (std::size_t row = 0; row < normalised.rows(); ++row) {
    const T* dy = output_gradient.row(row);
    for (std::size_t column = 0; column < width_; ++column) {
      pass.gradients[gain_ + column] += dy[column] * normalised.row(row)[column];
      pass.gradients[bias_ + column] += dy[column];
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
Tensor<T> Gelu<T>::forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& saved) const {
  saved.tensors = {input};
  Tensor<T> output(input.rows(), input.columns());
  for (std::size_t index = 0; index < input.size(); ++index) {
    output.data()[index] = GeluPoint<T>(input.data()[index]).value();
  }
  return output;
}

template <class T>
Tensor<T> Gelu<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const {
  const Tensor<T>& input = saved.tensors[0];
  Tensor<T> gradient(input.rows(), input.columns());
  for (std::size_t index = 0; index < input.size(); ++index) {
    gradient.data()[index] = output_gradient.data()[index] * GeluPoint<T>(input.data()[index]).derivative();
  }
  saved.tensors.clear();
  return gradient;
}

template class LayerNorm<float>;
template class LayerNorm<double>;
template class Gelu<float>;
template class Gelu<double>;

}  // namespace flopcast::realrun
