#include "realrun/network/linear.hpp"

#include <cmath>
#include <utility>

#include "realrun/network/gemm.hpp"

namespace flopcast::realrun {

namespace {

template <class T>
MatrixView<const T> view(const Tensor<T>& tensor, Transposed transposed = Transposed::kNo) {
  return {tensor.data(), tensor.rows(), tensor.columns(), tensor.columns(), transposed};
}

template <class T>
MatrixView<T> result_view(Tensor<T>& tensor) {
  return {tensor.data(), tensor.rows(), tensor.columns(), tensor.columns()};
}

}  // namespace

template <class T>
Linear<T>::Linear(const std::string& name, const Shard& shard)
    : Linear(name + ".weight", shard, 1.0F / std::sqrt(static_cast<float>(shard.whole_columns))) {}

template <class T>
Linear<T>::Linear(std::string parameter, const Shard& shard, float deviation)
    : parameter_(std::move(parameter)), shard_(shard), deviation_(deviation) {}

template <class T>
void Linear<T>::declare(ParameterList& list) {
  offset_ = list.add({.name = parameter_, .shard = shard_, .deviation = deviation_});
}

template <class T>
Tensor<T> Linear<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  saved.tensors = {input};
  Tensor<T> output = pass.kernels->tensor(input.rows(), shard_.rows);
  const MatrixView<const T> weight{pass.weights + offset_, shard_.rows, shard_.columns, shard_.columns,
                                   Transposed::kYes};
  pass.kernels->multiply(view(input), weight, result_view(output), T(1), false);
  return output;
}

template <class T>
Tensor<T> Linear<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  saved.tensors.push_back(output_gradient);
  Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), shard_.columns);
  const MatrixView<const T> weight{pass.weights + offset_, shard_.rows, shard_.columns, shard_.columns};
  pass.kernels->multiply(view(output_gradient), weight, result_view(gradient), T(1), false);
  return gradient;
}

template <class T>
void Linear<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  const MatrixView<T> gradient{pass.gradients + offset_, shard_.rows, shard_.columns, shard_.columns};
  pass.kernels->multiply(view(saved.tensors[1], Transposed::kYes), view(saved.tensors[0]), gradient, T(1), true);
}

template <class T>
Bias<T>::Bias(std::string name, const Shard& shard, bool partial)
    : name_(std::move(name)), shard_(shard), partial_(partial) {}

template <class T>
void Bias<T>::declare(ParameterList& list) {
  // Not zero: a bias that stays at its start by mistake would go unnoticed.
  offset_ = list.add({.name = name_ + ".bias", .shard = shard_, .deviation = 0.02F, .partial = partial_});
}

template <class T>
Tensor<T> Bias<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const {
  Tensor<T> output = pass.kernels->tensor(input.rows(), input.columns());
  pass.kernels->add_bias(input, pass.weights + offset_, output);
  return output;
}

template <class T>
Tensor<T> Bias<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const {
  saved.tensors = {output_gradient};
  return output_gradient;
}

template <class T>
void Bias<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  pass.kernels->add_up_rows(saved.tensors[0], pass.gradients + offset_);
}

template class Linear<float>;
template class Linear<double>;
template class Bias<float>;
template class Bias<double>;

}  // namespace flopcast::realrun
