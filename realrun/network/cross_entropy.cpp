#include "realrun/network/cross_entropy.hpp"

namespace flopcast::realrun {

namespace {

VocabularyShare share_of(const TensorGroup& group, std::size_t columns) {
  return {static_cast<std::size_t>(group.index()) * columns, columns};
}

}  // namespace

template <class T>
Tensor<T> CrossEntropy<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  Kernels<T>& kernels = *pass.kernels;
  Tensor<T> largest = kernels.tensor(input.rows(), 1);
  kernels.row_maxima(input, largest);
  largest = group_.all_reduce(largest, Reduction::kMax);
  Tensor<T> probabilities = kernels.tensor(input.rows(), input.columns());
  Tensor<T> sums = kernels.tensor(input.rows(), 1);
  Tensor<T> targets = kernels.tensor(input.rows(), 1);
  kernels.exponentials(input, largest, pass.data->targets, share_of(group_, input.columns()), probabilities, sums,
                       targets);
  sums = group_.all_reduce(sums);
  targets = group_.all_reduce(targets);
  *pass.loss = kernels.normalise(probabilities, sums, targets);
  saved.tensors = {probabilities};
  return {};
}

template <class T>
Tensor<T> CrossEntropy<T>::input_gradient(const Tensor<T>& /*output_gradient*/, const Pass<T>& pass,
                                          Saved<T>& saved) const {
  const Tensor<T>& probabilities = saved.tensors[0];
  Tensor<T> gradient = pass.kernels->tensor(probabilities.rows(), probabilities.columns());
  const T weight = pass.loss_weight / static_cast<T>(probabilities.rows());
  pass.kernels->cross_entropy_gradient(probabilities, pass.data->targets, share_of(group_, probabilities.columns()),
                                       weight, gradient);
  saved.tensors.clear();
  return gradient;
}

template class CrossEntropy<float>;
template class CrossEntropy<double>;

}  // namespace flopcast::realrun
