#pragma once

#include <string>

#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

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
class Positions : public Layer<T> {
 public:
  Positions(std::string name, std::size_t sequence, std::size_t width, int index = 0, int parts = 1);
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

}  // namespace flopcast::realrun
