#include "model/workload/operators.hpp"

#include <algorithm>

#include "model/workload/operator_parts.hpp"
#include "model/workload/tensor_grid_operators.hpp"

namespace flopcast {

namespace {

// Bias, dropout and residual after attention or MLP, and the residual's gradient sum. The biases of experts are theirs.
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

}  // namespace

std::vector<Operator> block_operators(const Transformer& model, const Layout& layout, const Training& training,
                                      BlockKind kind) {
  if (layout.tensor_parallel != TensorParallel::k1d) {
    return split_over_grid(block_operators(model, without_tensor_grid(layout), training, kind), layout);
  }
  const OperatorShapes shapes(model, layout, training);
  const Stack& stack = training.stack;
  std::vector<Operator> operators;
  operators.reserve(24);
  operators.push_back(norm_operator(model, shapes, "attention norm"));
  append_attention(operators, model, layout, training);
  operators.push_back(residual(model, shapes, stack, "attention residual", model.biases));
  operators.push_back(norm_operator(model, shapes, "mlp norm"));
  if (kind == BlockKind::kExperts) {
    append_experts(operators, model, layout, training);
  } else {
    append_mlp(operators, model, shapes, stack, model.ffn);
  }
  operators.push_back(residual(model, shapes, stack, "mlp residual", model.biases && kind == BlockKind::kDense));
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
  return operators;
}

std::vector<Operator> head_operators(const Transformer& model, const Layout& layout, const Training& training) {
  if (layout.tensor_parallel != TensorParallel::k1d) {
    return split_over_grid(head_operators(model, without_tensor_grid(layout), training), layout);
  }
  const OperatorShapes shapes(model, layout, training);
  const double e = shapes.element;
  const double vocab = padded_vocab(model.vocab, training.stack.vocab_divisor, layout.tp) / shapes.tp;
  const double logits = shapes.tokens * vocab;
  std::vector<Operator> operators;
  operators.reserve(3);

  operators.push_back(norm_operator(model, shapes, "final norm"));
  operators.push_back(linear_operator("logits", shapes, model.hidden, vocab, shapes.sharded_tokens, training.stack));
  // Vocabulary-parallel cross entropy, kernel by kernel: to fp32, maximum, subtraction, exponential, sum, division;
  // backward scales the stored softmax in place and casts it.
  const Stack& stack = training.stack;
  const double kernel_by_kernel =
      (e + kFp32Bytes) + kFp32Bytes + 2 * kFp32Bytes + 2 * kFp32Bytes + kFp32Bytes + 2 * kFp32Bytes;
  const double forward = stack.loss_forward_bytes > 0.0 ? stack.loss_forward_bytes : kernel_by_kernel;
  const double backward =
      stack.loss_backward_bytes > 0.0 ? stack.loss_backward_bytes : 2 * kFp32Bytes + (kFp32Bytes + e);
  Operator loss = memory_bound("cross entropy", logits, forward, backward);
  loss.reads_fresh = false;
  loss.forward_kernels = 6;
  loss.backward_kernels = 2;
  loss.saved = Bytes(logits * stack.loss_saved_bytes);
  operators.push_back(loss);
  return operators;
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

Bytes saved_activation(const std::vector<Operator>& operators, Recompute recompute) {
  Bytes total;
  for (const Operator& op : operators) {
    total += op.saved;
    if (recompute == Recompute::kNone) total += op.saved_core;
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
    if (op.kind == OperatorKind::kLinear) total += element_size(training.precision) * op.parameters;
  }
  return total;
}

}  // namespace flopcast
