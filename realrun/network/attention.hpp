#pragma once

#include <cstddef>
#include <map>

#include "realrun/network/layer.hpp"

namespace flopcast::realrun {

/// Scores of `rows` queries over `columns` keys. A row sees the keys up to its own; the queries are the last of them.
struct ScoreShape {
  std::size_t rows = 0;
  std::size_t columns = 0;

  std::size_t seen_by(std::size_t row) const { return columns - rows + row + 1; }
};

/// Causal softmax attention over sequences of `sequence` rows each. A row of the input holds, head by head, query, key
/// and value of `head_dim` features each (so a contiguous share of the columns is a share of the heads); a row of the
/// output the heads' results. Scores are scaled by 1/sqrt(head_dim). The probabilities are kept for the backward pass.
/// A slice of the sequences attends to the slices before it as well, whose gradients it leaves for them (Li et al.
/// 2102.07988 §3.1).
/// Left out: dropout, key/value heads fewer than query heads.
template <class T>
class CausalAttention : public Layer<T> {
 public:
  CausalAttention(std::size_t heads, std::size_t head_dim, std::size_t sequence);
  Tensor<T> forward(const Tensor<T>& input, const Pass<T>& pass, Saved<T>& saved) const override;
  Tensor<T> input_gradient(const Tensor<T>& output_gradient, const Pass<T>& pass, Saved<T>& saved) const override;

 private:
  using Slices = std::map<int, Tensor<T>>;  // inputs, or their gradients, by slice
  struct Columns {
    std::size_t query = 0;
    std::size_t key = 0;
    std::size_t value = 0;
  };
  struct Place {
    std::size_t first_row = 0;  // of the sequence in every slice's tensors
    std::size_t head = 0;
    ScoreShape shape;
  };

  T scale() const;
  Columns columns_of_head(std::size_t head) const;
  void attend(const Place& place, const Tensor<T>& input, const Slices& context, Tensor<T>& probabilities,
              Tensor<T>& output) const;
  void score_gradient(const Place& place, const Tensor<T>& output_gradient, const Slices& context,
                      const Tensor<T>& probabilities, Tensor<T>& scores) const;
  void spread_gradient(const Place& place, const Tensor<T>& output_gradient, const Slices& context,
                       const Tensor<T>& probabilities, const Tensor<T>& scores, Slices& gradients) const;

  std::size_t heads_ = 0;
  std::size_t head_dim_ = 0;
  std::size_t sequence_ = 0;
};

}  // namespace flopcast::realrun
