#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "realrun/network/adapters.hpp"
#include "realrun/network/layers.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// Communication between tensor-parallel parts of a network as a layer: one operation of the group in the forward pass,
/// and its transpose in the backward pass (Shoeybi et al. 1909.08053 §3).
template <class T, class Ranks = TensorGroup>
class GroupLayer : public Layer<T> {
 public:
  using Operation = Tensor<T> (Ranks::*)(const Tensor<T>&) const;

  GroupLayer(const Ranks& group, Operation there, Operation back) : group_(group), forward_(there), backward_(back) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& /*pass*/, Saved<T>& /*saved*/) const override {
    return (group_.*forward_)(input);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/,
                           Saved<T>& /*saved*/) const override {
    return (group_.*backward_)(output_gradient);
  }

 private:
  const Ranks& group_;
  Operation forward_;
  Operation backward_;
};

/// Applied to the input of a column linear: "f", or with sequence parallelism (Korthikanti et al. 2205.05198 §4.2) an
/// all-gather of the rows, whose reverse is a reduce-scatter.
template <class T>
LayerPointer<T> enter_group(const TensorForm& form) {
  if (!form.shares_rows()) {
    return std::make_unique<GroupLayer<T>>(*form.group, &TensorGroup::keep<T>, &TensorGroup::sum<T>);
  }
  return std::make_unique<GroupLayer<T>>(*form.group, &TensorGroup::gather_rows<T>, &TensorGroup::scatter_rows<T>);
}

/// Applied to the output of a row linear: "g", or with sequence parallelism a reduce-scatter of the rows.
template <class T>
LayerPointer<T> leave_group(const TensorForm& form) {
  if (!form.shares_rows()) {
    return std::make_unique<GroupLayer<T>>(*form.group, &TensorGroup::sum<T>, &TensorGroup::keep<T>);
  }
  return std::make_unique<GroupLayer<T>>(*form.group, &TensorGroup::scatter_rows<T>, &TensorGroup::gather_rows<T>);
}

/// A gather of the rows combined with the linear after it: only this rank's rows of the input are kept, and they are
/// gathered again for the weight gradient.
template <class T>
class GatheredLinear : public Layer<T> {
 public:
  GatheredLinear(const TensorGroup& group, LayerPointer<T> linear) : group_(group), linear_(std::move(linear)) {}
  void declare(ParameterList& list) override { linear_->declare(list); }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.resize(1);
    Tensor<T> output = linear_->forward(group_.gather_rows(input), pass, saved.parts[0]);
    // A frozen linear keeps nothing.
    if (!saved.parts[0].tensors.empty()) saved.parts[0].tensors[0] = input;
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return group_.scatter_rows(linear_->input_gradient(output_gradient, pass, saved.parts[0]));
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    if (saved.parts[0].tensors.empty()) return;
    saved.parts[0].tensors[0] = group_.gather_rows(saved.parts[0].tensors[0]);
    linear_->weight_gradient(pass, saved.parts[0]);
  }

 private:
  const TensorGroup& group_;
  LayerPointer<T> linear_;
};

/// y = x·Wᵀ for W of `outputs` rows and `inputs` columns.
struct LinearSpec {
  std::string name;
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  bool frozen = false;
  std::vector<AdapterSpec> adapters = {};  ///< added to a frozen linear
};

/// The linear without communication, its weight split by rows or by columns.
template <class T>
LayerPointer<T> linear_of(const LinearSpec& spec, const TensorGroup& group, LinearCut cut) {
  const auto share = cut == LinearCut::kOutputs ? rows_of : columns_of;
  LayerPointer<T> linear =
      std::make_unique<Linear<T>>(spec.name, share(spec.outputs, spec.inputs, group.index(), group.size()));
  if (!spec.frozen) return linear;
  linear = std::make_unique<Frozen<T>>(std::move(linear));
  if (spec.adapters.empty()) return linear;
  return std::make_unique<Adapted<T>>(std::move(linear), spec.name, spec.inputs, spec.adapters, group, cut);
}

/// The two linears of a pair on a line of tensor-parallel ranks, without biases; in between, each rank has its own
/// features. Traffic: tests/support/tensor_line.hpp.
///
///   column   W split by rows, the outputs. Input: all features, of all rows or with sequence parallelism this rank's
///   row      W split by columns, the inputs. Output: the sum over the ranks, of all rows or this rank's
template <class T>
LayerPointer<T> column_linear(const LinearSpec& spec, const TensorForm& form) {
  const TensorGroup& group = *form.group;
  LayerPointer<T> linear = linear_of<T>(spec, group, LinearCut::kOutputs);
  if (form.shares_rows()) return std::make_unique<GatheredLinear<T>>(group, std::move(linear));
  return sequence<T>(enter_group<T>(form), std::move(linear));
}

template <class T>
LayerPointer<T> row_linear(const LinearSpec& spec, const TensorForm& form) {
  return sequence<T>(linear_of<T>(spec, *form.group, LinearCut::kInputs), leave_group<T>(form));
}

}  // namespace flopcast::realrun
