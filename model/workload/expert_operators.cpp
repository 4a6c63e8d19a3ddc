#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/workload/operators.hpp"

namespace flopcast {

namespace {

struct ExpertRows {
  double each = 0.0;    ///< rows of one expert, including padding
  double filled = 0.0;  ///< rows of these that hold tokens
};

// One GEMM per local expert.
Operator grouped_linear(std::string_view name, const OperatorShapes& shapes, const ExpertRows& rows, double experts,
                        double inputs, double outputs, const Stack& stack) {
  Operator op = linear_operator(name, shapes, inputs, outputs, 0.0, stack);
  op.shape.m = static_cast<std::int64_t>(std::ceil(rows.each));
  op.filled = rows.filled / static_cast<double>(op.shape.m);
  op.shape.batch = static_cast<std::int64_t>(experts);
  op.parameters *= experts;
  op.weight_gradient_bytes *= experts;
  op.saved = Bytes(rows.each * experts * inputs * shapes.element);
  op.output = Bytes(rows.each * experts * outputs * shapes.element);
  op.gradient_buffer = Bytes(rows.each * experts * (inputs + outputs) * shapes.element);
  op.of_experts = true;
  op.routed = true;
  if (stack.grouped_kernel == GroupedKernel::kPerExpert) op.calls = static_cast<int>(experts);
  op.forward_kernels *= op.calls;
  op.backward_kernels *= op.calls;
  return op;
}

// Copies of tokens sorted by destination expert, or restored to token order and summed.
struct RoutedRows {
  double sent = 0.0;      ///< elements that a rank sends, before the exchange
  double received = 0.0;  ///< elements that its experts process, after the exchange
  bool sorted_twice = false;
  int kernels = 2;
};

RoutedRows routed_rows(const Layout& layout, const Stack& stack, double sent, double received, double local_experts) {
  RoutedRows rows{sent, received};
  if (stack.experts_dispatcher == ExpertDispatcher::kAlltoall) {
    constexpr int kWithCountsAndMasks = 10;
    rows.sorted_twice = layout.ep > 1 && local_experts > 1.0;
    rows.kernels = kWithCountsAndMasks;
  } else {
    rows.sent = received;  // the copies are made on the receiving ranks
  }
  return rows;
}

// `bytes` per element in the first pass over the rows; the second pass reads and writes each element.
Operator permutation(std::string_view name, const OperatorShapes& shapes, const RoutedRows& rows, double bytes) {
  const double moved = rows.sent * bytes + (rows.sorted_twice ? rows.received * 2 * shapes.element : 0.0);
  Operator op = memory_bound(name, 1.0, moved, moved);
  op.forward_kernels = op.backward_kernels = rows.kernels;
  op.reads_fresh = false;
  op.work_copies = shapes.unsplit_copies;
  op.routed = true;
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
  const double sharing = layout.expert_tensor_ranks();
  // Rows processed by this rank's experts.
  const double routed = shapes.tokens * sharing / layout.tp * experts.top_k * capacity;
  const double here = static_cast<double>(experts.count) / layout.ep;
  // All ranks wait for the fullest one.
  const double fullest = experts.fullest_rank(layout.ep);
  const ExpertRows rows = {routed / here * fullest, routed / here * std::min(1.0, 1.0 / capacity)};
  const double columns = experts.ffn / sharing;
  const double inputs = (model.gated_mlp ? 2.0 : 1.0) * columns;

  operators.push_back(replicated_linear("router", shapes, model.hidden, experts.count, stack));
  if (experts.router_bias) operators.back().parameters += experts.count;
  constexpr double kScorePasses = 5.0;  // over the fp32 scores
  Operator choice = memory_bound("router choice", shapes.sharded_tokens * experts.count, kScorePasses * kFp32Bytes,
                                 kScorePasses * kFp32Bytes);
  choice.forward_kernels = 10;
  choice.backward_kernels = 15;
  choice.saved = Bytes(shapes.sharded_tokens * experts.count * kFp32Bytes);
  choice.work_copies = shapes.unsplit_copies;
  operators.push_back(choice);

  const double sent = shapes.sharded_tokens * experts.top_k * capacity * model.hidden;
  const RoutedRows copies = routed_rows(layout, stack, sent, routed * model.hidden, here);
  operators.push_back(permutation("dispatch permutation", shapes, copies, 2 * e));

  operators.push_back(grouped_linear("experts up", shapes, rows, here, model.hidden, inputs, stack));
  if (model.biases) {
    operators.back().parameters += inputs * here;
    operators.back().input_gradient_bytes += Bytes(routed * inputs * e);
  }
  quantise(operators.back(), training, false);
  Operator activation = activation_operator(model, shapes, stack, "experts activation", routed * fullest * columns);
  activation.saved = Bytes(routed * fullest * inputs * e);
  activation.gradient_buffer = Bytes(routed * fullest * (inputs + columns) * e);
  activation.routed = true;
  activation.redone_with = bit_of(RecomputeModule::kMoeActivation);
  operators.push_back(activation);
  operators.push_back(grouped_linear("experts down", shapes, rows, here, columns, model.hidden, stack));
  operators.back().dropped_with = bit_of(RecomputeModule::kMoeActivation);
  quantise(operators.back(), training, false);
  if (model.biases) {
    // Added once, by one of the ranks that share the expert; all of them hold it.
    Operator bias = memory_bound("experts down bias", 0.0, 0.0, 0.0);
    bias.parameters = model.hidden * here;
    bias.of_experts = true;
    bias.parameter_copies = layout.expert_tensor_ranks();
    operators.push_back(bias);
  }

  operators.push_back(permutation("combine permutation", shapes, copies, e + e / experts.top_k));
  operators.back().saved = Bytes(routed * kFp32Bytes);  // the routing weights

  if (experts.shared > 0) {
    const std::size_t first = operators.size();
    append_mlp(operators, model, shapes, training, static_cast<double>(experts.shared) * experts.shared_ffn);
    for (std::size_t index = first; index < operators.size(); ++index) {
      operators[index].redone_with = bit_of(RecomputeModule::kSharedExperts);
      operators[index].dropped_with =
          bit_of(index == first ? RecomputeModule::kLayernorm : RecomputeModule::kSharedExperts);
    }
    if (model.biases) {
      Operator bias = memory_bound("shared experts bias", 0.0, 0.0, 0.0);
      bias.parameters = static_cast<double>(experts.shared) * model.hidden;
      bias.parameter_copies = shapes.tensor_ranks;
      operators.push_back(bias);
    }
  }
}

}  // namespace flopcast
