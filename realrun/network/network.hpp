#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layout/layout.hpp"
#include "realrun/network/layer.hpp"
#include "realrun/network/tensor_group.hpp"

namespace flopcast::realrun {

/// A synthetic text without end, the same everywhere: token i + 1 follows from token i by a fixed permutation of the
/// vocabulary, except for one in eight, which is drawn anew. A network learns the permutation; its loss cannot fall
/// below the entropy of the draws.
struct Corpus {
  int vocab = 2;
  int sequence = 1;  ///< tokens of a sample
  std::uint64_t seed = 1;

  /// Samples first .. first + count - 1 one behind the other. Targets are the tokens that follow.
  Microbatch microbatch(std::uint64_t first, int count) const;
};

/// The tokens of one slice of each of a microbatch's sequences.
Microbatch cut(const Microbatch& whole, std::size_t sequence, const TokenSlice& slice);

/// What is computed again before the backward pass instead of kept.
struct Recomputation {
  /// Of each stage's blocks: the first so many, or every so many-th; 0: none.
  int first_blocks = 0;
  int every = 0;
  bool partitioned = false;  ///< of such a block's input, which tensor-parallel ranks hold alike, each keeps a part
  RecomputeModules modules = {};  ///< in all other blocks: core_attn, layernorm, mlp

  /// Whether the stage's block with this index is recomputed whole.
  bool whole(int index) const { return index < first_blocks || (every > 0 && (index + 1) % every == 0); }
};

/// What is trained: a transformer, decoder-only, pre-norm, as GPT-2: token and learned position embeddings, blocks of
/// causal attention and GELU MLP with biases, a final norm and a head without bias.
/// Left out: dropout, rotary positions, grouped queries, gated MLPs, experts.
struct NetworkSpec {
  int blocks = 1;
  int hidden = 8;
  int heads = 1;  ///< divides hidden
  int ffn = 32;
  int vocab = 16;
  int sequence = 8;   ///< tokens of a sample
  bool tied = false;  ///< the head's matrix is the token table
  std::uint64_t seed = 1;
  Recomputation recompute = {};
};

/// The part of the network that a stage holds: blocks, with the embedding before the first and the head behind the
/// last.
struct StagePart {
  int first_block = 0;
  int blocks = 0;
  bool embedding = false;
  bool head = false;
};
/// Stages of a model with `stage_blocks` blocks each, in order.
std::vector<StagePart> split_network(const std::vector<int>& stage_blocks);

/// The units a stage is made of, in order: the embedding, each block, the head with the loss. What is sharded or
/// gathered at once is a unit.
template <class T>
std::vector<LayerPointer<T>> build_stage(const NetworkSpec& spec, const StagePart& part, const TensorForm& form);

/// Name of the one parameter that lies on two stages when `tied`.
std::string tied_parameter();

}  // namespace flopcast::realrun
