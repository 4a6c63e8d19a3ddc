#include "realrun/network/embedding.hpp"

#include <utility>

namespace flopcast::realrun {

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
Positions<T>::Positions(std::string name, std::size_t sequence, std::size_t width, int index, int parts)
    : name_(std::move(name)), sequence_(sequence), width_(width), index_(index), parts_(parts) {}

template <class T>
void Positions<T>::declare(ParameterList& list) {
  offset_ = list.add({.name = name_ + ".positions",
                      .shard = whole_matrix(sequence_, width_),
                      .deviation = 0.1F,
                      .partial = parts_ > 1});
}

template <class T>
RowPositions Positions<T>::positions_of(std::size_t rows, const TokenSlice& slice) const {
  return {static_cast<std::size_t>(index_) * rows, slice.length(sequence_), slice.first(sequence_)};
}

template <class T>
Tensor<T> Positions<T>::forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const {
  Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
  pass.kernels->add_positions(input, positions_of(input.rows(), pass.slice), pass.weights + offset_, output);
  return output;
}

template <class T>
Tensor<T> Positions<T>::input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                                       Saved<T>& saved) const {
  saved.tensors = {output_gradient};
  return output_gradient;
}

template <class T>
void Positions<T>::weight_gradient(const Pass<T>& pass, Saved<T>& saved) const {
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
template class Positions<float>;
template class Positions<double>;
template class Features<float>;
template class Features<double>;

}  // namespace flopcast::realrun
