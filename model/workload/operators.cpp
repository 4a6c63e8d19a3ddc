#include "model/workload/operators.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace flopcast {

namespace {

// Bias, dropout and residual after attention or MLP, and the sum of the residual's gradients. Biases of experts are
// added by the experts.
Operator residual(const Transformer& model, const OperatorShapes& shapes, const Stack& stack, std::string_view name,
                  bool biased) {
  const double elements = shapes.sharded_tokens * model.hidden;
  const double e = shapes.element;
  double forward = 3 * e;
  double backward = 3 * e;
  if (model.dropout) {
    forward += kMaskBytes;
    backward += 2 * e + kMaskBytes;
  }
  if (biased) backward += e;
  int kernels = 1;
  if (!stack.fused_bias_dropout_add && (model.dropout || biased)) {
    forward += (biased ? 2 * e : 0.0) + (model.dropout ? 2 * e : 0.0);
    kernels = 1 + (biased ? 1 : 0) + (model.dropout ? 1 : 0);
  }
  Operator op = memory_bound(name, elements, forward, backward);
  op.forward_kernels = kernels;
  op.backward_kernels = kernels + 1;
  if (biased) op.parameters = model.hidden;
  op.work_copies = shapes.unsplit_copies;
  op.parameter_copies = shapes.tensor_ranks;
  if (model.dropout) op.saved = Bytes(elements * kMaskBytes);
  return op;
}

// The bias of attention's output in a parallel block, which the MLP's residual sum adds.
Operator unadded_bias(const Transformer& model, const OperatorShapes& shapes) {
  Operator op = memory_bound("attention bias", 0.0, 0.0, 0.0);
  op.parameters = model.hidden;
  op.parameter_copies = shapes.tensor_ranks;
  return op;
}

// Marks which recomputation modules the operators of a block belong to, given where each part begins.
void mark_modules(std::vector<Operator>& operators, std::size_t mlp_norm, std::size_t mlp, std::size_t mlp_end,
                  BlockKind kind) {
  const RecomputeModules norms = bit_of(RecomputeModule::kLayernorm);
  const RecomputeModules whole = bit_of(kind == BlockKind::kExperts ? RecomputeModule::kMoe : RecomputeModule::kMlp);
  operators.front().redone_with |= norms;
  if (mlp_norm < mlp) operators[mlp_norm].redone_with |= norms;
  for (std::size_t index = 1; index < mlp_norm; ++index) {
    if (operators[index].attention_core) operators[index].redone_with |= bit_of(RecomputeModule::kCoreAttention);
  }
  for (std::size_t index = mlp; index < mlp_end; ++index) {
    Operator& op = operators[index];
    op.redone_with |= whole;
    // The input of the first operator stays, because the module is rebuilt from it, unless the norm is recomputed.
    op.dropped_with |= index == mlp ? norms : whole;
  }
}

}  // namespace

std::vector<Operator> block_operators(const Transformer& model, const Layout& layout, const Training& training,
                                      BlockKind kind, LayerState state) {
  if (layout.tensor_parallel != TensorParallel::k1d) {
    return split_over_grid(block_operators(model, without_tensor_grid(layout), training, kind), layout);
  }
  const OperatorShapes shapes(model, layout, training);
  const Stack& stack = training.stack;
  std::vector<Operator> operators;
  operators.reserve(24);
  operators.push_back(norm_operator(model, shapes, "attention norm"));
  append_attention(operators, model, layout, training);
  if (model.post_norms) operators.push_back(norm_operator(model, shapes, "attention post norm"));
  if (model.block == BlockForm::kSequential) {
    operators.push_back(residual(model, shapes, stack, "attention residual", model.biases));
  } else if (model.biases) {
    operators.push_back(unadded_bias(model, shapes));
  }
  const std::size_t mlp_norm = operators.size();
  if (model.block != BlockForm::kParallelOneNorm) operators.push_back(norm_operator(model, shapes, "mlp norm"));
  const std::size_t mlp = operators.size();
  if (kind == BlockKind::kExperts) {
    append_experts(operators, model, layout, training);
  } else {
    append_mlp(operators, model, shapes, training, model.ffn);
  }
  mark_modules(operators, mlp_norm, mlp, operators.size(), kind);
  if (model.post_norms) operators.push_back(norm_operator(model, shapes, "mlp post norm"));
  operators.push_back(residual(model, shapes, stack, "mlp residual", model.biases && kind == BlockKind::kDense));
  if (training.finetune) return finetuned(std::move(operators), model, layout, training, state);
  return operators;
}

std::vector<Operator> embedding_operators(const Transformer& model, const Layout& layout, const Training& training) {
  if (layout.tensor_parallel != TensorParallel::k1d) {
    return split_over_grid(embedding_operators(model, without_tensor_grid(layout), training), layout);
  }
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  const double elements = shapes.tokens * model.hidden;
  std::vector<Operator> operators;
  operators.reserve(4);

  Operator lookup = memory_bound("token embedding", elements, 2 * e, 0.0);
  lookup.weight_gradient_bytes = Bytes(elements * (e + 2 * training.stack.gradient_bytes));
  lookup.backward_kernels = 1;
  lookup.parameters = padded_vocab(model.vocab, training.stack.vocab_divisor, layout.tp) / shapes.tp * model.hidden;
  operators.push_back(lookup);
  if (model.positions == Positions::kLearned) {
    Operator positions = memory_bound("position embedding", elements, 3 * e, 0.0);
    positions.weight_gradient_bytes = Bytes(elements * e);
    positions.backward_kernels = 1;
    positions.parameters = static_cast<double>(model.sequence_length) * model.hidden;
    positions.parameter_copies = shapes.tensor_ranks;
    positions.work_copies = shapes.unsplit_copies;
    operators.push_back(positions);
  }
  if (model.embedding_norm) operators.push_back(norm_operator(model, shapes, "embedding norm"));
  if (model.dropout) {
    const double sharded = shapes.sharded_tokens * model.hidden;
    Operator dropout = memory_bound("embedding dropout", sharded, 2 * e + kMaskBytes, 2 * e + kMaskBytes);
    dropout.saved = Bytes(sharded * kMaskBytes);
    operators.push_back(dropout);
  }
  const LayerState state = embedding_state(training);
  return state == LayerState::kTrained ? operators : finetuned(std::move(operators), model, layout, training, state);
}

std::vector<Operator> head_operators(const Transformer& model, const Layout& layout, const Training& training) {
  if (layout.tensor_parallel != TensorParallel::k1d) {
    return split_over_grid(head_operators(model, without_tensor_grid(layout), training), layout);
  }
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  // A reward model has a single score instead of the vocabulary.
  const bool scores = training.preference && training.preference->method == PreferenceMethod::kReward;
  const double vocab = scores ? 1.0 : padded_vocab(model.vocab, training.stack.vocab_divisor, layout.tp) / shapes.tp;
  const double logits = shapes.tokens * vocab;
  std::vector<Operator> operators;
  operators.reserve(3);

  operators.push_back(norm_operator(model, shapes, "final norm"));
  operators.push_back(linear_operator("logits", shapes, model.hidden, vocab, shapes.sharded_tokens, training.stack));
  // Vocabulary-parallel cross entropy, kernel by kernel: to fp32, maximum, subtraction, exponential, sum, division; the
  // backward pass scales the stored softmax in place and casts it.
  const Stack& stack = training.stack;
  const double kernel_by_kernel =
      (e + kFp32Bytes) + kFp32Bytes + 2 * kFp32Bytes + 2 * kFp32Bytes + kFp32Bytes + 2 * kFp32Bytes;
  double forward = stack.loss_forward_bytes > 0.0 ? stack.loss_forward_bytes : kernel_by_kernel;
  double backward = stack.loss_backward_bytes > 0.0 ? stack.loss_backward_bytes : 2 * kFp32Bytes + (kFp32Bytes + e);
  // As a single kernel: one pass each for maximum and sum, then the gradient from the logits.
  if (stack.fuses(FusedOperator::kLoss)) {
    forward = std::min(forward, 2 * e + kFp32Bytes);
    backward = std::min(backward, kFp32Bytes + e);
  }
  Operator loss = memory_bound("cross entropy", logits, forward, backward);
  loss.reads_fresh = false;
  loss.forward_kernels = 6;
  loss.backward_kernels = 2;
  loss.saved = Bytes(logits * stack.loss_saved_bytes);
  operators.push_back(loss);
  const LayerState state = head_state(training);
  return state == LayerState::kTrained ? operators : finetuned(std::move(operators), model, layout, training, state);
}

std::vector<Operator> mtp_operators(const Transformer& model, const Layout& layout, const Training& training) {
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  const double elements = shapes.tokens * model.hidden;
  std::vector<Operator> operators;
  Operator lookup = memory_bound("mtp embedding", elements, 2 * e, 0.0);
  lookup.weight_gradient_bytes = Bytes(elements * (e + 2 * training.stack.gradient_bytes));
  lookup.backward_kernels = 1;
  operators.push_back(lookup);
  operators.push_back(norm_operator(model, shapes, "mtp embedding norm"));
  operators.push_back(norm_operator(model, shapes, "mtp hidden norm"));
  operators.push_back(linear_operator("mtp projection", shapes, 2.0 * model.hidden, model.hidden / shapes.tp,
                                      shapes.sharded_tokens, training.stack));
  quantise(operators.back(), training, true);
  for (Operator& op : head_operators(model, layout, training)) {
    if (op.kind == OperatorKind::kLinear) op.parameters = 0.0;
    operators.push_back(std::move(op));
  }
  return operators;
}

Layout without_tensor_grid(const Layout& layout) {
  Layout plain = layout;
  plain.tensor_parallel = TensorParallel::k1d;
  plain.tp = 1;
  return plain;
}

std::vector<Operator> split_over_grid(std::vector<Operator> operators, const Layout& layout) {
  const TensorGrid grid = tensor_grid(layout.tensor_parallel, layout.tp, layout.tensor_depth);
  const bool cubic = layout.tensor_parallel == TensorParallel::k3d;
  const double ranks = grid.ranks();
  for (Operator& op : operators) {
    if (op.kind == OperatorKind::kLinear) {
      op.shape.m /= cubic ? grid.q : grid.token_parts;
      op.shape.n /= grid.q;
      if (cubic) op.shape.k /= grid.q;
    } else if (op.kind == OperatorKind::kBatchedProduct) {
      op.shape.batch /= grid.ranks();
    }
    op.forward_casts = op.forward_casts / ranks;
    op.backward_casts = op.backward_casts / ranks;
    op.attention_flops = op.attention_flops / ranks;
    op.full_attention_flops = op.full_attention_flops / ranks;
    op.forward_bytes = op.forward_bytes / ranks;
    op.input_gradient_bytes = op.input_gradient_bytes / ranks;
    op.weight_gradient_bytes = op.weight_gradient_bytes / static_cast<double>(grid.weight_parts);
    op.parameters /= grid.weight_parts;
    op.parameter_copies = grid.ranks() / grid.weight_parts;
    op.saved = op.saved / ranks;
    op.saved_core = op.saved_core / ranks;
    op.output = op.output / ranks;
  }
  return operators;
}

namespace {

// Recomputed operators start from the outputs of those that are not: attention and every second GEMM.
Bytes kept_by_operator(const std::vector<Operator>& operators) {
  Bytes total;
  total += operators.front().output;  // a norm's output, as large as the block's input
  for (const Operator& op : operators) {
    if (op.kind == OperatorKind::kLinear) total += op.output * 0.5;
    if (op.kind == OperatorKind::kFusedAttention) total += op.output + op.saved_core;
  }
  return total;
}

RecomputeModules modules_of(const Layout& layout) {
  return layout.recompute_modules.value_or(bit_of(RecomputeModule::kCoreAttention));
}

}  // namespace

double redone_selectively(const Operator& op, const Layout& layout, const Stack& stack) {
  if (layout.recompute_modules) return (op.redone_with & *layout.recompute_modules).any() ? 1.0 : 0.0;
  if (stack.selective_recompute == SelectiveRecompute::kAttention) return op.attention_core ? 1.0 : 0.0;
  if (op.kind == OperatorKind::kFusedAttention) return 0.0;
  return op.kind == OperatorKind::kMemoryBound ? 1.0 : 0.5;
}

Flops forward_flops(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::kLinear:
    case OperatorKind::kBatchedProduct:
      return Flops(2.0 * static_cast<double>(op.shape.m) * static_cast<double>(op.shape.n) *
                   static_cast<double>(op.shape.k) * static_cast<double>(op.shape.batch) * op.filled);
    case OperatorKind::kFusedAttention:
      return op.full_attention_flops;
    case OperatorKind::kMemoryBound:
      return Flops(0);
  }
  return Flops(0);
}

double passes_of(const Operator& op) {
  if (op.still) return 1.0;
  return op.frozen ? 2.0 : 3.0;
}

Flops causal_forward_flops(const Operator& op, const Transformer& model) {
  constexpr double kCausalHalf = 0.5;
  const bool of_scores = op.kind == OperatorKind::kFusedAttention || op.kind == OperatorKind::kBatchedProduct;
  return forward_flops(op) * (of_scores && op.attention_core && model.causal ? kCausalHalf : 1.0);
}

Bytes saved_activation(const std::vector<Operator>& operators) {
  Bytes total;
  for (const Operator& op : operators) {
    total += op.saved;
    total += op.saved_core;
  }
  return total;
}

Bytes rebuilt_selectively(const std::vector<Operator>& operators, const Layout& layout) {
  const RecomputeModules modules = modules_of(layout);
  Bytes total;
  for (const Operator& op : operators) {
    if ((op.dropped_with & modules).any()) total += op.saved;
    if ((op.redone_with & modules).any()) total += op.saved_core;
  }
  return total;
}

Bytes saved_selectively(const std::vector<Operator>& operators, const Layout& layout, const Stack& stack) {
  if (!layout.recompute_modules && stack.selective_recompute == SelectiveRecompute::kOperators) {
    return kept_by_operator(operators);
  }
  const RecomputeModules modules = modules_of(layout);
  Bytes total;
  for (const Operator& op : operators) {
    if ((op.dropped_with & modules).none()) total += op.saved;
    if ((op.redone_with & modules).none()) total += op.saved_core;
  }
  return total;
}

Bytes gradient_buffer(const std::vector<Operator>& operators) {
  Bytes largest;
  for (const Operator& op : operators) largest = std::max(largest, op.gradient_buffer);
  return largest;
}

Bytes placeholder_gradients(const std::vector<Operator>& operators, const Training& training) {
  if (!training.stack.placeholder_gradients || !training.stack.fused_gradient_accumulation) return Bytes(0);
  Bytes total;
  for (const Operator& op : operators) {
    if (op.kind == OperatorKind::kLinear && !op.frozen) total += element_size(training.precision) * op.parameters;
  }
  return total;
}

}  // namespace flopcast
