#pragma once

#include <string>

#include "realrun/network/layer.hpp"

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

}  // namespace flopcast::realrun
