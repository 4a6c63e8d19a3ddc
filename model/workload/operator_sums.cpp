#include <algorithm>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

// Inputs of what is redone are rebuilt from the outputs of what is not: attention and every second product.
Bytes kept_by_operator(const std::vector<Operator>& operators) {
  Bytes total;
  total += operators.front().output;  // of a norm: as large as the block's input
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
