#include "model/workload/finetune.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

AdapterTargets all_targets() {
  AdapterTargets all;
  all.set();
  return all & ~bit_of(AdapterTarget::kFusedQkv) & ~bit_of(AdapterTarget::kFusedUp);
}

AdapterTargets targets_of(std::string_view word) {
  using Word = std::pair<std::string_view, AdapterTarget>;
  static constexpr Word kOthers[] = {{"q", AdapterTarget::kQuery},
                                     {"k", AdapterTarget::kKey},
                                     {"v", AdapterTarget::kValue},
                                     {"o", AdapterTarget::kOutput},
                                     {"wq", AdapterTarget::kQuery},
                                     {"wk", AdapterTarget::kKey},
                                     {"wv", AdapterTarget::kValue},
                                     {"wo", AdapterTarget::kOutput},
                                     {"gate", AdapterTarget::kGate},
                                     {"up", AdapterTarget::kUp},
                                     {"down", AdapterTarget::kDown},
                                     {"w1", AdapterTarget::kGate},
                                     {"w3", AdapterTarget::kUp},
                                     {"w2", AdapterTarget::kDown},
                                     {"qkv", AdapterTarget::kFusedQkv},
                                     {"qkv_proj", AdapterTarget::kFusedQkv},
                                     {"c_attn", AdapterTarget::kFusedQkv},
                                     {"query_key_value", AdapterTarget::kFusedQkv},
                                     {"W_pack", AdapterTarget::kFusedQkv},
                                     {"gate_up_proj", AdapterTarget::kFusedUp},
                                     {"linear_proj", AdapterTarget::kOutput},
                                     {"output_proj", AdapterTarget::kOutput},
                                     {"out_proj", AdapterTarget::kOutput},
                                     {"dense", AdapterTarget::kOutput},
                                     {"linear_fc2", AdapterTarget::kDown},
                                     {"dense_h_to_4h", AdapterTarget::kFusedUp},
                                     {"fc1", AdapterTarget::kFusedUp},
                                     {"dense_4h_to_h", AdapterTarget::kDown},
                                     {"fc2", AdapterTarget::kDown},
                                     {"query", AdapterTarget::kQuery},
                                     {"key", AdapterTarget::kKey},
                                     {"value", AdapterTarget::kValue}};
  if (word == "all" || word == "all-linear") return all_targets();
  if (word == "mlp") {
    return bit_of(AdapterTarget::kGate) | bit_of(AdapterTarget::kUp) | bit_of(AdapterTarget::kDown);
  }
  if (const auto known = parse<AdapterTarget>(word)) return bit_of(*known);
  const auto other =
      std::find_if(std::begin(kOthers), std::end(kOthers), [word](const Word& entry) { return entry.first == word; });
  return other == std::end(kOthers) ? AdapterTargets() : bit_of(other->second);
}

double base_bytes(const Finetune& finetune) {
  constexpr double kNf4 = 0.5;
  constexpr double kBlock = 64.0;
  constexpr double kSecondBlock = 256.0;
  switch (finetune.base) {
    case BaseFormat::kBf16:
      return 2.0;
    case BaseFormat::kFp8:
    case BaseFormat::kInt8:
      return 1.0;
    case BaseFormat::kNf4:
      return kNf4 + (finetune.double_quant ? 1.0 / kBlock + kFp32Bytes / (kBlock * kSecondBlock) : kFp32Bytes / kBlock);
  }
  return 2.0;
}

LayerState embedding_state(const Training& training) {
  const std::optional<Finetune>& finetune = training.finetune;
  return !finetune || finetune->method == FinetuneMethod::kFull || finetune->embeddings ? LayerState::kTrained
                                                                                        : LayerState::kFrozenNoGradient;
}

LayerState head_state(const Training& training) {
  const LayerState embedding = embedding_state(training);
  return embedding == LayerState::kFrozenNoGradient ? LayerState::kFrozenPassThrough : embedding;
}

namespace {

struct LayerRange {
  int begin = 0;
  int end = 0;
};

LayerRange trained_layers(const std::optional<Finetune>& finetune, int layers) {
  if (!finetune || finetune->method != FinetuneMethod::kFreeze) return {0, layers};
  const int trained = finetune->trainable_layers;
  return trained >= 0 ? LayerRange{std::max(0, layers - trained), layers} : LayerRange{0, std::min(layers, -trained)};
}

}  // namespace

LayerState layer_state(const std::optional<Finetune>& finetune, int layers, int layer) {
  const LayerRange trained = trained_layers(finetune, layers);
  if (layer >= trained.end) return LayerState::kFrozenPassThrough;
  if (layer >= trained.begin) return LayerState::kTrained;
  return finetune->embeddings ? LayerState::kFrozenPassThrough : LayerState::kFrozenNoGradient;
}

LayersByState layers_by_state(const Transformer& model, const Training& training, int first, int count) {
  LayersByState layers;
  const auto add = [&](LayerState state, int begin, int end) {
    begin = std::max(begin, first);
    end = std::min(end, first + count);
    if (begin >= end) return;
    const int experts = model.expert_layers(begin, end - begin);
    layers.with_experts[static_cast<std::size_t>(state)] += experts;
    layers.dense[static_cast<std::size_t>(state)] += end - begin - experts;
  };
  const LayerRange trained = trained_layers(training.finetune, model.layers);
  if (trained.begin > 0) add(layer_state(training.finetune, model.layers, 0), 0, trained.begin);
  add(LayerState::kTrained, trained.begin, trained.end);
  add(LayerState::kFrozenPassThrough, trained.end, model.layers);
  return layers;
}

namespace {

struct Adapter {
  std::string_view name;
  double outputs = 0.0;  ///< columns on this rank of the linear to which it is added
};

constexpr AdapterTarget kQkvTargets[] = {AdapterTarget::kQuery, AdapterTarget::kKey, AdapterTarget::kValue};

// The adapters of a linear in a block, selected by the linear's name.
std::vector<Adapter> adapters_of(const Operator& op, const Transformer& model, const AdapterTargets& targets,
                                 double tp) {
  const auto has = [&targets](AdapterTarget target) { return (targets & bit_of(target)).any(); };
  const double columns = static_cast<double>(op.shape.n);
  std::vector<Adapter> adapters;
  if (op.name == "qkv projection") {
    if (has(AdapterTarget::kFusedQkv)) return {{"qkv adapter", columns}};
    const double widths[] = {1.0 * model.attention_width(), 1.0 * model.key_width(), 1.0 * model.value_width()};
    for (std::size_t index = 0; index < std::size(kQkvTargets); ++index) {
      if (has(kQkvTargets[index])) adapters.push_back({"qkv adapter", widths[index] / tp});
    }
  } else if (op.name == "mlp up" || op.name == "experts up") {
    if (has(AdapterTarget::kFusedUp)) return {{"up adapter", columns}};
    const double each = columns / (model.gated_mlp ? 2.0 : 1.0);
    if (model.gated_mlp && has(AdapterTarget::kGate)) adapters.push_back({"up adapter", each});
    if (has(AdapterTarget::kUp)) adapters.push_back({"up adapter", each});
  } else if (op.name == "output projection") {
    if (has(AdapterTarget::kOutput)) adapters.push_back({"output adapter", columns});
  } else if (op.name == "mlp down" || op.name == "experts down") {
    if (has(AdapterTarget::kDown)) adapters.push_back({"down adapter", columns});
  } else if (op.name != "router" && (targets & all_targets()) == all_targets()) {
    adapters.push_back({"latent adapter", columns});  // projections of latent attention, which have other names
  }
  return adapters;
}

// Frozen norms need no sums over the tokens for their scales; frozen linears need one GEMM fewer and no accumulation.
constexpr double kNormWithoutScales = 3.0 / 5.0;

void freeze(Operator& op, const Training& training, bool quantised) {
  const double element = element_size(training.precision).value();
  const Finetune& finetune = *training.finetune;
  const bool narrow = quantised && finetune.base != BaseFormat::kBf16;
  op.frozen_parameters = op.parameters;
  op.frozen_bytes = Bytes(op.parameters * (narrow ? base_bytes(finetune) : element));
  op.weight_gradient_bytes = Bytes(0);
  if (op.kind != OperatorKind::kLinear) {
    if (op.name.find("norm") != std::string_view::npos) {
      op.input_gradient_bytes *= kNormWithoutScales;
      op.backward_kernels = std::min(op.backward_kernels, 1);
    }
    return;
  }
  op.frozen = true;
  op.saved = Bytes(0);  // its input is needed only for the weight gradient
  op.input_gradient_bytes = Bytes(0);
  op.backward_kernels = op.calls + op.cast_kernels / 2;
  // Transposed 8-bit copies are needed only for the weight gradient.
  constexpr double kOneDirection = 0.75;
  op.forward_casts *= kOneDirection;
  op.backward_casts *= kOneDirection;
  const bool multiplied_as_stored = finetune.base == BaseFormat::kFp8 && op.low_precision;
  if (narrow && multiplied_as_stored) op.transposed = 2.0 * op.frozen_bytes;
  if (!narrow || multiplied_as_stored) return;
  op.dequantised = Bytes(op.parameters * element);
  op.widening = op.frozen_bytes + op.dequantised;
  constexpr int kScalesFirst = 2;
  op.widening_kernels = op.calls * (1 + (finetune.double_quant ? kScalesFirst : 0));
  op.forward_kernels += op.widening_kernels;
  op.backward_kernels += op.widening_kernels;
}

void still(Operator& op) {
  op.still = true;
  op.saved = op.saved_core = Bytes(0);
  op.gradient_buffer = Bytes(0);
  op.input_gradient_bytes = op.backward_casts = Bytes(0);
  op.backward_kernels = 0;
}

Operator adapter_half(const Operator& base, std::string_view name, double element, double inputs, double outputs,
                      const Stack& stack) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::kLinear;
  op.shape = {base.shape.m, static_cast<std::int64_t>(outputs), static_cast<std::int64_t>(inputs), base.shape.batch};
  op.filled = base.filled;
  op.calls = base.calls;
  op.forward_kernels = op.calls;
  op.backward_kernels = 2 * op.calls;
  const double matrices = static_cast<double>(base.shape.batch);
  op.parameters = inputs * outputs * matrices;
  op.of_experts = base.of_experts;
  op.routed = base.routed;
  op.work_copies = base.work_copies;
  const double rows = static_cast<double>(base.shape.m) * matrices;
  op.output = Bytes(rows * outputs * element);
  op.redone_with = base.redone_with;
  if (!stack.fused_gradient_accumulation) {
    op.weight_gradient_bytes = Bytes(op.parameters * (element + 2 * stack.gradient_bytes));
    op.backward_kernels += op.calls;
  }
  return op;
}

// Adapters after `base`, whose saved input was `input`: x·A, (x·A)·B, and the sum with the output of the frozen weight.
void append_adapters(const Operator& base, Bytes input, const std::vector<Adapter>& adapters,
                     const OperatorShapes& shapes, const Layout& layout, const Training& training,
                     std::vector<Operator>& operators) {
  const Finetune& finetune = *training.finetune;
  const Stack& stack = training.stack;
  const double e = shapes.element;
  const double rank = finetune.rank;
  const double inputs = static_cast<double>(base.shape.k);
  // Tensor-parallel ranks share A and B of a dense block's linears: one is split along the dimension in which the
  // linear is split, the other along the rank.
  const bool by_inputs = base.name == "output projection" || base.name == "mlp down";
  const bool by_outputs = base.name == "qkv projection" || base.name == "mlp up";
  const double share = by_inputs || by_outputs ? std::ceil(rank / shapes.tp) : rank;
  const double rows = static_cast<double>(base.shape.m) * static_cast<double>(base.shape.batch);
  const bool whole_expert = base.of_experts && layout.expert_tensor_ranks() == 1;
  const bool fused = stack.compile || stack.fused_bias_dropout_add;
  for (std::size_t index = 0; index < adapters.size(); ++index) {
    const Adapter& adapter = adapters[index];
    const bool drops = finetune.dropout > 0.0;
    if (drops) {
      Operator dropout = memory_bound("adapter dropout", rows * inputs, 2 * e + kMaskBytes, 2 * e + kMaskBytes);
      dropout.saved = Bytes(rows * inputs * kMaskBytes);
      dropout.redone_with = base.redone_with;
      dropout.dropped_with = base.redone_with;
      operators.push_back(dropout);
    }
    Operator down = adapter_half(base, adapter.name, e, inputs, by_inputs ? rank : share, stack);
    // Each dropout creates a separate input; without dropout, all adapters read the linear's input.
    if (drops || index == 0) down.saved = input;
    down.dropped_with = drops ? base.redone_with : base.dropped_with;
    if (shapes.tp > 1 && !whole_expert) down.exchanged = Bytes(rows * rank * e);
    Operator up = adapter_half(base, adapter.name, e, by_inputs ? share : rank, adapter.outputs, stack);
    up.saved = Bytes(rows * (by_inputs ? share : rank) * e);
    up.dropped_with = base.redone_with;
    // The forward pass adds the scaled result; the backward pass adds the gradients of the two inputs.
    Operator sum = memory_bound("adapter sum", rows, (fused ? 3 : 5) * e * adapter.outputs,
                                3 * e * inputs + (fused ? 0 : 2 * e * adapter.outputs));
    sum.forward_kernels = sum.backward_kernels = fused ? 1 : 2;
    sum.redone_with = base.redone_with;
    operators.push_back(down);
    operators.push_back(up);
    operators.push_back(sum);
  }
}

// A recomputed module is rebuilt from the input of its first operator, whether trained or not.
bool opens_what_is_redone(const Operator& op, const Layout& layout) {
  if (layout.recompute != Recompute::kSelective || !layout.recompute_modules) return false;
  const RecomputeModules& again = *layout.recompute_modules;
  return (op.redone_with & again).any() && (op.dropped_with & again).none();
}

bool is_of_block(const Operator& op) {
  return op.kind == OperatorKind::kLinear && op.name != "router" && op.name != "logits";
}

}  // namespace

std::vector<Operator> finetuned(std::vector<Operator> operators, const Transformer& model, const Layout& layout,
                                const Training& training, LayerState state) {
  const Finetune& finetune = *training.finetune;
  const bool whole = finetune.method == FinetuneMethod::kFull ||
                     (finetune.method == FinetuneMethod::kFreeze && state == LayerState::kTrained);
  if (whole) return operators;
  const OperatorShapes shapes(model, layout, training);
  const AdapterTargets targets = finetune.targets.any() ? finetune.targets : all_targets();
  std::vector<Operator> all;
  all.reserve(operators.size() * 3);
  for (Operator& op : operators) {
    const Bytes input = op.saved;
    freeze(op, training, is_of_block(op));
    if (state == LayerState::kFrozenNoGradient) still(op);
    std::vector<Adapter> adapters;
    const bool adapts = finetune.adapts() && state == LayerState::kTrained && is_of_block(op);
    if (adapts) adapters = adapters_of(op, model, targets, shapes.tp);
    // Adapters without dropout already keep the same input.
    const bool kept_by_adapter = !adapters.empty() && finetune.dropout == 0.0;
    if (state != LayerState::kFrozenNoGradient && !kept_by_adapter && opens_what_is_redone(op, layout))
      op.saved = input;
    all.push_back(op);
    append_adapters(op, input, adapters, shapes, layout, training, all);
  }
  return all;
}

}  // namespace flopcast
