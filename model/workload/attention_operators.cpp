#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

constexpr double kCausalShare = 0.5;  // fraction of the score matrix that a causal kernel visits

constexpr double kUnfusedSoftmaxBytes = 20.0;  // per score, read and written in addition to the fused kernel
constexpr int kUnfusedSoftmaxKernels = 8;

void append_unfused_core(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                         const Training& training, const OperatorShapes& shapes) {
  const double e = shapes.element;
  // Ulysses gives each rank whole sequences of some heads, a ring some queries of all heads.
  const int head_parts = layout.ulysses_ranks();
  const std::int64_t batch = static_cast<std::int64_t>(
      static_cast<double>(sequences_of(training, layout.micro_batch_size)) * model.heads / (shapes.tp * head_parts));
  const std::int64_t queries = training.sequence_length / (layout.cp / head_parts);
  const std::int64_t keys = training.sequence_length;

  Operator product;
  product.name = "attention scores";
  product.kind = OperatorKind::kBatchedProduct;
  product.shape = {queries, keys, model.key_dim(), batch};
  product.forward_kernels = 1;
  product.backward_kernels = 2;
  product.saved = Bytes(shapes.tokens * (model.attention_width() + model.key_width()) / shapes.tp * e);
  product.attention_core = true;
  operators.push_back(product);

  const bool fused = batch % training.stack.fused_softmax_group == 0;
  const double extra = fused ? 0.0 : kUnfusedSoftmaxBytes;
  const double forward = std::max(training.stack.softmax_forward_bytes, 2 * e + extra);
  Operator softmax = memory_bound("softmax", shapes.scores, forward, 3 * e + extra);
  if (!fused) softmax.forward_kernels = softmax.backward_kernels = kUnfusedSoftmaxKernels;
  softmax.saved_core = Bytes(shapes.scores * e);
  softmax.reads_fresh = false;
  softmax.gradient_buffer = Bytes(shapes.scores * 2 * e);
  softmax.attention_core = true;
  operators.push_back(softmax);

  double kept_probabilities = 0.0;
  if (model.dropout) {
    Operator dropout = memory_bound("softmax dropout", shapes.scores, 2 * e + kMaskBytes, 2 * e + kMaskBytes);
    dropout.saved_core = Bytes(shapes.scores * kMaskBytes);
    dropout.attention_core = true;
    dropout.reads_fresh = false;
    operators.push_back(dropout);
    kept_probabilities = shapes.scores * e;
  }

  product.name = "attention context";
  product.shape = {queries, model.value_dim(), keys, batch};
  product.saved = Bytes(shapes.tokens * model.value_width() / shapes.tp * e);
  product.saved_core = Bytes(kept_probabilities);
  operators.push_back(product);
}

// Without zigzag, rank r of n in a ring attends to r + 1/2 of n parts of the sequence. All wait for the last rank,
// which attends to 2 - 1/n times the mean. Layers with windows are practically balanced.
double context_imbalance(const Transformer& model, const Layout& layout) {
  const double ring = static_cast<double>(layout.cp) / layout.ulysses_ranks();
  if (!model.causal || layout.zigzag || ring <= 1.0) return 1.0;
  const double whole = 1.0 - static_cast<double>(std::min(model.windowed_layers, model.layers)) / model.layers;
  return 1.0 + whole * (1.0 - 1.0 / ring);
}

void append_fused_core(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                       const OperatorShapes& shapes) {
  Operator attention;
  attention.name = "flash attention";
  attention.kind = OperatorKind::kFusedAttention;
  attention.full_attention_flops = Flops(2 * shapes.scores * shapes.attended * (model.key_dim() + model.value_dim()));
  attention.attention_flops = attention.full_attention_flops * (model.causal ? kCausalShare : 1.0);
  attention.imbalance = context_imbalance(model, layout);
  attention.forward_kernels = 1;
  attention.backward_kernels = 2;
  const double width = (static_cast<double>(model.attention_width()) + model.key_width() + model.value_width());
  attention.saved = Bytes(shapes.tokens * width / shapes.tp * shapes.element);
  // The logarithm of each row's softmax sum, from which the backward kernel rebuilds the scores.
  attention.saved_core = Bytes(shapes.tokens * model.heads / shapes.tp * kFp32Bytes);
  attention.output = Bytes(shapes.tokens * model.value_dim() * model.heads / shapes.tp * shapes.element);
  attention.attention_core = true;
  operators.push_back(attention);
}

void append_projections(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                        const Training& training) {
  const Stack& stack = training.stack;
  const double e = shapes.element;
  const double qkv = (static_cast<double>(model.attention_width()) + model.key_width() + model.value_width());
  const double columns = qkv / shapes.tp;
  operators.push_back(linear_operator("qkv projection", shapes, model.hidden, columns, shapes.sharded_tokens, stack));
  operators.back().gathered_input = GatheredInput::kAttention;
  operators.back().dropped_with = bit_of(RecomputeModule::kLayernorm);
  if (model.query_bias()) add_bias(operators.back(), shapes, columns);
  quantise(operators.back(), training, true);
  const double rotated = shapes.tokens * (model.attention_width() + model.key_width()) / shapes.tp;
  if (model.qk_norm) {
    Operator norms = memory_bound("query and key norms", rotated, 2 * e, 5 * e);
    norms.forward_kernels = 2;
    norms.backward_kernels = 4;
    const double scales = model.norm == Norm::kLayerNorm ? 2.0 : 1.0;
    norms.parameters = scales * 2.0 * model.head_dim;
    norms.parameter_copies = shapes.tensor_ranks;
    if (model.whole_qk_norm) {
      norms.parameters = scales * (model.attention_width() + model.key_width()) / shapes.tp;
      norms.parameter_copies = 1;
    }
    norms.saved = Bytes(rotated * e);
    operators.push_back(norms);
  }
  if (model.positions == Positions::kRotary) {
    // Eager: halves negated and concatenated, two products, a sum, each written and read.
    const bool fused = stack.fuses(FusedOperator::kRotary);
    Operator rotary = memory_bound("rotary embedding", rotated, (fused ? 2 : 10) * e, (fused ? 2 : 10) * e);
    if (!fused) rotary.forward_kernels = rotary.backward_kernels = 5;
    operators.push_back(rotary);
  }
}

void append_latent_projections(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                               const Training& training) {
  const Stack& stack = training.stack;
  const std::size_t first = operators.size();
  const double e = shapes.element;
  const LatentAttention& latent = *model.latent;
  const double queries = model.attention_width() / shapes.tp;
  const double heads = model.heads / shapes.tp;
  if (latent.query_rank > 0) {
    operators.push_back(replicated_linear("query down projection", shapes, model.hidden, latent.query_rank, stack));
    operators.back().dropped_with = bit_of(RecomputeModule::kLayernorm);
    operators.push_back(latent_norm(model, shapes, "query latent norm", latent.query_rank));
    operators.push_back(
        linear_operator("query up projection", shapes, latent.query_rank, queries, shapes.sharded_tokens, stack));
    operators.back().gathered_input = GatheredInput::kAttention;
    operators.back().redone_with = bit_of(RecomputeModule::kLatentUp);
  } else {
    operators.push_back(
        linear_operator("query projection", shapes, model.hidden, queries, shapes.sharded_tokens, stack));
    operators.back().gathered_input = GatheredInput::kAttention;
    operators.back().dropped_with = bit_of(RecomputeModule::kLayernorm);
    operators.back().redone_with = bit_of(RecomputeModule::kLatentUp);
  }
  const double compressed = static_cast<double>(latent.key_value_rank) + latent.rope_dim;
  operators.push_back(replicated_linear("key-value down projection", shapes, model.hidden, compressed, stack));
  operators.back().dropped_with = bit_of(RecomputeModule::kLayernorm);
  operators.push_back(latent_norm(model, shapes, "key-value latent norm", latent.key_value_rank));
  operators.push_back(linear_operator("key-value up projection", shapes, latent.key_value_rank,
                                      heads * (latent.nope_dim + latent.value_dim), shapes.sharded_tokens, stack));
  operators.back().gathered_input = GatheredInput::kAttention;
  operators.back().redone_with = bit_of(RecomputeModule::kLatentUp);
  for (std::size_t index = first; index < operators.size(); ++index) {
    if (operators[index].kind == OperatorKind::kLinear) quantise(operators[index], training, false);
  }
  // The rotated part of every query, and the shared rotated key copied to every head.
  operators.push_back(memory_bound("rotary embedding", shapes.tokens * heads * latent.rope_dim * 2, 2 * e, 2 * e));
  operators.back().redone_with = bit_of(RecomputeModule::kLatentUp);
}

}  // namespace

void append_attention(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                      const Training& training) {
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  if (model.latent) {
    append_latent_projections(operators, model, shapes, training);
  } else {
    append_projections(operators, model, shapes, training);
  }
  const std::size_t core = operators.size();
  if (training.flash_attention) {
    append_fused_core(operators, model, layout, shapes);
    operators.back().low_precision = training.precision == Precision::kFp8 && training.stack.fp8_attention;
  } else {
    append_unfused_core(operators, model, layout, training, shapes);
  }
  // Attention saves queries, keys and values, which this module recomputes.
  for (std::size_t index = core; model.latent && index < operators.size(); ++index) {
    operators[index].dropped_with = bit_of(RecomputeModule::kLatentUp);
  }
  if (model.attention_sinks) {
    Operator sinks = memory_bound("attention sinks", 0.0, 0.0, 0.0);
    sinks.parameters = model.heads / shapes.tp;
    operators.push_back(sinks);
  }
  const double context = model.context_width() / shapes.tp;
  Operator transpose = memory_bound("head transpose", shapes.tokens * context, 2 * e, 6 * e);
  transpose.backward_kernels = 3;
  operators.push_back(transpose);
  operators.push_back(
      linear_operator("output projection", shapes, context, model.hidden, shapes.tokens, training.stack));
  quantise(operators.back(), training, false);
}

}  // namespace flopcast
