#include "realrun/network/cross_entropy.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace flopcast::realrun {

namespace {

// The column of a row's target among those held here.
std::optional<std::size_t> target_column(int target, int index, std::size_t columns) {
  const std::size_t first = static_cast<std::size_t>(index) * columns;
  const auto column = static_cast<std::size_t>(target);
  if (column < first || column >= first + columns) return std::nullopt;
  return column - first;
}

}  // namespace

template <class T>
Tensor<T> CrossEntropy<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  const std::size_t columns = input.columns();
  Tensor<T> largest(input.rows(), 1);
  for (std::size_t row = 0; row < input.rows(); ++row) {
    largest.data()[row] = *std::max_element(input.row(row), input.row(row) + columns);
  }
  largest = group_.all_reduce(largest, Reduction::kMax);
  Tensor<T> probabilities(input.rows(), columns);
  Tensor<T> sums(input.rows(), 1);
  Tensor<T> targets(input.rows(), 1);  // logit minus the largest
  for (std::size_t row = 0; row < input.rows(); ++row) {
    const T* x = input.row(row);
    const T maximum = largest.data()[row];
    for (std::size_t column = 0; column < columns; ++column) {
      probabilities.row(row)[column] = std::exp(x[column] - maximum);
      sums.data()[row] += probabilities.row(row)[column];
    }
    if (const auto column = target_column(pass.data->targets[row], group_.index(), columns)) {
      targets.data()[row] = x[*column] - maximum;
    }
  }
  sums = group_.all_reduce(sums);
  targets = group_.all_reduce(targets);
  double loss = 0;
  for (std::size_t row = 0; row < input.rows(); ++row) {
    const T sum = sums.data()[row];
    for (std::size_t column = 0; column < columns; ++column) probabilities.row(row)[column] /= sum;
    loss += std::log(static_cast<double>(sum)) - static_cast<double>(targets.data()[row]);
  }
  *pass.loss = loss / static_cast<double>(input.rows());
  saved.tensors = {probabilities};
  return {};
}

template <class T>
Tensor<T> CrossEntropy<T>::input_gradient(const Tensor<T>& /*output_gradient*/, const Pass<T>& pass,
                                          Saved<T>& saved) const {
  const Tensor<T>& probabilities = saved.tensors[0];
  Tensor<T> gradient(probabilities.rows(), probabilities.columns());
  const T weight = pass.loss_weight / static_cast<T>(probabilities.rows());
  for (std::size_t row = 0; row < gradient.rows(); ++row) {
    for (std::size_t column = 0; column < gradient.columns(); ++column) {
      gradient.row(row)[column] = weight * probabilities.row(row)[column];
    }
    if (const auto column = target_column(pass.data->targets[row], group_.index(), gradient.columns())) {
      gradient.row(row)[*column] -= weight;
    }
  }
  saved.tensors.clear();
  return gradient;
}

template class CrossEntropy<float>;
template class CrossEntropy<double>;

}  // namespace flopcast::realrun
