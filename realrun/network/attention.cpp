#include "realrun/network/attention.hpp"

#include <map>
#include <utility>

#include "model/error/error.hpp"

namespace flopcast::realrun {

namespace {

template <class T>
std::vector<Tensor<T>> in_order(const std::map<int, Tensor<T>>& slices) {
  std::vector<Tensor<T>> tensors;
  for (const auto& [slice, tensor] : slices) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

template <class T>
CausalAttention<T>::CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence)
    : heads_(heads), head_dim_(head_dim), sequence_(sequence) {}

template <class T>
AttentionShape CausalAttention<T>::shape_of(const Pass<T>& pass) const {
  return {heads_, head_dim_, pass.slice.length(sequence_)};
}

template <class T>
Tensor<T> CausalAttention<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  const AttentionShape shape = shape_of(pass);
  FLOPCAST_CHECK(input.rows() % shape.length == 0 && input.columns() == 3 * heads_ * head_dim_);
  std::vector<Tensor<T>> slices = {input};
  if (pass.slices != nullptr) {
    pass.slices->inputs[this][pass.slice.index] = input;
    slices = in_order(pass.slices->inputs[this]);
  }
  FLOPCAST_CHECK(slices.size() * shape.length == pass.slice.first(sequence_) + shape.length);
  Tensor<T> output = pass.kernels->tensor(input.rows(), heads_ * head_dim_);
  std::vector<Tensor<T>> kept = pass.kernels->attention(shape, slices, output);
  saved.tensors = {input};
  saved.tensors.insert(saved.tensors.end(), kept.begin(), kept.end());
  return output;
}

template <class T>
Tensor<T> CausalAttention<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass,
                                             Saved<T>& saved) const {
  const AttentionShape shape = shape_of(pass);
  const std::vector<Tensor<T>> kept(saved.tensors.begin() + 1, saved.tensors.end());
  if (pass.slices == nullptr) {
    std::vector<Tensor<T>> gradients(1);
    pass.kernels->attention_gradient(shape, {saved.tensors[0]}, kept, output_gradient, gradients);
    saved.tensors.clear();  // there are no weights here
    return gradients.front();
  }
  std::map<int, Tensor<T>>& inputs = pass.slices->inputs[this];
  std::map<int, Tensor<T>>& found = pass.slices->gradients[this];
  // Slices behind this one have been here, and are gone.
  FLOPCAST_CHECK(inputs.size() * shape.length == pass.slice.first(sequence_) + shape.length);
  std::vector<Tensor<T>> gradients;
  for (const auto& [slice, tensor] : inputs) gradients.push_back(found[slice]);
  pass.kernels->attention_gradient(shape, in_order(inputs), kept, output_gradient, gradients);
  auto gradient = gradients.begin();
  for (const auto& [slice, tensor] : inputs) found[slice] = *gradient++;
  inputs.erase(pass.slice.index);
  found.erase(pass.slice.index);
  saved.tensors.clear();
  return gradients.back();
}

template class CausalAttention<float>;
template class CausalAttention<double>;

}  // namespace flopcast::realrun
