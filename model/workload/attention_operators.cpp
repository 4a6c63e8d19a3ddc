#include <algorithm>

#include "model/workload/operator_parts.hpp"

namespace flopcast {

namespace {

constexpr double kCausalShare = 0.5;  // of the score matrix that a causal kernel visits

constexpr double kUnfusedSoftmaxBytes = 20.0;  // per score, read and written beyond the fused kernel
constexpr int kUnfusedSoftmaxKernels = 8;

void append_unfused_core(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                         const Training& training, const OperatorShapes& shapes) {
  const double e = shapes.element;
  // Ulysses hands each rank whole sequences of some heads, a ring some queries of all.
  const int head_parts = layout.context_parallel == ContextParallel::kUlysses ? layout.cp : 1;
  const std::int64_t batch =
      static_cast<std::int64_t>(static_cast<double>(layout.micro_batch_size) * model.heads / (shapes.tp * head_parts));
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

void append_fused_core(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes) {
  Operator attention;
  attention.name = "flash attention";
  attention.kind = OperatorKind::kFusedAttention;
  attention.full_attention_flops = Flops(2 * shapes.scores * (model.key_dim() + model.value_dim()));
  attention.attention_flops = attention.full_attention_flops * (model.causal ? kCausalShare : 1.0);
  attention.forward_kernels = 1;
  attention.backward_kernels = 2;
  const double width = (static_cast<double>(model.attention_width()) + model.key_width() + model.value_width());
  attention.saved = Bytes(shapes.tokens * width / shapes.tp * shapes.element);
  // The logarithm of each row's softmax sum, which the backward kernel needs to rebuild the scores.
  attention.saved_core = Bytes(shapes.tokens * model.heads / shapes.tp * kFp32Bytes);
  attention.attention_core = true;
  operators.push_back(attention);
}

void append_projections(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                        const Stack& stack) {
  const double e = shapes.element;
  const double qkv = (static_cast<double>(model.attention_width()) + model.key_width() + model.value_width());
  const double columns = qkv / shapes.tp;
  operators.push_back(linear_operator("qkv projection", shapes, model.hidden, columns, shapes.sharded_tokens, stack));
  if (model.query_bias()) add_bias(operators.back(), shapes, columns);
  const double rotated = shapes.tokens * (model.attention_width() + model.key_width()) / shapes.tp;
  if (model.qk_norm) {
    Operator norms = memory_bound("query and key norms", rotated, 2 * e, 5 * e);
    norms.forward_kernels = 2;
    norms.backward_kernels = 4;
    norms.parameters = 2 * (model.norm == Norm::kLayerNorm ? 2.0 : 1.0) * model.head_dim;
    norms.parameter_copies = shapes.tensor_ranks;
    norms.saved = Bytes(rotated * e);
    operators.push_back(norms);
  }
  if (model.positions == Positions::kRotary) {
    operators.push_back(memory_bound("rotary embedding", rotated, 2 * e, 2 * e));
  }
}

void append_latent_projections(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                               const Stack& stack) {
  const double e = shapes.element;
  const LatentAttention& latent = *model.latent;
  const double queries = model.attention_width() / shapes.tp;
  const double heads = model.heads / shapes.tp;
  if (latent.query_rank > 0) {
    operators.push_back(replicated_linear("query down projection", shapes, model.hidden, latent.query_rank, stack));
    operators.push_back(latent_norm(model, shapes, "query latent norm", latent.query_rank));
    operators.push_back(
        linear_operator("query up projection", shapes, latent.query_rank, queries, shapes.sharded_tokens, stack));
  } else {
    operators.push_back(
        linear_operator("query projection", shapes, model.hidden, queries, shapes.sharded_tokens, stack));
  }
  const double compressed = static_cast<double>(latent.key_value_rank) + latent.rope_dim;
  operators.push_back(replicated_linear("key-value down projection", shapes, model.hidden, compressed, stack));
  operators.push_back(latent_norm(model, shapes, "key-value latent norm", latent.key_value_rank));
  operators.push_back(linear_operator("key-value up projection", shapes, latent.key_value_rank,
                                      heads * (latent.nope_dim + latent.value_dim), shapes.sharded_tokens, stack));
  // The rotated part of every query, and the shared rotated key copied to every head.
  operators.push_back(memory_bound("rotary embedding", shapes.tokens * heads * latent.rope_dim * 2, 2 * e, 2 * e));
}

}  // namespace

void append_attention(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                      const Training& training) {
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  if (model.latent) {
    append_latent_projections(operators, model, shapes, training.stack);
  } else {
    append_projections(operators, model, shapes, training.stack);
  }
  if (training.flash_attention) {
    append_fused_core(operators, model, shapes);
  } else {
    append_unfused_core(operators, model, layout, training, shapes);
  }
  const double context = model.context_width() / shapes.tp;
  Operator transpose = memory_bound("head transpose", shapes.tokens * context, 2 * e, 6 * e);
  transpose.backward_kernels = 3;
  operators.push_back(transpose);
  operators.push_back(
      linear_operator("output projection", shapes, context, model.hidden, shapes.tokens, training.stack));
}

}  // namespace flopcast
