#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// The layers inside are not trained: gradients pass through, and their parameters have no gradients.
template <class T>
class Frozen : public Layer<T> {
 public:
  enum class Below { kTrained, kFrozen };
  /// If nothing `below` is trained there is no backward pass: nothing is kept for one, and the returned input gradient
  /// is not used.
  explicit Frozen(LayerPointer<T> inner, Below below = Below::kTrained)
      : inner_(std::move(inner)), no_backward_(below == Below::kFrozen) {}
  void declare(ParameterList& list) override {
    const bool frozen = list.freezes();
    list.freeze(true);
    inner_->declare(list);
    list.freeze(frozen);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    Saved<T> dropped;
    return inner_->forward(input, pass, no_backward_ ? dropped : saved);
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    if (no_backward_) return output_gradient;
    Tensor<T> gradient = inner_->input_gradient(output_gradient, pass, saved);
    saved = {};
    return gradient;
  }

 private:
  LayerPointer<T> inner_;
  bool no_backward_ = false;
};

/// A low-rank adapter for some outputs of a linear: in each group of `group_width` outputs, `width` of them starting at
/// `first`.
struct AdapterSpec {
  std::string name;  ///< suffix to the name of the linear
  std::size_t rank = 1;
  double scale = 1.0;      ///< alpha / rank
  std::size_t groups = 1;  ///< of the whole linear; a multiple of the tensor-parallel ranks
  std::size_t group_width = 1;
  std::size_t first = 0;
  std::size_t width = 1;

  bool whole() const { return width == group_width; }
};

/// How tensor-parallel ranks split the weight of a linear.
enum class LinearCut { kOutputs, kInputs };

/// y = linear(x) + scale·(x·Aᵀ)·Bᵀ for each adapter, with A of r x inputs and B of outputs x r (LoRA, Hu et al.
/// 2106.09685 §4.1). A starts uniform within ±1/sqrt(inputs), B at zero, as in PEFT. Each tensor-parallel rank holds a
/// part of A and of B:
///
///   cut by   A              B             forward                  backward
///   outputs  by its rows    by outputs    x·Aᵀ is gathered         its gradient is reduced and scattered
///   inputs   by its inputs  by its rank   x·Aᵀ is reduced and      its gradient is gathered
///            columns        columns       scattered
///
/// These send (t-1)/t · rows · r elements per adapter and pass; the sums of the linear itself include the adapters.
/// Products are kept transposed, r rows of tokens, so that ranks split them by rows.
template <class T>
class Adapted : public Layer<T> {
 public:
  /// `linear` is frozen; `name` and `inputs` are those of the whole linear.
  Adapted(LayerPointer<T> linear, std::string name, std::size_t inputs, const std::vector<AdapterSpec>& specs,
          const TensorGroup& group, LinearCut cut)
      : linear_(std::move(linear)), name_(std::move(name)), inputs_(inputs), group_(group), cut_(cut) {
    for (const AdapterSpec& spec : specs) {
      Adapter adapter;
      const std::size_t outputs = spec.groups * spec.width;
      const bool by_outputs = cut == LinearCut::kOutputs;
      const auto share = by_outputs ? rows_of : columns_of;
      adapter.a = share(spec.rank, inputs, group.index(), group.size());
      adapter.b = share(outputs, spec.rank, group.index(), group.size());
      FLOPCAST_CHECK(by_outputs || spec.whole());
      adapter.spec = spec;
      adapters_.push_back(std::move(adapter));
    }
  }
  void declare(ParameterList& list) override {
    linear_->declare(list);
    // A uniform variable on [-a, a] has standard deviation a / sqrt(3).
    const float deviation = 1.0F / std::sqrt(3.0F * static_cast<float>(inputs_));
    for (Adapter& adapter : adapters_) {
      const std::string name = name_ + "." + adapter.spec.name;
      adapter.a_offset =
          list.add({.name = name + ".lora_a", .shard = adapter.a, .deviation = deviation, .multiplies = true});
      adapter.b_offset = list.add({.name = name + ".lora_b", .shard = adapter.b, .multiplies = true});
    }
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    Kernels<T>& kernels = *pass.kernels;
    Saved<T> nothing;
    Tensor<T> output = linear_->forward(input, pass, nothing);
    saved.tensors = {input};
    for (const Adapter& adapter : adapters_) {
      Tensor<T> inner = kernels.tensor(adapter.a.rows, input.rows());
      kernels.multiply(weight_view(pass, adapter.a, adapter.a_offset), input.view(Transposed::kYes), inner.target(),
                       T(1), false);
      inner = cut_ == LinearCut::kOutputs ? group_.gather_rows(inner) : group_.scatter_rows(inner);
      saved.tensors.push_back(inner);
      Tensor<T> part = outputs_of(adapter, output, pass);
      kernels.multiply(inner.view(Transposed::kYes), weight_view(pass, adapter.b, adapter.b_offset, Transposed::kYes),
                       part.target(), scale(adapter), true);
      if (!adapter.spec.whole()) kernels.copy(packed(adapter, std::as_const(part)), spread(adapter, output));
    }
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    Kernels<T>& kernels = *pass.kernels;
    Saved<T> nothing;
    Tensor<T> gradient = linear_->input_gradient(output_gradient, pass, nothing);
    for (const Adapter& adapter : adapters_) {
      const Tensor<T> part = outputs_of(adapter, output_gradient, pass);
      saved.tensors.push_back(part);
      Tensor<T> inner = kernels.tensor(adapter.b.columns, output_gradient.rows());
      kernels.multiply(weight_view(pass, adapter.b, adapter.b_offset, Transposed::kYes), part.view(Transposed::kYes),
                       inner.target(), scale(adapter), false);
      inner = cut_ == LinearCut::kOutputs ? group_.scatter_rows(inner) : group_.gather_rows(inner);
      saved.tensors.push_back(inner);
      kernels.multiply(inner.view(Transposed::kYes), weight_view(pass, adapter.a, adapter.a_offset), gradient.target(),
                       T(1), true);
    }
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const std::size_t count = adapters_.size();
    for (std::size_t index = 0; index < count; ++index) {
      const Adapter& adapter = adapters_[index];
      const Tensor<T>& inner = saved.tensors[1 + index];
      const Tensor<T>& part = saved.tensors[1 + count + 2 * index];
      const Tensor<T>& inner_gradient = saved.tensors[2 + count + 2 * index];
      pass.kernels->multiply(inner_gradient.view(), saved.tensors[0].view(),
                             gradient_view(pass, adapter.a, adapter.a_offset), T(1), true);
      pass.kernels->multiply(part.view(Transposed::kYes), inner.view(Transposed::kYes),
                             gradient_view(pass, adapter.b, adapter.b_offset), scale(adapter), true);
    }
  }

 private:
  struct Adapter {
    AdapterSpec spec;
    Shard a;
    Shard b;
    std::size_t a_offset = 0;
    std::size_t b_offset = 0;
  };

  static T scale(const Adapter& adapter) { return static_cast<T>(adapter.spec.scale); }
  // The adapter's columns: the outputs themselves if it covers all of them, otherwise a packed copy.
  Tensor<T> outputs_of(const Adapter& adapter, const Tensor<T>& outputs, const Pass<T>& pass) const {
    if (adapter.spec.whole()) return outputs;
    Tensor<T> part = pass.kernels->tensor(outputs.rows(), adapter.b.rows);
    pass.kernels->copy(spread(adapter, outputs), packed(adapter, part));
    return part;
  }
  // View with one row per group of outputs: a token's row holds all of its groups.
  template <class Outputs>
  static auto spread(const Adapter& adapter, Outputs& outputs) {
    const AdapterSpec& spec = adapter.spec;
    return view_of(outputs.data() + spec.first, outputs.size() / spec.group_width, spec.width, spec.group_width);
  }
  template <class Outputs>
  static auto packed(const Adapter& adapter, Outputs& part) {
    return view_of(part.data(), part.size() / adapter.spec.width, adapter.spec.width, adapter.spec.width);
  }
  template <class E>
  static MatrixView<E> view_of(E* data, std::size_t rows, std::size_t columns, std::size_t stride) {
    return {data, rows, columns, stride};
  }

  LayerPointer<T> linear_;
  std::string name_;
  std::size_t inputs_ = 0;
  const TensorGroup& group_;
  LinearCut cut_;
  std::vector<Adapter> adapters_;
};

/// Keeps only its input, and repeats the forward pass of the layers inside before the backward pass (Chen et al.
/// 1604.06174; Korthikanti et al. 2205.05198 §5): the same weights give the same activations, to the bit.
template <class T>
class Recomputed : public Layer<T> {
 public:
  /// With `group` each of its ranks keeps an equal part of the input, which all of them hold, and gathers the whole
  /// again (partitioned checkpoints, Narayanan et al. 2104.04473 §3.5).
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
    // A partitioned layer has outputs as wide as its inputs.
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

/// Two layers, of which the second does not keep the first one's output: it is recomputed from the first one's input
/// before the backward pass. For a norm followed by a linear, this recomputes only the norm.
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
