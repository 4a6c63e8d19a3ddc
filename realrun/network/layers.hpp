#pragma once

#include <cmath>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// y = x·Wᵀ with W of `shard` (rows: outputs, columns: inputs). The bias is a layer of its own, because a
/// tensor-parallel row linear adds it after the sum over the ranks.
/// Initial deviation 1/sqrt(inputs of the whole matrix) unless given.
template <class T>
class Linear : public Layer<T> {
 public:
  Linear(const std::string& name, const Shard& shard)
      : Linear(name + ".weight", shard, 1.0F / std::sqrt(static_cast<float>(shard.whole_columns))) {}
  /// For a parameter that another layer declares too: exactly its name and deviation.
  Linear(std::string parameter, const Shard& shard, float deviation)
      : parameter_(std::move(parameter)), shard_(shard), deviation_(deviation) {}
  void declare(ParameterList& list) override {
    offset_ = list.add({.name = parameter_, .shard = shard_, .deviation = deviation_, .multiplies = true});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {input};
    Tensor<T> output = pass.kernels->tensor(input.rows(), shard_.rows);
    const MatrixView<const T> weight = weight_of(pass, Transposed::kYes);
    pass.kernels->multiply(input.view(), weight, output.target(), T(1), false);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors.push_back(output_gradient);
    Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), shard_.columns);
    const MatrixView<const T> weight = weight_of(pass, Transposed::kNo);
    pass.kernels->multiply(output_gradient.view(), weight, gradient.target(), T(1), false);
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const MatrixView<T> gradient{pass.gradients + offset_, shard_.rows, shard_.columns, shard_.columns};
    pass.kernels->multiply(saved.tensors[1].view(Transposed::kYes), saved.tensors[0].view(), gradient, T(1), true);
  }

 private:
  MatrixView<const T> weight_of(const Pass<T>& pass, Transposed transposed) const {
    return {.data = pass.weights + offset_,
            .rows = shard_.rows,
            .columns = shard_.columns,
            .stride = shard_.columns,
            .transposed = transposed,
            .lasting = true};
  }

  std::string parameter_;
  Shard shard_;
  float deviation_ = 0;
  std::size_t offset_ = 0;
};

/// y = x + b.
template <class T>
class Bias : public Layer<T> {
 public:
  /// `partial`: see Parameter.
  Bias(std::string name, const Shard& shard, bool partial = false)
      : name_(std::move(name)), shard_(shard), partial_(partial) {}
  void declare(ParameterList& list) override {
    // Not zero: a bias that stays at its start by mistake would go unnoticed.
    offset_ = list.add({.name = name_ + ".bias", .shard = shard_, .deviation = 0.02F, .partial = partial_});
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
  std::size_t offset_ = 0;
};

/// y = gain · (x - mean) / sqrt(variance + 1e-5) + bias, over the features of a row (Ba et al. 1607.06450).
template <class T>
class LayerNorm : public Layer<T> {
 public:
  /// `partial`: see Parameter.
  LayerNorm(std::string name, std::size_t width, bool partial = false)
      : name_(std::move(name)), width_(width), partial_(partial) {}
  void declare(ParameterList& list) override {
    const Shard shard = whole_matrix(1, width_);
    gain_ = list.add({.name = name_ + ".gain", .shard = shard, .value = 1, .partial = partial_});
    bias_ = list.add({.name = name_ + ".bias", .shard = shard, .partial = partial_});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    Tensor<T> normalised = pass.kernels->tensor(input.rows(), width_);
    Tensor<T> scale = pass.kernels->tensor(input.rows(), 1);
    Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
    pass.kernels->layer_norm(input, pass.weights + gain_, pass.weights + bias_, normalised, scale, output);
    saved.tensors = {normalised, scale};
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors.push_back(output_gradient);
    Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), width_);
    pass.kernels->layer_norm_input_gradient(output_gradient, saved.tensors[0], saved.tensors[1], pass.weights + gain_,
                                            gradient);
    return gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    pass.kernels->layer_norm_weight_gradient(saved.tensors[2], saved.tensors[0], pass.gradients + gain_,
                                             pass.gradients + bias_);
  }

 private:
  std::string name_;
  std::size_t width_ = 0;
  bool partial_ = false;
  std::size_t gain_ = 0;
  std::size_t bias_ = 0;
};

/// y = x/2·(1 + tanh(√(2/π)·(x + 0.044715 x³))), the form of GPT-2 (Hendrycks & Gimpel 1606.08415 §2). One exponential
/// and no branches: how long it takes does not depend on the data, as it does with the error function of the exact
/// form.
template <class T>
class Gelu : public Layer<T> {
 public:
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
    saved.tensors = {input};
    Tensor<T> output = pass.kernels->tensor(input.rows(), input.columns());
    pass.kernels->gelu(input, output);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
    Tensor<T> gradient = pass.kernels->tensor(output_gradient.rows(), output_gradient.columns());
    pass.kernels->gelu_gradient(output_gradient, saved.tensors[0], gradient);
    saved.tensors.clear();
    return gradient;
  }
};

/// Causal softmax attention over sequences of `sequence` rows each. A row of the input holds, head by head, query, key
/// and value of `head_dim` features each (so a contiguous share of the columns is a share of the heads); a row of the
/// output the heads' results. Scores are scaled by 1/sqrt(head_dim). What the backward pass keeps is the kernels'
/// choice. A slice of the sequences attends to the slices before it as well, whose gradients it leaves for them (Li et
/// al. 2102.07988 §3.1). Left out: dropout, key/value heads fewer than query heads.
template <class T>
class CausalAttention : public Layer<T> {
 public:
  CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence)
      : heads_(heads), head_dim_(head_dim), sequence_(sequence) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override {
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
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override {
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

 private:
  static std::vector<Tensor<T>> in_order(const std::map<int, Tensor<T>>& slices) {
    std::vector<Tensor<T>> tensors;
    for (const auto& [slice, tensor] : slices) tensors.push_back(tensor);
    return tensors;
  }
  AttentionExtent shape_of(const Pass<T>& pass) const { return {heads_, head_dim_, pass.slice.length(sequence_)}; }

  std::size_t heads_ = 0;
  std::size_t head_dim_ = 0;
  std::size_t sequence_ = 0;
};

/// The rows of a table that belong to the microbatch's tokens; zero for tokens outside this rank's share of the
/// vocabulary (`shard` of rows), so that the sum over the ranks is the whole.
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
  /// Nothing: tokens have no gradient.
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

/// y = x + p[position]: learned positions. Rows may be one of `parts` equal shares (sequence parallelism), and belong
/// to a slice of the sequences.
template <class T>
class LearnedPositions : public Layer<T> {
 public:
  LearnedPositions(std::string name, std::size_t sequence, std::size_t width, int index = 0, int parts = 1)
      : name_(std::move(name)), sequence_(sequence), width_(width), index_(index), parts_(parts) {}
  void declare(ParameterList& list) override {
    offset_ = list.add({.name = name_ + ".positions",
                        .shard = whole_matrix(sequence_, width_),
                        .deviation = 0.1F,
                        .partial = parts_ > 1});
  }
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& /*saved*/) const override {
    Tensor<T> output = pass.kernels->tensor(input.rows(), width_);
    pass.kernels->add_positions(input, positions_of(input.rows(), pass.slice), pass.weights + offset_, output);
    return output;
  }
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& /*pass*/, Saved<T>& saved) const override {
    saved.tensors = {output_gradient};
    return output_gradient;
  }
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override {
    const Tensor<T>& output_gradient = saved.tensors[0];
    pass.kernels->add_to_positions(output_gradient, positions_of(output_gradient.rows(), pass.slice),
                                   pass.gradients + offset_);
  }

 private:
  RowPositions positions_of(std::size_t rows, const TokenSlice& slice) const {
    return {static_cast<std::size_t>(index_) * rows, slice.length(sequence_), slice.first(sequence_)};
  }

  std::string name_;
  std::size_t sequence_ = 0;
  std::size_t width_ = 0;
  int index_ = 0;
  int parts_ = 1;
  std::size_t offset_ = 0;
};

/// The mean over the rows of -log softmax(x)[target]. The columns may be this rank's share of the vocabulary: maximum,
/// sum of exponentials and target logit are then reduced over the ranks (Megatron's vocabulary-parallel loss).
/// Ends a stage: there is no output, and the gradient starts here.
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
  // Of the vocabulary, as the columns are.
  VocabularyShare share_of(const Tensor<T>& logits) const {
    return {static_cast<std::size_t>(group_.index()) * logits.columns(), logits.columns()};
  }

  const TensorGroup& group_;
};

}  // namespace flopcast::realrun
