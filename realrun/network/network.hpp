#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/layout/layout.hpp"
#include "model/workload/finetune.hpp"
#include "model/workload/transformer.hpp"
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
/// Those of one context-parallel rank, in the order of positions_of.
Microbatch cut_for_context(const Microbatch& whole, std::size_t sequence, const ContextPart& part);

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

/// What is trained: a decoder-only transformer. Without further words GPT-2's: token and learned position embeddings,
/// blocks of causal attention and GELU MLP with biases and LayerNorm before each, a final norm and a head without bias.
/// `kv_heads` 0 are as many as heads, `head_dim` 0 is hidden / heads, and `tied_embeddings` makes the head's matrix the
/// token table. Gated MLPs have SiLU, as Llama's. Windowed layers are spread evenly: layer i is one when ⌊(i+1)w/L⌋ >
/// ⌊iw/L⌋. Experts are MLPs of the same form, whose imbalance is not used: routing is real; see RoutedExperts. Left
/// out: dropout, latent attention, attention sinks, multi-token prediction.
struct NetworkSpec : Transformer {
  NetworkSpec() {
    layers = 1;
    hidden = 8;
    heads = 1;
    ffn = 32;
    vocab = 16;
    tied_embeddings = false;
  }
  explicit NetworkSpec(const Transformer& model) : Transformer(model) {}

  int sequence = 8;               ///< tokens of a sample
  int position_rows = 0;          ///< of the table of learned positions; 0: the sequence
  bool balanced_routing = false;  ///< see RouterSpec
  std::uint64_t seed = 1;
  /// What is trained, where it is not all: adapters beside frozen linears, or some layers. How the base is stored and
  /// dropout before adapters are not used; alpha, where it is absent, is the rank.
  std::optional<Finetune> finetune;
  Recomputation recompute = {};

  /// Of the heads that one of `parts` tensor-parallel ranks has.
  HeadLayout head_layout(int parts = 1) const;
  bool is_windowed(int layer) const;
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
