#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

std::int64_t whole_number(double value) {
  return static_cast<std::int64_t>(value);
}

// Documents packed into a sequence, the last one truncated, each attend only to themselves.
double attended_share(const Transformer& model, const Training& training) {
  const double length = training.sequence_length;
  if (training.document_length <= 0 || training.document_length >= length) return model.attended_share(length);
  const double document = training.document_length;
  const double rest = std::fmod(length, document);
  const double whole = (length - rest) * document * model.attended_share(document);
  return (whole + rest * rest * model.attended_share(rest)) / (length * length);
}

// An eager RMSNorm, kernel by kernel: to fp32, square, mean, scaling, back, weight; the backward pass runs their
// gradients. LayerNorm is one kernel in every framework. A compiler fuses norms with adjacent residuals.
struct NormCosts {
  double forward = 0.0;  ///< bytes per element
  double backward = 0.0;
  int forward_kernels = 1;
  int backward_kernels = 2;
  double saved = 0.0;  ///< bytes per element beyond its input
};

NormCosts norm_costs(const Transformer& model, const OperatorShapes& shapes) {
  const double e = shapes.element;
  if (model.norm == Norm::kRmsNorm && !shapes.fused_norm) {
    const double cast = e + kFp32Bytes;
    // Saves the fp32 copy instead of the input, and the scaled 16-bit result before the weight.
    return {2 * cast + 5 * kFp32Bytes + 2 * e, 2 * cast + 12 * kFp32Bytes + 5 * e, 6, 11, kFp32Bytes};
  }
  if (shapes.compiled) return {e, 4 * e, 0, 2};
  if (!shapes.single_pass_norm) return {3 * e, 10 * e, 1, 3};
  return {2 * e, 5 * e, 1, 2};
}

struct Fp8Casts {
  double bytes = 0.0;  ///< per element
  int kernels = 0;     ///< per tensor
  int of_product =
      0;  ///< extra kernels per GEMM, for all its tensors together: block scales in the layout of tensor cores
};

Fp8Casts casts_of(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::kDelayed:
      return {4.0, 1};
    case Fp8Recipe::kTensorwise:
    case Fp8Recipe::kCurrent:
      return {6.0, 3};
    case Fp8Recipe::kBlockwise:
      return {6.5, 2};
    case Fp8Recipe::kRowwise:
      return {12.0, 4};
    case Fp8Recipe::kMxfp8:
      return {4.2, 1, 2};
    case Fp8Recipe::kNvfp4:
      return {7.1, 3, 2};
  }
  return {};
}

// The activation's saved `inputs` are written in 8 bits after it and converted back to 16 bits before its gradient
// (NVIDIA/Megatron-LM, megatron/core/fusions/fused_bias_swiglu.py: fp8_input_store).
void keep_in_8_bits(Operator& activation, double inputs) {
  constexpr double kThere = 3.0;  // 2 bytes read, 1 written; the same on the way back
  activation.saved = Bytes(inputs);
  activation.forward_bytes += Bytes(inputs * kThere);
  activation.input_gradient_bytes += Bytes(inputs * kThere);
  ++activation.forward_kernels;
  ++activation.backward_kernels;
}

}  // namespace

OperatorShapes::OperatorShapes(const Transformer& model, const Layout& layout, const Training& training)
    : tokens(static_cast<double>(sequences_of(training, layout.micro_batch_size)) * training.sequence_length /
             layout.cp),
      tp(layout.tp),
      element(element_size(training.precision).value()),
      sharded_tokens(layout.sequence_parallel ? tokens / layout.tp : tokens),
      scores(static_cast<double>(sequences_of(training, layout.micro_batch_size)) * model.heads / layout.tp *
             (static_cast<double>(training.sequence_length) / layout.cp) * training.sequence_length),
      attended(attended_share(model, training)),
      single_pass_norm(training.stack.single_pass_norm),
      fused_norm(training.stack.fuses(FusedOperator::kNorm)),
      compiled(training.stack.compile),
      unsplit_copies(layout.sequence_parallel ? 1 : layout.tp),
      tensor_ranks(layout.tp) {}

Operator memory_bound(std::string_view name, double elements, double forward, double input_gradient) {
  Operator op;
  op.name = name;
  op.forward_bytes = Bytes(elements * forward);
  op.input_gradient_bytes = Bytes(elements * input_gradient);
  op.forward_kernels = forward > 0 ? 1 : 0;
  op.backward_kernels = input_gradient > 0 ? 1 : 0;
  op.reads_fresh = true;
  return op;
}

Operator latent_norm(const Transformer& model, const OperatorShapes& shapes, std::string_view name, double width) {
  const double elements = shapes.sharded_tokens * width;
  const NormCosts costs = norm_costs(model, shapes);
  Operator op = memory_bound(name, elements, costs.forward, costs.backward);
  op.forward_kernels = costs.forward_kernels;
  op.backward_kernels = costs.backward_kernels;
  op.parameters = (model.norm == Norm::kLayerNorm ? 2.0 : 1.0) * width;
  op.saved = Bytes(elements * (shapes.element + costs.saved));
  op.output = Bytes(elements * shapes.element);
  op.work_copies = shapes.unsplit_copies;
  op.parameter_copies = shapes.tensor_ranks;
  return op;
}

Operator norm_operator(const Transformer& model, const OperatorShapes& shapes, std::string_view name) {
  return latent_norm(model, shapes, name, model.hidden);
}

Operator linear_operator(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                         double saved_tokens, const Stack& stack) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::kLinear;
  op.shape = {whole_number(shapes.tokens), whole_number(outputs), whole_number(inputs), 1};
  op.forward_kernels = 1;
  op.backward_kernels = 2;
  op.parameters = inputs * outputs;
  op.saved = Bytes(saved_tokens * inputs * shapes.element);
  op.output = Bytes(shapes.tokens * outputs * shapes.element);
  op.gradient_buffer = Bytes(shapes.tokens * (inputs + outputs) * shapes.element);
  if (!stack.fused_gradient_accumulation) {
    op.weight_gradient_bytes = Bytes(op.parameters * (shapes.element + 2 * stack.gradient_bytes));
    op.backward_kernels += 1;
  }
  return op;
}

Operator replicated_linear(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                           const Stack& stack) {
  Operator op = linear_operator(name, shapes, inputs, outputs, shapes.sharded_tokens, stack);
  op.shape.m = whole_number(shapes.sharded_tokens);
  op.work_copies = shapes.unsplit_copies;
  op.parameter_copies = shapes.tensor_ranks;
  return op;
}

void add_bias(Operator& op, const OperatorShapes& shapes, double outputs) {
  op.parameters += outputs;
  op.input_gradient_bytes += Bytes(shapes.tokens * outputs * shapes.element);
  op.backward_kernels += 1;
}

void quantise(Operator& op, const Training& training, bool normed) {
  if (training.precision != Precision::kFp8) return;
  const Fp8Recipe recipe = training.fp8_recipe.value_or(Fp8Recipe::kDelayed);
  const Fp8Casts casts = casts_of(recipe);
  constexpr double kSavedByNorm = 3.0;  // the norm writes 1 byte instead of 2, which is not read again
  const double rows = static_cast<double>(op.shape.m) * static_cast<double>(op.shape.batch);
  const bool fused = training.stack.fuses(FusedOperator::kCasts);
  const double saved = std::min(kSavedByNorm, casts.bytes);
  const double before = casts.bytes - (fused || (normed && recipe == Fp8Recipe::kDelayed) ? saved : 0.0);
  const double after = casts.bytes - (fused ? saved : 0.0);
  op.low_precision = true;
  // TransformerEngine keeps the transposed 8-bit copy for the weight gradient; torchao's linears keep their original
  // input.
  const bool of_torchao = recipe == Fp8Recipe::kTensorwise || recipe == Fp8Recipe::kRowwise;
  if (!of_torchao) op.saved = op.saved * (1.0 / element_size(training.precision).value());
  op.forward_casts = Bytes(rows * static_cast<double>(op.shape.k) * before);
  op.backward_casts = Bytes(rows * static_cast<double>(op.shape.n) * after);
  const int kernels = casts.kernels * op.calls + casts.of_product;
  op.cast_kernels = 2 * kernels;
  op.forward_kernels += kernels;
  op.backward_kernels += kernels;
}

Operator activation_operator(const Transformer& model, const OperatorShapes& shapes, const Stack& stack,
                             std::string_view name, double elements) {
  const double e = shapes.element;
  if (!model.gated_mlp) return memory_bound(name, elements, 2 * e, 3 * e);
  if (stack.fuses(FusedOperator::kActivation)) return memory_bound(name, elements, 3 * e, 5 * e);
  Operator op = memory_bound(name, elements, 5 * e, 9 * e);
  op.forward_kernels = 2;
  op.backward_kernels = 3;
  return op;
}

void append_mlp(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                const Training& training, double width) {
  const Stack& stack = training.stack;
  const double e = shapes.element;
  const double columns = width / shapes.tp;
  const double inputs = (model.gated_mlp ? 2.0 : 1.0) * columns;
  operators.push_back(linear_operator("mlp up", shapes, model.hidden, inputs, shapes.sharded_tokens, stack));
  operators.back().gathered_input = GatheredInput::kMlp;
  if (model.biases) add_bias(operators.back(), shapes, inputs);
  quantise(operators.back(), training, true);
  Operator activation = activation_operator(model, shapes, stack, "activation", shapes.tokens * columns);
  // Eager: the result of the gate's function is also kept, because the product's gradient needs it.
  const bool keeps_gate = model.gated_mlp && !stack.fuses(FusedOperator::kActivation);
  activation.saved = Bytes(shapes.tokens * (inputs + (keeps_gate ? columns : 0.0)) * e);
  activation.gradient_buffer = Bytes(shapes.tokens * (inputs + columns) * e);
  if (training.precision == Precision::kFp8 && stack.fp8_activations)
    keep_in_8_bits(activation, shapes.tokens * inputs);
  operators.push_back(activation);
  operators.push_back(linear_operator("mlp down", shapes, columns, model.hidden, shapes.tokens, stack));
  quantise(operators.back(), training, false);
}

}  // namespace flopcast
