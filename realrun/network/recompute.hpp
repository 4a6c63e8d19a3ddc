#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// Keeps its input only, and passes it through what is inside once more before the backward pass (Chen et al.
/// 1604.06174; Korthikanti et al. 2205.05198 §5): with the same weights the same activations, to the bit.
template <class T>
class Recomputed : public Layer<T> {
 public:
  /// With `group` each of its ranks keeps an equal part of the input, which all of them hold alike, and gathers the
  /// whole again (partitioned checkpoints, Narayanan et al. 2104.04473 §3.5).
  explicit Recomputed(LayerPointer<T> inner, const TensorGroup* group = nullptr)
      : inner_(std::move(inner)), group_(group) {}
  void declare(ParameterList& list) override { inner_->declare(list); }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {group_ == nullptr ? input : group_->own_part(input)};
    Saved<T> dropped;
    return inner_->forward(input, pass, dropped);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    FLOPCAST_CHECK(saved.tensors.size() == 1);
    Tensor<T> input = saved.tensors.front();
    // Its output is as wide as its input where it is cut.
    if (group_ != nullptr) input = group_->from_parts(input, output_gradient.rows(), output_gradient.columns());
    saved.tensors.clear();
    saved.parts.assign(1, {});
    inner_->forward(input, pass, saved.parts.front());
    return inner_->input_gradient(output_gradient, pass, saved.parts.front());
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    inner_->weight_gradient(pass, saved.parts.front());
  }

 private:
  LayerPointer<T> inner_;
  const TensorGroup* group_ = nullptr;
};

/// Two layers, of which the second does not keep the output of the first: that is made again, from its input, before
/// the backward pass. Of a norm and a linear, the recomputation of the norm alone.
template <class T>
class RebuiltBetween : public Layer<T> {
 public:
  RebuiltBetween(LayerPointer<T> first, LayerPointer<T> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  void declare(ParameterList& list) override {
    first_->declare(list);
    second_->declare(list);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {input};
    saved.parts.assign(2, {});
    Saved<T> dropped;
    const Tensor<T> between = first_->forward(input, pass, dropped);
    Tensor<T> output = second_->forward(between, pass, saved.parts[1]);
    replace(saved.parts[1], between.buffer().address(), {});
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    FLOPCAST_CHECK(saved.tensors.size() == 1);
    const Tensor<T> between = first_->forward(saved.tensors.front(), pass, saved.parts[0]);
    saved.tensors.clear();
    replace(saved.parts[1], nullptr, between);
    return first_->input_gradient(second_->input_gradient(output_gradient, pass, saved.parts[1]), pass, saved.parts[0]);
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    second_->weight_gradient(pass, saved.parts[1]);
    first_->weight_gradient(pass, saved.parts[0]);
  }

 private:
  static void replace(Saved<T>& saved, const std::byte* address, const Tensor<T>& other) {
    for (Tensor<T>& tensor : saved.tensors) {
      if (tensor.buffer().address() == address) tensor = other;
    }
    for (Saved<T>& part : saved.parts) replace(part, address, other);
  }

  LayerPointer<T> first_;
  LayerPointer<T> second_;
};

}  // namespace flopcast::realrun
