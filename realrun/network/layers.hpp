#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "model/workload/transformer.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// y = x·Wᵀ with W of `shard` (rows: outputs, columns: inputs). The bias is a separate layer, because a tensor-parallel
/// row linear adds it after the sum over the ranks. Initial deviation 1/sqrt(inputs of the whole matrix) unless given.
template <class T>
class Linear : public Layer<T> {
 public:
  Linear(const std::string& name, const Shard& shard)
      : Linear(name + ".weight", shard, 1.0F / std::sqrt(static_cast<float>(shard.whole_columns))) {}
  /// For a parameter that another layer also declares: takes exactly its name and deviation.
  Linear(std::string parameter, const Shard& shard, float deviation)
      : parameter_(std::move(parameter)), shard_(shard), deviation_(deviation) {}
  /// Marks its weights as those of an expert.
  void belong_to_expert() { of_experts_ = true; }
  /// Excludes its products from 8-bit arithmetic.
  void exclude_from_float8() { wide_ = true; }
  void declare(ParameterList& list) override {
    offset_ = list.add(
        {.name = parameter_, .shard = shard_, .deviation = deviation_, .multiplies = true, .of_experts = of_experts_});
    frozen_ = list.freezes();
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    if (!frozen_) saved.tensors = {input};
    Tensor<T> output = pass.kernels->tensor(input.rows(), shard_.rows);
    pass.kernels->multiply(input.view(Transposed::kNo, Float8::kE4m3),
                           weight_view(pass, shard_, offset_, Transposed::kYes, float8()), output.target(), T(1),
                           false);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    if (!frozen_) saved.tensors.push_back(output_gradient);
    Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), shard_.columns);
    pass.kernels->multiply(output_gradient.view(Transposed::kNo, Float8::kE5m2),
                           weight_view(pass, shard_, offset_, Transposed::kNo, float8()), gradient.target(), T(1),
                           false);
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    if (frozen_) return;
    pass.kernels->multiply(saved.tensors[1].view(Transposed::kYes, Float8::kE5m2),
                           saved.tensors[0].view(Transposed::kNo, float8()), gradient_view(pass, shard_, offset_), T(1),
                           true);
  }

 private:
  Float8 float8() const { return wide_ ? Float8::kNo : Float8::kE4m3; }

  std::string parameter_;
  Shard shard_;
  float deviation_ = 0;
  bool of_experts_ = false;
  bool wide_ = false;
  bool frozen_ = false;  // keeps nothing for weight_gradient()
  std::size_t offset_ = 0;
};

/// y = x + b.
template <class T>
class Bias : public Layer<T> {
 public:
  /// `partial`: see Parameter.
  Bias(std::string name, const Shard& shard, bool partial = false)
      : name_(std::move(name)), shard_(shard), partial_(partial) {}
  void belong_to_expert() { of_experts_ = true; }
  void declare(ParameterList& list) override {
    // Nonzero, because a bias that is never updated by mistake would go unnoticed.
    offset_ = list.add(
        {.name = name_ + ".bias", .shard = shard_, .deviation = 0.02F, .partial = partial_, .of_experts = of_experts_});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    Tensor<T> output = pass.kernels->tensor(input.rows(), input.columns());
    pass.kernels->add_bias(input, pass.weights + offset_, output);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    saved.tensors = {output_gradient};
    return output_gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    pass.kernels->add_up_rows(saved.tensors[0], pass.gradients + offset_);
  }

 private:
  std::string name_;
  Shard shard_;
  bool partial_ = false;
  bool of_experts_ = false;
  std::size_t offset_ = 0;
};

/// Norm over the features of a row; see Kernels::norm.
template <class T>
class RowNorm : public Layer<T> {
 public:
  /// `partial`: see Parameter.
  RowNorm(std::string name, std::size_t width, Norm kind, bool partial = false)
      : name_(std::move(name)), width_(width), centred_(kind == Norm::kLayerNorm), partial_(partial) {}
  void declare(ParameterList& list) override {
    const Shard shard = whole_matrix(1, width_);
    gain_ = list.add({.name = name_ + ".gain", .shard = shard, .value = 1, .partial = partial_});
    if (centred_) bias_ = list.add({.name = name_ + ".bias", .shard = shard, .partial = partial_});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    Tensor<T> normalised = pass.kernels->tensor(input.rows(), width_);
    Tensor<T> scale = pass.kernels->tensor(input.rows(), 1);
    Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
    pass.kernels->norm(input, pass.weights + gain_, centred_ ? pass.weights + bias_ : nullptr, normalised, scale,
                       output);
    saved.tensors = {normalised, scale};
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors.push_back(output_gradient);
    Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), width_);
    pass.kernels->norm_input_gradient(output_gradient, saved.tensors[0], saved.tensors[1], pass.weights + gain_,
                                      centred_, gradient);
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    pass.kernels->norm_weight_gradient(saved.tensors[2], saved.tensors[0], pass.gradients + gain_,
                                       centred_ ? pass.gradients + bias_ : nullptr);
  }

 private:
  std::string name_;
  std::size_t width_ = 0;
  bool centred_ = true;
  bool partial_ = false;
  std::size_t gain_ = 0;
  std::size_t bias_ = 0;
};

/// GELU y = x/2·(1 + tanh(√(2/π)·(x + 0.044715 x³))), the form of GPT-2 (Hendrycks & Gimpel 1606.08415 §2): one
/// exponential and no branches, so that its time does not depend on the data, unlike the error function of the exact
/// form. Gated: SwiGLU (Shazeer 2002.05202 §2), for each pair of columns the second times silu(x) = x / (1 + e^-x) of
/// the first. Gate and value are adjacent so that a contiguous share of the columns is a share of the pairs.
template <class T>
class Activation : public Layer<T> {
 public:
  explicit Activation(bool gated) : gated_(gated) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {input};
    Tensor<T> output = pass.kernels->tensor(input.rows(), input.columns() / (gated_ ? 2 : 1));
    gated_ ? pass.kernels->gated_silu(input, output) : pass.kernels->gelu(input, output);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T> input = std::exchange(saved.tensors, {}).front();
    Tensor<T> gradient = pass.kernels->tensor(input.rows(), input.columns());
    gated_ ? pass.kernels->gated_silu_gradient(output_gradient, input, gradient)
           : pass.kernels->gelu_gradient(output_gradient, input, gradient);
    return gradient;
  }

 private:
  bool gated_ = false;
};

/// Rotary positions of queries and keys (Su et al. 2104.09864), over whole sequences of `sequence` rows or slices of
/// them. The gradient rotates back.
template <class T>
class RotaryPositions : public Layer<T> {
 public:
  RotaryPositions(const HeadLayout& heads, std::size_t sequence) : heads_(heads), sequence_(sequence) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    return turned(input, pass, T(1));
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    return turned(output_gradient, pass, T(-1));
  }

 private:
  Tensor<T> turned(const Tensor<T>& x, const Pass<T>& pass, T direction) const {
    Tensor<T> y = pass.kernels->tensor(x.rows(), x.columns());
    const RowPositions positions = positions_of(sequence_, 0, pass.slice, pass.context);
    pass.kernels->rotate_heads(x, heads_, positions, direction, y);
    return y;
  }

  HeadLayout heads_;
  std::size_t sequence_ = 0;
};

/// Norms of queries and keys; values stay unchanged (Henry et al. 2010.04245). Either over each head, with weights
/// shared by all heads, or over all heads together.
template <class T>
class QueryKeyNorm : public Layer<T> {
 public:
  QueryKeyNorm(const std::string& name, const HeadLayout& heads, Norm kind, bool over_all_heads, bool partial)
      : heads_(heads),
        queries_(name + ".query_norm", heads.head_dim * (over_all_heads ? heads.heads : 1), kind, partial),
        keys_(name + ".key_norm", heads.head_dim * (over_all_heads ? heads.kv_heads : 1), kind, partial),
        over_all_heads_(over_all_heads) {}
  void declare(ParameterList& list) override {
    queries_.declare(list);
    keys_.declare(list);
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.parts.assign(2, {});
    return apply(input, pass, [&](const RowNorm<T>& norm, const Tensor<T>& x, std::size_t part) {
      return norm.forward(x, pass, saved.parts[part]);
    });
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    return apply(output_gradient, pass, [&](const RowNorm<T>& norm, const Tensor<T>& dy, std::size_t part) {
      return norm.input_gradient(dy, pass, saved.parts[part]);
    });
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    queries_.weight_gradient(pass, saved.parts[0]);
    keys_.weight_gradient(pass, saved.parts[1]);
  }

 private:
  // Extracts queries and keys from the rows, applies `work` to them, and puts them back.
  template <class Work>
  Tensor<T> apply(const Tensor<T>& whole, const Pass<T>& pass, Work work) const {
    Tensor<T> result = pass.kernels->tensor(whole.rows(), whole.columns());
    pass.kernels->copy(whole.view(), result.target());
    const std::size_t of_group = heads_.group() * heads_.head_dim;
    apply_to(whole, result, {queries_, 0, 0, of_group}, pass, work);
    apply_to(whole, result, {keys_, 1, of_group, heads_.head_dim}, pass, work);
    return result;
  }
  struct Part {
    const RowNorm<T>& norm;
    std::size_t index;
    std::size_t first;  // column within each group
    std::size_t width;
  };
  template <class Work>
  void apply_to(const Tensor<T>& whole, Tensor<T>& result, const Part& part, const Pass<T>& pass, Work work) const {
    const std::size_t rows = whole.rows();
    const std::size_t all = part.width * heads_.kv_heads;
    const std::size_t width = over_all_heads_ ? all : heads_.head_dim;
    Tensor<T> packed = pass.kernels->tensor(rows * all / width, width);
    const auto columns = [rows](auto* data, std::size_t count, std::size_t stride) {
      return MatrixView<std::remove_pointer_t<decltype(data)>>{data, rows, count, stride};
    };
    for (std::size_t group = 0; group < heads_.kv_heads; ++group) {
      const T* from = whole.data() + group * heads_.group_width() + part.first;
      pass.kernels->copy(columns(from, part.width, whole.columns()),
                         columns(packed.data() + group * part.width, part.width, all));
    }
    const Tensor<T> done = work(part.norm, packed, part.index);
    for (std::size_t group = 0; group < heads_.kv_heads; ++group) {
      T* to = result.data() + group * heads_.group_width() + part.first;
      pass.kernels->copy(columns(done.data() + group * part.width, part.width, all),
                         columns(to, part.width, whole.columns()));
    }
  }

  HeadLayout heads_;
  RowNorm<T> queries_;
  RowNorm<T> keys_;
  bool over_all_heads_ = false;
};

/// Softmax attention over sequences of `sequence` rows each. An input row is laid out as a HeadLayout, so a contiguous
/// share of the columns is a share of the heads; an output row holds the query heads' results. Scores are scaled by
/// 1/sqrt(head_dim). The kernels decide what the backward pass keeps. A slice of the sequences also attends to the
/// slices before it, and leaves their gradients for them (Li et al. 2102.07988 §3.1). Left out: dropout.
template <class T>
class Attention : public Layer<T> {
 public:
  /// `extent.length` is the length of whole sequences.
  explicit Attention(const AttentionExtent& extent) : extent_(extent), sequence_(extent.length) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    const AttentionExtent shape = shape_of(pass);
    FLOPCAST_CHECK(input.rows() % shape.length == 0 && input.columns() == extent_.heads.width());
    std::vector<Tensor<T>> slices = {input};
    if (pass.slices != nullptr) {
      pass.slices->inputs[this][pass.slice.index] = input;
      slices = in_order(pass.slices->inputs[this]);
    }
    FLOPCAST_CHECK(slices.size() * shape.length == pass.slice.first(sequence_) + shape.length);
    Tensor<T> output = pass.kernels->tensor(input.rows(), extent_.heads.heads * extent_.heads.head_dim);
    std::vector<Tensor<T>> kept = pass.kernels->attention(shape, slices, output);
    saved.tensors = {input};
    saved.tensors.insert(saved.tensors.end(), kept.begin(), kept.end());
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    const AttentionExtent shape = shape_of(pass);
    const std::vector<Tensor<T>> kept(saved.tensors.begin() + 1, saved.tensors.end());
    if (pass.slices == nullptr) {
      std::vector<Tensor<T>> gradients(1);
      pass.kernels->attention_gradient(shape, {saved.tensors[0]}, kept, output_gradient, gradients);
      saved.tensors.clear();  // this layer has no weights
      return gradients.front();
    }
    std::map<int, Tensor<T>>& inputs = pass.slices->inputs[this];
    std::map<int, Tensor<T>>& found = pass.slices->gradients[this];
    // Later slices have finished and removed their entries.
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

 private:
  static std::vector<Tensor<T>> in_order(const std::map<int, Tensor<T>>& slices) {
    std::vector<Tensor<T>> tensors;
    for (const auto& [slice, tensor] : slices) tensors.push_back(tensor);
    return tensors;
  }
  AttentionExtent shape_of(const Pass<T>& pass) const {
    AttentionExtent shape = extent_;
    shape.length = pass.slice.length(sequence_);
    return shape;
  }

  AttentionExtent extent_;
  std::size_t sequence_ = 0;
};

/// The table rows of the microbatch's tokens; zero for tokens outside this rank's share of the vocabulary (`shard` of
/// rows), so that summing over the ranks gives the whole.
template <class T>
class Embedding : public Layer<T> {
 public:
  Embedding(std::string parameter, const Shard& shard, float deviation)
      : parameter_(std::move(parameter)), shard_(shard), deviation_(deviation) {}
  void declare(ParameterList& list) override {
    offset_ = list.add({.name = parameter_, .shard = shard_, .deviation = deviation_});
  }
  Tensor<T> forward(const Tensor<T>& /*input*/, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    Tensor<T> output = pass.kernels->tensor(pass.data->tokens.size(), shard_.columns);
    pass.kernels->look_up(pass.data->tokens, {shard_.first_row, shard_.rows}, pass.weights + offset_, output);
    return output;
  }
  /// Returns an empty tensor: tokens have no gradient.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    saved.tensors = {output_gradient};
    return {};
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    pass.kernels->add_to_table(pass.data->tokens, {shard_.first_row, shard_.rows}, saved.tensors[0],
                               pass.gradients + offset_);
  }

 private:
  std::string parameter_;
  Shard shard_;
  float deviation_ = 0;
  std::size_t offset_ = 0;
};

/// y = x + p[position]: learned positions. Rows may be one of `parts` equal shares (sequence parallelism), or of a
/// slice of the sequences.
template <class T>
class LearnedPositions : public Layer<T> {
 public:
  /// `table`: this rank's part of a table with one row per position; sequences may be shorter.
  LearnedPositions(std::string name, const Shard& table, std::size_t sequence, int index = 0, int parts = 1)
      : name_(std::move(name)), table_(table), sequence_(sequence), index_(index), parts_(parts) {}
  void declare(ParameterList& list) override {
    offset_ = list.add({.name = name_ + ".positions", .shard = table_, .deviation = 0.1F, .partial = parts_ > 1});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    Tensor<T> output = pass.kernels->tensor(input.rows(), table_.columns);
    pass.kernels->add_positions(input, places_of(input.rows(), pass), pass.weights + offset_, output);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    saved.tensors = {output_gradient};
    return output_gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& output_gradient = saved.tensors[0];
    pass.kernels->add_to_positions(output_gradient, places_of(output_gradient.rows(), pass), pass.gradients + offset_);
  }

 private:
  RowPositions places_of(std::size_t rows, const Pass<T>& pass) const {
    return positions_of(sequence_, static_cast<std::size_t>(index_) * rows, pass.slice, pass.context);
  }

  std::string name_;
  Shard table_;
  std::size_t sequence_ = 0;
  int index_ = 0;
  int parts_ = 1;
  std::size_t offset_ = 0;
};

/// Mean over the rows of -log softmax(x)[target]. The columns may be this rank's share of the vocabulary: maximum, sum
/// of exponentials and target logit are then reduced over the ranks (Megatron's vocabulary-parallel loss). Ends a
/// stage: there is no output, and the gradient starts here.
template <class T>
class CrossEntropy : public Layer<T> {
 public:
  explicit CrossEntropy(const TensorGroup& group) : group_(group) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    Kernels<T>& kernels = *pass.kernels;
    Tensor<T> largest = kernels.tensor(input.rows(), 1);
    kernels.row_maxima(input, largest);
    largest = group_.maximum(largest);
    Tensor<T> probabilities = kernels.tensor(input.rows(), input.columns());
    Tensor<T> sums = kernels.tensor(input.rows(), 1);
    Tensor<T> targets = kernels.tensor(input.rows(), 1);
    kernels.exponentials(input, largest, pass.data->targets, share_of(input), probabilities, sums, targets);
    sums = group_.sum(sums);
    targets = group_.sum(targets);
    *pass.loss = kernels.normalise(probabilities, sums, targets);
    saved.tensors = {probabilities};
    return {};
  }
  Tensor<T> input_gradient(const Tensor<T>& /*output_gradient*/, const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& probabilities = saved.tensors[0];
    Tensor<T> gradient = pass.kernels->tensor(probabilities.rows(), probabilities.columns());
    const T weight = pass.loss_weight / static_cast<T>(probabilities.rows());
    pass.kernels->cross_entropy_gradient(probabilities, pass.data->targets, share_of(probabilities), weight, gradient);
    saved.tensors.clear();
    return gradient;
  }

 private:
  // The share of the vocabulary that matches the columns.
  VocabularyShare share_of(const Tensor<T>& logits) const {
    return {static_cast<std::size_t>(group_.index()) * logits.columns(), logits.columns()};
  }

  const TensorGroup& group_;
};

}  // namespace flopcast::realrun
