#include "realrun/network/layers.hpp"

#include <cmath>
#include <map>
#include <utility>

#include "base/text/error.hpp"
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
AttentionExtent CausalAttention<T>::shape_of(const Pass<T>& pass) const {
  return {heads_, head_dim_, pass.slice.length(sequence_)};
}

template <class T>
Tensor<T> CausalAttention<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const {
  const AttentionExtent shape = shape_of(pass);
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
  const AttentionExtent shape = shape_of(pass);
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

template <class T>
Embedding<T>::Embedding(std::string parameter, const Shard& shard, float deviation)
    : parameter_(std::move(parameter)), shard_(shard), deviation_(deviation) {}

template <class T>
void Embedding<T>::declare(ParameterList& list) {
  offset_ = list.add({.name = parameter_, .shard = shard_, .deviation = deviation_});
}

template <class T>
Tensor<T> Embedding<T>::forward(const Tensor<T>& /*input*/, const Pass<T>& pass, Saved<T>& /*saved*/) const {
  Tensor<T> output = pass.kernels->tensor(pass.data->tokens.size(), shard_.columns);
  pass.kernels->look_up(pass.data->tokens, {shard_.first_row, shard_.rows}, pass.weights + offset_, output);
  return output;
}

template <class T>
Tensor<T> Embedding<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                                       Saved<T>& saved) const {
  saved.tensors = {output_gradient};
  return {};
}

template <class T>
void Embedding<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  pass.kernels->add_to_table(pass.data->tokens, {shard_.first_row, shard_.rows}, saved.tensors[0],
                             pass.gradients + offset_);
}

template <class T>
LearnedPositions<T>::LearnedPositions(std::string name, std::size_t sequence, std::size_t width, int index, int parts)
    : name_(std::move(name)), sequence_(sequence), width_(width), index_(index), parts_(parts) {}

template <class T>
void LearnedPositions<T>::declare(ParameterList& list) {
  offset_ = list.add({.name = name_ + ".positions",
                      .shard = whole_matrix(sequence_, width_),
                      .deviation = 0.1F,
                      .partial = parts_ > 1});
}

template <class T>
RowPositions LearnedPositions<T>::positions_of(std::size_t rows, const TokenSlice& slice) const {
  return {static_cast<std::size_t>(index_) * rows, slice.length(sequence_), slice.first(sequence_)};
}

template <class T>
Tensor<T> LearnedPositions<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const {
  Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
  pass.kernels->add_positions(input, positions_of(input.rows(), pass.slice), pass.weights + offset_, output);
  return output;
}

template <class T>
Tensor<T> LearnedPositions<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                                              Saved<T>& saved) const {
  saved.tensors = {output_gradient};
  return output_gradient;
}

template <class T>
void LearnedPositions<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
  const Tensor<T>& output_gradient = saved.tensors[0];
  pass.kernels->add_to_positions(output_gradient, positions_of(output_gradient.rows(), pass.slice),
                                 pass.gradients + offset_);
}

template <class T>
Tensor<T> Features<T>::forward(const Tensor<T>& /*input*/, const Pass<T>& pass, Saved<T>& /*saved*/) const {
  const std::vector<int>& tokens = pass.data->tokens;
  Tensor<T> output(tokens.size(), width_);
  for (std::size_t row = 0; row < tokens.size(); ++row) {
    const auto token = static_cast<std::uint64_t>(tokens[row]);
    for (std::size_t column = 0; column < width_; ++column) {
      const std::uint64_t hash = mix(token * 0x10001U + column);
      output.row(row)[column] = static_cast<T>(static_cast<double>(hash >> 11U) * 0x1p-52 - 1.0);
    }
  }
  return output;
}

template <class T>
Tensor<T> Features<T>::input_gradient(const Tensor<T>& /*output_gradient*/, const Pass<T>& /*pass*/,
                                      Saved<T>& /*saved*/) const {
  return {};
}

template class Embedding<float>;
template class Embedding<double>;
template class LearnedPositions<float>;
template class LearnedPositions<double>;
template class Features<float>;
template class Features<double>;

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
