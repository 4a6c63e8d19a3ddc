#pragma once

#include <string>

#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

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

}  // namespace flopcast::realrun
