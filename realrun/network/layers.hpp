#pragma once

#include <cstddef>
#include <string>

#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// y = x·Wᵀ with W of `shard` (rows: outputs, columns: inputs). The bias is a layer of its own, because a
/// tensor-parallel row linear adds it after the sum over the ranks.
/// Initial deviation 1/sqrt(inputs of the whole matrix) unless given.
template <class T>
class Linear : public Layer<T> {
 public:
  Linear(const std::string& name, const Shard& shard);
  /// For a parameter that another layer declares too: exactly its name and deviation.
  Linear(std::string parameter, const Shard& shard, float deviation);
  void declare(ParameterList& list) override;
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override;

 private:
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
  Bias(std::string name, const Shard& shard, bool partial = false);
  void declare(ParameterList& list) override;
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override;

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
  LayerNorm(std::string name, std::size_t width, bool partial = false);
  void declare(ParameterList& list) override;
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override;

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
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
};

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
  AttentionExtent shape_of(const Pass<T>& pass) const;

  std::size_t heads_ = 0;
  std::size_t head_dim_ = 0;
  std::size_t sequence_ = 0;
};

/// The rows of a table that belong to the microbatch's tokens; zero for tokens outside this rank's share of the
/// vocabulary (`shard` of rows), so that the sum over the ranks is the whole.
template <class T>
class Embedding : public Layer<T> {
 public:
  Embedding(std::string parameter, const Shard& shard, float deviation);
  void declare(ParameterList& list) override;
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  /// Nothing: tokens have no gradient.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override;

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
  LearnedPositions(std::string name, std::size_t sequence, std::size_t width, int index = 0, int parts = 1);
  void declare(ParameterList& list) override;
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;
  void weight_gradient(const Pass<T>& pass, Saved<T>& saved) const override;

 private:
  RowPositions positions_of(std::size_t rows, const TokenSlice& slice) const;

  std::string name_;
  std::size_t sequence_ = 0;
  std::size_t width_ = 0;
  int index_ = 0;
  int parts_ = 1;
  std::size_t offset_ = 0;
};

/// What an MLP classifies: `width` features in (-1, 1) that follow from the tokens.
template <class T>
class Features : public Layer<T> {
 public:
  explicit Features(std::size_t width) : width_(width) {}
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  /// Nothing: data has no gradient.
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;

 private:
  std::size_t width_ = 0;
};

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
