#include "realrun/network/layer.hpp"

#include <utility>

namespace flopcast::realrun {

template <class T>
Sequence<T>::Sequence(std::vector<LayerPointer<T>> layers) : layers_(std::move(layers)) {}

template <class T>
void Sequence<T>::declare(ParameterList& list) {
  for (const LayerPointer<T>& layer : layers_) layer->declare(list);
}

template <class T>
Tensor<T> Sequence<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  saved.parts.assign(layers_.size(), {});
  Tensor<T> flow = input;
  for (std::size_t index = 0; index < layers_.size(); ++index) {
    flow = layers_[index]->forward(flow, pass, saved.parts[index]);
    if (pass.poke) pass.poke();
  }
  return flow;
}

template <class T>
Tensor<T> Sequence<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  Tensor<T> flow = output_gradient;
  for (std::size_t index = layers_.size(); index-- > 0;) {
    flow = layers_[index]->input_gradient(flow, pass, saved.parts[index]);
    if (pass.poke) pass.poke();
  }
  return flow;
}

template <class T>
void Sequence<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  for (std::size_t index = layers_.size(); index-- > 0;) {
    layers_[index]->weight_gradient(pass, saved.parts[index]);
    saved.parts[index] = {};
    if (pass.poke) pass.poke();
  }
}

template <class T>
Residual<T>::Residual(LayerPointer<T> inner) : inner_(std::move(inner)) {}

template <class T>
void Residual<T>::declare(ParameterList& list) {
  inner_->declare(list);
}

namespace {

template <class T>
Tensor<T> sum_of(const Tensor<T>& a, const Tensor<T>& b, Kernels<T>& kernels) {
  Tensor<T> sum = kernels.tensor(a.rows(), a.columns());
  kernels.add(a, b, sum);
  return sum;
}

}  // namespace

template <class T>
Tensor<T> Residual<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  saved.parts.resize(1);
  return sum_of(input, inner_->forward(input, pass, saved.parts[0]), *pass.kernels);
}

template <class T>
Tensor<T> Residual<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const {
  return sum_of(output_gradient, inner_->input_gradient(output_gradient, pass, saved.parts[0]), *pass.kernels);
}

template <class T>
void Residual<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  inner_->weight_gradient(pass, saved.parts[0]);
}

template class Sequence<float>;
template class Sequence<double>;
template class Residual<float>;
template class Residual<double>;

}  // namespace flopcast::realrun
