#pragma once

#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// The mean over the rows of -log softmax(x)[target]. The columns may be this rank's share of the vocabulary: maximum,
/// sum of exponentials and target logit are then reduced over the ranks (Megatron's vocabulary-parallel loss).
/// Ends a stage: there is no output, and the gradient starts here.
template <class T>
class CrossEntropy : public Layer<T> {
 public:
  explicit CrossEntropy(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;

 private:
  const TensorGroup& group_;
};

}  // namespace flopcast::realrun
