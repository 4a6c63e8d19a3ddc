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

/// Which weights are trained: all; adapters on frozen linears (LoRA, Hu et al. 2106.09685); adapters on linears stored
/// in few bits (QLoRA, Dettmers et al. 2305.14314); some whole layers.
enum class FinetuneMethod { kFull, kLora, kQlora, kFreeze };
template <>
struct EnumNames<FinetuneMethod> {
  static constexpr std::string_view kNames[] = {"full", "lora", "qlora", "freeze"};
};

/// Storage format of the frozen linears in blocks.
enum class BaseFormat { kBf16, kFp8, kInt8, kNf4 };
template <>
struct EnumNames<BaseFormat> {
  static constexpr std::string_view kNames[] = {"bf16", "fp8", "int8", "nf4"};
};

/// A linear of a block that may have an adapter, with the names of Llama in transformers. The first two are a single
/// adapter for a GEMM that the software fuses (Megatron Core's linear_qkv and linear_fc1).
enum class AdapterTarget { kFusedQkv, kFusedUp, kQuery, kKey, kValue, kOutput, kGate, kUp, kDown };
template <>
struct EnumNames<AdapterTarget> {
  static constexpr std::string_view kNames[] = {"linear_qkv", "linear_fc1", "q_proj",  "k_proj",   "v_proj",
                                                "o_proj",     "gate_proj",  "up_proj", "down_proj"};
};
/// One bit per target.
using AdapterTargets = std::bitset<std::size(EnumNames<AdapterTarget>::kNames)>;
inline AdapterTargets bit_of(AdapterTarget target) {
  return AdapterTargets{1ULL << static_cast<unsigned>(target)};
}
/// Every linear of a block separately: PEFT's "all-linear".
AdapterTargets all_targets();
/// The targets named by a word in the spelling of transformers, PEFT, Megatron Core, torchtune or Axolotl; empty if it
/// is unknown.
AdapterTargets targets_of(std::string_view word);

struct Finetune {
  FinetuneMethod method = FinetuneMethod::kFull;
  int rank = 8;                 ///< r of A [h, r] and B [r, h']
  std::optional<double> alpha;  ///< scales the adapters' outputs; does not affect times
  AdapterTargets targets;       ///< empty: all_targets()
  double dropout = 0.0;         ///< before A; only whether it is above zero matters
  BaseFormat base = BaseFormat::kBf16;
  bool double_quant = false;  ///< the scales of nf4 blocks are themselves stored in 8 bits (2305.14314 §3)
  int trainable_layers = 2;   ///< freeze: train the last N layers, or the first -N if negative
  bool embeddings = false;    ///< embedding and head are trained too

  bool adapts() const { return method == FinetuneMethod::kLora || method == FinetuneMethod::kQlora; }
};

/// Bytes per parameter of a frozen linear. bf16: 2; fp8 and int8: 1; nf4: 4 bits plus an fp32 scale per 64 parameters,
/// 4.5 bits; with double quantisation an 8-bit scale per 64 and an fp32 scale per 256 of these, 4.127 bits (2305.14314
/// §3).
double base_bytes(const Finetune& finetune);

/// Role of a layer, embedding or head in the backward pass. kTrained: its weights or adapters have gradients.
/// kFrozenPassThrough: frozen, but gradients pass through it to trained layers below. kFrozenNoGradient: nothing below
/// it is trained, so it has no backward pass and saves nothing for one.
enum class LayerState { kTrained, kFrozenPassThrough, kFrozenNoGradient };
inline constexpr std::size_t kLayerStates = 3;

LayerState embedding_state(const Training& training);
LayerState head_state(const Training& training);
/// State of layer `layer` of `layers`.
LayerState layer_state(const std::optional<Finetune>& finetune, int layers, int layer);

/// Number of layers of a stage by kind of block and state.
struct LayersByState {
  std::array<int, kLayerStates> dense{};
  std::array<int, kLayerStates> with_experts{};

  bool operator==(const LayersByState&) const = default;
};
/// Counts for the layers [first, first + count).
LayersByState layers_by_state(const Transformer& model, const Training& training, int first, int count);

}  // namespace flopcast
