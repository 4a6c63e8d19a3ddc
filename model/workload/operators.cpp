#include "model/workload/operators.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace flopcast {

namespace {

std::int64_t whole(double value) {
  return static_cast<std::int64_t>(value);
}

// Of documents packed in a sequence, the last one cut, each attends to itself alone.
double attended_share(const Transformer& model, const Training& training) {
  const double length = training.sequence_length;
  if (training.document_length <= 0 || training.document_length >= length) return model.attended_share(length);
  const double document = training.document_length;
  const double rest = std::fmod(length, document);
  const double whole = (length - rest) * document * model.attended_share(document);
  return (whole + rest * rest * model.attended_share(rest)) / (length * length);
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

namespace {

// An eager RMSNorm, kernel by kernel: to fp32, square, mean, scaling, back, weight; backward the gradients of these.
// LayerNorm is one kernel of every framework. A compiler joins norms with the residuals beside them.
struct NormCosts {
  double forward = 0.0;  ///< bytes an element
  double backward = 0.0;
  int forward_kernels = 1;
  int backward_kernels = 2;
  double saved = 0.0;  ///< bytes an element beyond its input
};

NormCosts norm_costs(const Transformer& model, const OperatorShapes& shapes) {
  const double e = shapes.element;
  if (model.norm == Norm::kRmsNorm && !shapes.fused_norm) {
    const double cast = e + kFp32Bytes;
    // Kept are the fp32 copy, in place of the input, and the scaled result in 16 bits before the weight.
    return {2 * cast + 5 * kFp32Bytes + 2 * e, 2 * cast + 12 * kFp32Bytes + 5 * e, 6, 11, kFp32Bytes};
  }
  if (shapes.compiled) return {e, 4 * e, 0, 2};
  if (!shapes.single_pass_norm) return {3 * e, 10 * e, 1, 3};
  return {2 * e, 5 * e, 1, 2};
}

}  // namespace

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
  op.shape = {whole(shapes.tokens), whole(outputs), whole(inputs), 1};
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

namespace {

struct Fp8Casts {
  double bytes = 0.0;  ///< an element
  int kernels = 0;     ///< a tensor
  int of_product = 0;  ///< more of a product, for all its tensors at once: block scales laid out as tensor cores read
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

}  // namespace

void quantise(Operator& op, const Training& training, bool normed) {
  if (training.precision != Precision::kFp8) return;
  const Fp8Recipe recipe = training.fp8_recipe.value_or(Fp8Recipe::kDelayed);
  const Fp8Casts casts = casts_of(recipe);
  constexpr double kSavedByNorm = 3.0;  // it writes 1 byte in place of 2, which nobody reads again
  const double rows = static_cast<double>(op.shape.m) * static_cast<double>(op.shape.batch);
  const bool fused = training.stack.fuses(FusedOperator::kCasts);
  const double saved = std::min(kSavedByNorm, casts.bytes);
  const double before = casts.bytes - (fused || (normed && recipe == Fp8Recipe::kDelayed) ? saved : 0.0);
  const double after = casts.bytes - (fused ? saved : 0.0);
  op.low_precision = true;
  // TransformerEngine keeps the transposed 8-bit copy for the weight gradient, torchao's linears their input as it
  // came.
  const bool of_torchao = recipe == Fp8Recipe::kTensorwise || recipe == Fp8Recipe::kRowwise;
  if (!of_torchao) op.saved = op.saved * (1.0 / element_size(training.precision).value());
  op.forward_casts = Bytes(rows * static_cast<double>(op.shape.k) * before);
  op.backward_casts = Bytes(rows * static_cast<double>(op.shape.n) * after);
  const int kernels = casts.kernels * op.calls + casts.of_product;
  op.cast_kernels = 2 * kernels;
  op.forward_kernels += kernels;
  op.backward_kernels += kernels;
}

namespace {

// Eager: the gate's function and the product are kernels of their own, and so are their gradients.
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

}  // namespace

namespace {

// What is kept of the activation's `inputs` is written in 8 bits behind it and read back into 16 before its gradient
// (NVIDIA/Megatron-LM, megatron/core/fusions/fused_bias_swiglu.py: fp8_input_store).
void keep_in_8_bits(Operator& activation, double inputs) {
  constexpr double kThere = 3.0;  // 2 bytes read, 1 written; and back again
  activation.saved = Bytes(inputs);
  activation.forward_bytes += Bytes(inputs * kThere);
  activation.input_gradient_bytes += Bytes(inputs * kThere);
  ++activation.forward_kernels;
  ++activation.backward_kernels;
}

}  // namespace

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
  // Eager: the gate's function is kept as well, which the product's gradient needs.
  const bool keeps_gate = model.gated_mlp && !stack.fuses(FusedOperator::kActivation);
  activation.saved = Bytes(shapes.tokens * (inputs + (keeps_gate ? columns : 0.0)) * e);
  activation.gradient_buffer = Bytes(shapes.tokens * (inputs + columns) * e);
  if (training.precision == Precision::kFp8 && stack.fp8_activations)
    keep_in_8_bits(activation, shapes.tokens * inputs);
  operators.push_back(activation);
  operators.push_back(linear_operator("mlp down", shapes, columns, model.hidden, shapes.tokens, stack));
  quantise(operators.back(), training, false);
}

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

// The bias of attention's output in a parallel block: the MLP's sum adds it.
Operator unadded_bias(const Transformer& model, const OperatorShapes& shapes) {
  Operator op = memory_bound("attention bias", 0.0, 0.0, 0.0);
  op.parameters = model.hidden;
  op.parameter_copies = shapes.tensor_ranks;
  return op;
}

}  // namespace

namespace {

// What recomputation redoes of a block, from where each part of it begins.
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
    // The input of the first stays: the whole is rebuilt from it, unless the norm is.
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
  return training.finetune ? finetuned(std::move(operators), model, layout, training, state) : operators;
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
  // A reward model has one score in place of the vocabulary.
  const bool scores = training.preference && training.preference->method == PreferenceMethod::kReward;
  const double vocab = scores ? 1.0 : padded_vocab(model.vocab, training.stack.vocab_divisor, layout.tp) / shapes.tp;
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
  double forward = stack.loss_forward_bytes > 0.0 ? stack.loss_forward_bytes : kernel_by_kernel;
  double backward = stack.loss_backward_bytes > 0.0 ? stack.loss_backward_bytes : 2 * kFp32Bytes + (kFp32Bytes + e);
  // In one kernel: maximum and sum in one pass each, then the gradient from the logits.
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

}  // namespace

Bytes saved_activation(const std::vector<Operator>& operators) {
  Bytes total;
  for (const Operator& op : operators) {
    total += op.saved;
    total += op.saved_core;
  }
  return total;
}

namespace {

RecomputeModules modules_of(const Layout& layout) {
  return layout.recompute_modules.value_or(bit_of(RecomputeModule::kCoreAttention));
}

}  // namespace

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

namespace {

constexpr double kCausalShare = 0.5;  // of the score matrix that a causal kernel visits

constexpr double kUnfusedSoftmaxBytes = 20.0;  // per score, read and written beyond the fused kernel
constexpr int kUnfusedSoftmaxKernels = 8;

// Keys and values of all context-parallel ranks, and their gradients.
Bytes gathered_keys(const Transformer& model, const Layout& layout, const OperatorShapes& shapes) {
  constexpr double kWithGradients = 2.0;
  const double width = static_cast<double>(model.key_width()) + model.value_width();
  return Bytes(kWithGradients * shapes.tokens * layout.cp * width / shapes.tp * shapes.element);
}

void append_unfused_core(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                         const Training& training, const OperatorShapes& shapes) {
  const double e = shapes.element;
  // Ulysses hands each rank whole sequences of some heads, a ring some queries of all.
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

// Cut in order, rank r of n in a ring attends to r + 1/2 of n parts of the sequence: the last one, for which all wait,
// to 2 - 1/n times the mean. Layers with windows are as good as balanced.
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
  // The logarithm of each row's softmax sum, which the backward kernel needs to rebuild the scores.
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
    // Eager: halves negated and joined, two products, a sum, each written and read.
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
  if (layout.context_parallel == ContextParallel::kAllGather) {
    operators[core].gradient_buffer = gathered_keys(model, layout, shapes);
  }
  // Queries, keys and values, which it saves.
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

namespace {

struct ExpertRows {
  double each = 0.0;    ///< rows of one expert, padding included
  double filled = 0.0;  ///< of these, rows that hold tokens
};

// One product a local expert.
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

// Copies of tokens put in the order of the experts that they go to, or back and summed.
struct RoutedRows {
  double sent = 0.0;      ///< elements that a rank sends, before the exchange
  double received = 0.0;  ///< elements that its experts work on, behind it
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
    rows.sent = received;  // copies are made where the experts are
  }
  return rows;
}

// `bytes` an element of the first pass over the rows; the second reads and writes each.
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
  // Rows that this rank's experts see.
  const double routed = shapes.tokens * sharing / layout.tp * experts.top_k * capacity;
  const double here = static_cast<double>(experts.count) / layout.ep;
  // All ranks wait for the fullest.
  const double fullest = experts.fullest_rank(layout.ep);
  const ExpertRows rows = {routed / here * fullest, routed / here * std::min(1.0, 1.0 / capacity)};
  const double columns = experts.ffn / sharing;
  const double inputs = (model.gated_mlp ? 2.0 : 1.0) * columns;

  operators.push_back(replicated_linear("router", shapes, model.hidden, experts.count, stack));
  if (experts.router_bias) operators.back().parameters += experts.count;
  constexpr double kScorePasses = 5.0;  // over scores in fp32
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
    // Added once, by whichever rank that shares the expert; all hold it.
    Operator bias = memory_bound("experts down bias", 0.0, 0.0, 0.0);
    bias.parameters = model.hidden * here;
    bias.of_experts = true;
    bias.parameter_copies = layout.expert_tensor_ranks();
    operators.push_back(bias);
  }

  operators.push_back(permutation("combine permutation", shapes, copies, e + e / experts.top_k));
  operators.back().saved = Bytes(routed * kFp32Bytes);  // the weights

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

}  // namespace flopcast
