#include "model/workload/operator_parts.hpp"

namespace flopcast {

namespace {

std::int64_t whole(double value) {
  return static_cast<std::int64_t>(value);
}

}  // namespace

OperatorShapes::OperatorShapes(const Transformer& model, const Layout& layout, const Training& training)
    : tokens(static_cast<double>(layout.micro_batch_size) * training.sequence_length / layout.cp),
      tp(layout.tp),
      element(element_size(training.precision).value()),
      sharded_tokens(layout.sequence_parallel ? tokens / layout.tp : tokens),
      scores(static_cast<double>(layout.micro_batch_size) * model.heads / layout.tp *
             (static_cast<double>(training.sequence_length) / layout.cp) * training.sequence_length),
      single_pass_norm(training.stack.single_pass_norm),
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
  const double forward_tensors = shapes.single_pass_norm ? 2.0 : 3.0;
  const double backward_tensors = shapes.single_pass_norm ? 5.0 : 10.0;
  Operator op = memory_bound(name, elements, forward_tensors * shapes.element, backward_tensors * shapes.element);
  op.backward_kernels = shapes.single_pass_norm ? 2 : 3;
  op.parameters = (model.norm == Norm::kLayerNorm ? 2.0 : 1.0) * width;
  op.saved = Bytes(elements * shapes.element);
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
  op.shape = {whole(shapes.tokens), whole(outputs), whole(inputs), 1};
  op.forward_kernels = 1;
  op.backward_kernels = 2;
  op.parameters = inputs * outputs;
  op.saved = Bytes(saved_tokens * inputs * shapes.element);
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
  op.shape.m = whole(shapes.sharded_tokens);
  op.work_copies = shapes.unsplit_copies;
  op.parameter_copies = shapes.tensor_ranks;
  return op;
}

void add_bias(Operator& op, const OperatorShapes& shapes, double outputs) {
  op.parameters += outputs;
  op.input_gradient_bytes += Bytes(shapes.tokens * outputs * shapes.element);
  op.backward_kernels += 1;
}

void append_mlp(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                const Stack& stack, double width) {
  const double e = shapes.element;
  const double columns = width / shapes.tp;
  const double inputs = (model.gated_mlp ? 2.0 : 1.0) * columns;
  operators.push_back(linear_operator("mlp up", shapes, model.hidden, inputs, shapes.sharded_tokens, stack));
  if (model.biases) add_bias(operators.back(), shapes, inputs);
  Operator activation = model.gated_mlp ? memory_bound("gated activation", shapes.tokens * columns, 3 * e, 5 * e)
                                        : memory_bound("activation", shapes.tokens * columns, 2 * e, 3 * e);
  activation.saved = Bytes(shapes.tokens * inputs * e);
  activation.gradient_buffer = Bytes(shapes.tokens * (inputs + columns) * e);
  operators.push_back(activation);
  operators.push_back(linear_operator("mlp down", shapes, columns, model.hidden, shapes.tokens, stack));
}

}  // namespace flopcast
