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

/// An endless synthetic text, the same everywhere: token i + 1 follows from token i by a fixed permutation of the
/// vocabulary, except that one in eight is drawn randomly. A network learns the permutation; its loss cannot fall below
/// the entropy of the random tokens.
struct Corpus {
  int vocab = 2;
  int sequence = 1;  ///< tokens of a sample
  std::uint64_t seed = 1;

  /// Samples first .. first + count - 1, concatenated. Targets are the tokens that follow.
  Microbatch microbatch(std::uint64_t first, int count) const;
};

/// The tokens of one slice of each of a microbatch's sequences.
Microbatch cut(const Microbatch& whole, std::size_t sequence, const TokenSlice& slice);
/// The tokens of one context-parallel rank, in the order of positions_of.
Microbatch cut_for_context(const Microbatch& whole, std::size_t sequence, const ContextPart& part);

/// Layers that are recomputed before the backward pass instead of kept.
struct Recomputation {
  /// Which of each stage's blocks are recomputed: the first `first_blocks`, or every `every`-th; 0: none.
  int first_blocks = 0;
  int every = 0;
  bool partitioned = false;  ///< each tensor-parallel rank keeps a part of such a block's input, which all of them hold
  RecomputeModules modules = {};  ///< in all other blocks: core_attn, layernorm, mlp

  /// True if the stage's block with this index is recomputed entirely.
  bool whole(int index) const { return index < first_blocks || (every > 0 && (index + 1) % every == 0); }
};

/// The trained network: a decoder-only transformer. The defaults give GPT-2's: token and learned position embeddings,
/// blocks of causal attention and GELU MLP with biases and a LayerNorm before each, a final norm and a head without
/// bias. `kv_heads` 0 means as many as heads, `head_dim` 0 means hidden / heads, and `tied_embeddings` uses the token
/// table as the head's matrix. Gated MLPs have SiLU, as in Llama. Windowed layers are spread evenly: layer i is one if
/// ⌊(i+1)w/L⌋ > ⌊iw/L⌋. Experts are MLPs of the same form; their imbalance is ignored because routing is real, see
/// RoutedExperts. Left out: dropout, latent attention, attention sinks, multi-token prediction.
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
  int position_rows = 0;          ///< rows of the table of learned positions; 0: as many as the sequence has tokens
  bool balanced_routing = false;  ///< see RouterSpec
  std::uint64_t seed = 1;
  /// The trained part, if not everything: adapters on frozen linears, or some layers. Storage of the base and dropout
  /// before adapters are ignored; alpha defaults to the rank.
  std::optional<Finetune> finetune;
  Recomputation recompute = {};

  /// Layout of the heads on one of `parts` tensor-parallel ranks.
  HeadLayout head_layout(int parts = 1) const;
  bool is_windowed(int layer) const;
};

/// The part of the network on a stage: blocks, with the embedding before the first and the head after the last.
struct StagePart {
  int first_block = 0;
  int blocks = 0;
  bool embedding = false;
  bool head = false;
};
/// Stages of a model with `stage_blocks` blocks each, in order.
std::vector<StagePart> split_network(const std::vector<int>& stage_blocks);

/// The units of a stage, in order: the embedding, each block, the head with the loss. Sharding and gathering operate on
/// whole units.
template <class T>
std::vector<LayerPointer<T>> build_stage(const NetworkSpec& spec, const StagePart& part, const TensorForm& form);

/// Name of the only parameter held by two stages if embeddings are tied.
std::string tied_parameter();

}  // namespace flopcast::realrun
