#pragma once

#include <cstddef>

#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

/// Causal softmax attention over sequences of `sequence` rows each. A row of the input holds, head by head, query, key
/// and value of `head_dim` features each (so a contiguous share of the columns is a share of the heads); a row of the
/// output the heads' results. Scores are scaled by 1/sqrt(head_dim). What the backward pass keeps is the kernels'
/// choice. A slice of the sequences attends to the slices before it as well, whose gradients it leaves for them (Li et
/// al. 2102.07988 §3.1). Left out: dropout, key/value heads fewer than query heads.
template <class T>
class CausalAttention : public Layer<T> {
 public:
  CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence);
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;

 private:
  AttentionShape shape_of(const Pass<T>& pass) const;

  std::size_t heads_ = 0;
  std::size_t head_dim_ = 0;
  std::size_t sequence_ = 0;
};

}  // namespace flopcast::realrun
