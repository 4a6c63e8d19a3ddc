#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <optional>
#include <string_view>

#include "model/enum_names.hpp"

namespace flopcast {

struct Training;
struct Transformer;

/// What of the weights is trained: all; adapters beside frozen linears (LoRA, Hu et al. 2106.09685); the same beside
/// linears stored in few bits (QLoRA, Dettmers et al. 2305.14314); some layers whole.
enum class FinetuneMethod { kFull, kLora, kQlora, kFreeze };
template <>
struct EnumNames<FinetuneMethod> {
  static constexpr std::string_view kNames[] = {"full", "lora", "qlora", "freeze"};
};

/// How frozen linears of the blocks are stored.
enum class BaseFormat { kBf16, kFp8, kInt8, kNf4 };
template <>
struct EnumNames<BaseFormat> {
  static constexpr std::string_view kNames[] = {"bf16", "fp8", "int8", "nf4"};
};

/// A linear of a block that may have an adapter, by the names of Llama in transformers. The first two are one adapter
/// for a product that the software computes at once (Megatron Core's linear_qkv and linear_fc1).
enum class AdapterTarget { kFusedQkv, kFusedUp, kQuery, kKey, kValue, kOutput, kGate, kUp, kDown };
template <>
struct EnumNames<AdapterTarget> {
  static constexpr std::string_view kNames[] = {"linear_qkv", "linear_fc1", "q_proj",  "k_proj",   "v_proj",
                                                "o_proj",     "gate_proj",  "up_proj", "down_proj"};
};
/// A bit for each.
using AdapterTargets = std::bitset<std::size(EnumNames<AdapterTarget>::kNames)>;
inline AdapterTargets bit_of(AdapterTarget target) {
  return AdapterTargets{1ULL << static_cast<unsigned>(target)};
}
/// Every linear of a block, each by itself: PEFT's "all-linear".
AdapterTargets all_targets();
/// The targets that a word stands for, in the spelling of transformers, PEFT, Megatron Core, torchtune or Axolotl; none
/// for an unknown one.
AdapterTargets targets_of(std::string_view word);

struct Finetune {
  FinetuneMethod method = FinetuneMethod::kFull;
  int rank = 8;                 ///< r of A [h, r] and B [r, h']
  std::optional<double> alpha;  ///< scales what the adapters add: no time of its own
  AdapterTargets targets;       ///< none: all_targets()
  double dropout = 0.0;         ///< before A; its rate is of no account, that there is one is
  BaseFormat base = BaseFormat::kBf16;
  bool double_quant = false;  ///< the scales of nf4 blocks are 8 bits themselves (2305.14314 §3)
  int trainable_layers = 2;   ///< freeze: the last so many layers are trained, or the first where it is below zero
  bool embeddings = false;    ///< embedding and head are trained as well

  bool adapts() const { return method == FinetuneMethod::kLora || method == FinetuneMethod::kQlora; }
};

/// Bytes a parameter of a frozen linear: bf16 2; fp8 and int8 1; nf4 4 bits and an fp32 scale for each 64, 4.5 bits;
/// with double quantisation an 8-bit scale for each 64 and an fp32 one for each 256 of these, 4.127 bits (2305.14314
/// §3).
double base_bytes(const Finetune& finetune);

/// What happens to a layer, or to embedding or head. Trained: its weights or adapters have gradients. Passing: frozen,
/// but gradients go through it to what is trained below. Still: nothing below is trained, so it has no backward pass
/// and keeps nothing for one.
enum class LayerState { kTrained, kPassing, kStill };
inline constexpr std::size_t kLayerStates = 3;

LayerState embedding_state(const Training& training);
LayerState head_state(const Training& training);
/// Of layer `layer` of `layers`.
LayerState layer_state(const std::optional<Finetune>& finetune, int layers, int layer);

/// Layers of a stage by what their block holds and what happens to them.
struct LayersByState {
  std::array<int, kLayerStates> dense{};
  std::array<int, kLayerStates> with_experts{};

  bool operator==(const LayersByState&) const = default;
};
/// Of the layers [first, first + count).
LayersByState layers_by_state(const Transformer& model, const Training& training, int first, int count);

}  // namespace flopcast
