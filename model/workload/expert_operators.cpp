#include <algorithm>
#include <cmath>

#include "model/workload/operator_parts.hpp"

namespace flopcast {

namespace {

struct ExpertRows {
  double each = 0.0;    ///< rows of one expert, padding included
  double filled = 0.0;  ///< of these, rows that hold tokens
};

// One product a local expert, all in one grouped kernel.
Operator grouped_linear(std::string_view name, const OperatorShapes& shapes, const ExpertRows& rows, double experts,
                        double inputs, double outputs, const Stack& stack) {
  Operator op = linear_operator(name, shapes, inputs, outputs, 0.0, stack);
  op.shape.m = static_cast<std::int64_t>(std::ceil(rows.each));
  op.filled = rows.filled / static_cast<double>(op.shape.m);
  op.shape.batch = static_cast<std::int64_t>(experts);
  op.parameters *= experts;
  op.weight_gradient_bytes *= experts;
  op.saved = Bytes(rows.each * experts * inputs * shapes.element);
  op.gradient_buffer = Bytes(rows.each * experts * (inputs + outputs) * shapes.element);
  op.of_experts = true;
  return op;
}

}  // namespace

void append_experts(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                    const Training& training) {
  const OperatorShapes shapes(model, layout, training);
  const Stack& stack = training.stack;
  const Experts& experts = *model.experts;
  const double e = shapes.element;
  const double capacity = experts.capacity_factor.value_or(1.0);
  const double routed = shapes.tokens * experts.top_k * capacity;  // rows that this rank's experts see
  const double here = static_cast<double>(experts.count) / layout.ep;
  const ExpertRows rows = {routed / here, routed / here * std::min(1.0, 1.0 / capacity)};
  const double columns = experts.ffn / shapes.tp;
  const double inputs = (model.gated_mlp ? 2.0 : 1.0) * columns;

  operators.push_back(replicated_linear("router", shapes, model.hidden, experts.count, stack));
  Operator choice =
      memory_bound("router choice", shapes.sharded_tokens * experts.count, e + 2 * kFp32Bytes, e + 2 * kFp32Bytes);
  choice.saved = Bytes(shapes.sharded_tokens * experts.count * kFp32Bytes);
  choice.work_copies = shapes.unsplit_copies;
  operators.push_back(choice);

  const double sent = shapes.sharded_tokens * experts.top_k * capacity * model.hidden;
  Operator dispatch = memory_bound("dispatch permutation", sent, 2 * e, 2 * e);
  dispatch.work_copies = shapes.unsplit_copies;
  operators.push_back(dispatch);

  operators.push_back(grouped_linear("experts up", shapes, rows, here, model.hidden, inputs, stack));
  if (model.biases) {
    operators.back().parameters += inputs * here;
    operators.back().input_gradient_bytes += Bytes(routed * inputs * e);
  }
  Operator activation = model.gated_mlp ? memory_bound("experts gated activation", routed * columns, 3 * e, 5 * e)
                                        : memory_bound("experts activation", routed * columns, 2 * e, 3 * e);
  activation.saved = Bytes(routed * inputs * e);
  activation.gradient_buffer = Bytes(routed * (inputs + columns) * e);
  operators.push_back(activation);
  operators.push_back(grouped_linear("experts down", shapes, rows, here, columns, model.hidden, stack));
  if (model.biases) {
    // Added once, by whichever tensor-parallel rank; all hold it.
    Operator bias = memory_bound("experts down bias", 0.0, 0.0, 0.0);
    bias.parameters = model.hidden * here;
    bias.of_experts = true;
    bias.parameter_copies = shapes.tensor_ranks;
    operators.push_back(bias);
  }

  // Each token's k results are weighted and summed; the weights' gradient needs the results again.
  Operator combine = memory_bound("combine permutation", sent, e + e / experts.top_k, 2 * e + e / experts.top_k);
  combine.saved = Bytes(sent * e);
  combine.work_copies = shapes.unsplit_copies;
  operators.push_back(combine);

  if (experts.shared > 0) {
    append_mlp(operators, model, shapes, stack, static_cast<double>(experts.shared) * experts.shared_ffn);
    if (model.biases) {
      Operator bias = memory_bound("shared experts bias", 0.0, 0.0, 0.0);
      bias.parameters = static_cast<double>(experts.shared) * model.hidden;
      bias.parameter_copies = shapes.tensor_ranks;
      operators.push_back(bias);
    }
  }
}

}  // namespace flopcast
