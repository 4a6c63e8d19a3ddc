#pragma once

#include <string_view>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

/// The shapes that a layout cuts every operator from, and the pieces that blocks are put together of. Used by the files
/// that list operators only.
struct OperatorShapes {
  OperatorShapes(const Transformer& model, const Layout& layout, const Training& training);

  double tokens;  ///< S, of this rank's context-parallel share
  double tp;
  double element;         ///< bytes
  double sharded_tokens;  ///< S where sequence parallelism splits it
  double scores;          ///< elements of this rank's score matrices
  bool single_pass_norm;
  int unsplit_copies;  ///< tensor-parallel ranks that do the same work on tokens that nothing splits
  int tensor_ranks;
};

inline constexpr double kMaskBytes = 1.0;  ///< dropout masks are stored as bytes
inline constexpr double kFp32Bytes = 4.0;

Operator memory_bound(std::string_view name, double elements, double forward, double input_gradient);
/// A norm over `width` features of the sharded tokens, or of `elements` in all.
Operator norm_operator(const Transformer& model, const OperatorShapes& shapes, std::string_view name);
Operator latent_norm(const Transformer& model, const OperatorShapes& shapes, std::string_view name, double width);
/// A weight of `inputs` x `outputs` on this rank, applied to all tokens. `saved_tokens` is what this rank keeps of its
/// input.
Operator linear_operator(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                         double saved_tokens, const Stack& stack);
/// A weight that every tensor-parallel rank holds whole, applied to the tokens that sequence parallelism leaves it.
Operator replicated_linear(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                           const Stack& stack);
/// A bias whose addition is part of the kernel that follows; its gradient is a reduction of its own.
void add_bias(Operator& op, const OperatorShapes& shapes, double outputs);

/// From the normed hidden states to the output projection, which is included.
void append_attention(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                      const Training& training);
/// An MLP of `width` columns over all tensor-parallel ranks, without the residual.
void append_mlp(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                const Stack& stack, double width);
/// Router, routed and shared experts, without the residual and the exchanges between expert-parallel ranks.
void append_experts(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                    const Training& training);

}  // namespace flopcast
