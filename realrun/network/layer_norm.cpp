#include "realrun/network/layer_norm.hpp"

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

template <class T>
Tensor<T> LayerNorm<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  Tensor<T> normalised = pass.kernels->tensor(input.rows(), width_);
  Tensor<T> scale = pass.kernels->tensor(input.rows(), 1);
  Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
  pass.kernels->layer_norm(input, pass.weights + gain_, pass.weights + bias_, normalised, scale, output);
  saved.tensors = {normalised, scale};
  return output;
}

template <class T>
Tensor<T> LayerNorm<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  saved.tensors.push_back(output_gradient);
  Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), width_);
  pass.kernels->layer_norm_input_gradient(output_gradient, saved.tensors[0], saved.tensors[1], pass.weights + gain_,
                                          gradient);
  return gradient;
}

template <class T>
void LayerNorm<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  pass.kernels->layer_norm_weight_gradient(saved.tensors[2], saved.tensors[0], pass.gradients + gain_,
                                           pass.gradients + bias_);
}

template <class T>
Tensor<T> Gelu<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  saved.tensors = {input};
  Tensor<T> output = pass.kernels->tensor(input.rows(), input.columns());
  pass.kernels->gelu(input, output);
  return output;
}

template <class T>
Tensor<T> Gelu<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), output_gradient.columns());
  pass.kernels->gelu_gradient(output_gradient, saved.tensors[0], gradient);
  saved.tensors.clear();
  return gradient;
}

template class LayerNorm<float>;
template class LayerNorm<double>;
template class Gelu<float>;
template class Gelu<double>;

}  // namespace flopcast::realrun
