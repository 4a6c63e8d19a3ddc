#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/layout/layout.hpp"
#include "model/units/quantity.hpp"
#include "model/workload/training.hpp"
#include "model/workload/transformer.hpp"

namespace flopcast {

/// C[m, n] = A[m, k] · B[k, n], `batch` times.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t batch = 1;
};

enum class OperatorKind {
  kLinear,          ///< activation times weight: has an input gradient and a weight gradient
  kBatchedProduct,  ///< activation times activation: both operands' gradients belong to the input gradient
  kFusedAttention,  ///< one kernel for scores, softmax and context
  kMemoryBound,     ///< time is set by the bytes that must be read and written
};

/// Which collective of a block brings a linear its input: that before attention or that before the MLP.
enum class GatheredInput { kNone, kAttention, kMlp };

/// One operator of one microbatch on one rank, with its shape under the layout.
struct Operator {
  std::string_view name;
  OperatorKind kind = OperatorKind::kMemoryBound;
  GemmShape shape;             ///< of the forward product (kLinear, kBatchedProduct)
  double filled = 1.0;         ///< share of the shape's rows that hold tokens
  Flops attention_flops;       ///< forward, causal-halved (kFusedAttention)
  Flops full_attention_flops;  ///< forward, every score (kFusedAttention)
  double imbalance = 1.0;      ///< the slowest context-parallel rank's share of attention over the mean's
  Bytes forward_bytes;         ///< that its kernels read and write (kMemoryBound)
  /// The same; of a kLinear beside its products, the sum of the bias gradient, which is taken with the input gradient,
  /// and the accumulation of the weight gradient where a kernel of its own does it.
  Bytes input_gradient_bytes;
  Bytes weight_gradient_bytes;
  int forward_kernels = 0;
  int backward_kernels = 0;
  int calls = 1;  ///< launches that take turns for each of its products (kLinear): one a local expert
  double parameters = 0.0;
  double frozen_parameters = 0.0;  ///< of these, the ones that are not trained
  Bytes frozen_bytes;              ///< that they are stored in
  bool frozen = false;             ///< no weight gradient (kLinear)
  bool still = false;              ///< no backward pass at all
  Bytes dequantised;               ///< the weight in the training format, while it is multiplied with
  Bytes widening;                  ///< read and written to make it, in each pass
  int widening_kernels = 0;        ///< counted among the others
  Bytes exchanged;  ///< of an adapter: what tensor-parallel ranks gather of its inner result in each pass
  /// Computed in 8 bits where the training is: no head, no router (TransformerEngine, Megatron Core, torchtitan).
  bool low_precision = false;
  /// Of a linear whose frozen weight is kept in 8 bits once: read and written to transpose it before each input
  /// gradient, where tensor cores take 8-bit operands in one layout only.
  Bytes transposed;
  Bytes forward_casts;      ///< what casts of its input read and write: Fp8Casts
  Bytes backward_casts;     ///< and of its output's gradient
  int cast_kernels = 0;     ///< of both
  bool of_experts = false;  ///< its parameters are split over the expert-parallel ranks
  bool routed = false;      ///< works on the rows that the router sends, whose number nobody knows before
  /// Named replication: how many tensor-parallel ranks do this very work / hold these very parameters.
  int work_copies = 1;
  int parameter_copies = 1;
  Bytes saved;       ///< kept from forward until backward
  Bytes saved_core;  ///< likewise, but dropped by selective recomputation
  /// Reads what the kernel before it wrote, part of which the L2 cache still holds. Not of matrices as large as the
  /// scores and the logits.
  bool reads_fresh = false;
  Bytes gradient_buffer;        ///< gradients of its outputs and inputs, alive together in its backward pass
  Bytes output;                 ///< of linears, norms and fused attention
  bool attention_core = false;  ///< redone by selective recomputation (Korthikanti et al. 2205.05198 §5)
  GatheredInput gathered_input = GatheredInput::kNone;
  RecomputeModules redone_with;   ///< the modules that it is part of, and so done again with any of them
  RecomputeModules dropped_with;  ///< the modules that rebuild what it saves
};

/// The operators of one transformer block / of the embedding (first stage) / of final norm, logits and loss (last
/// stage).
///
/// S = b·s/cp tokens, e bytes an element. Tensor parallelism splits heads, MLP columns and vocabulary; with sequence
/// parallelism norms, dropouts and residuals are split too. Memory-bound kernels count each tensor they must read or
/// write once: norm 2e forward and 5e backward (gradient and reduction of the scales), bias-dropout-add 3e + mask, GELU
/// 2e and 3e, softmax 2e and 3e, dropout 2e + mask each way.
/// What is saved follows Korthikanti et al. 2205.05198 §4.1: sbh(34 + 5as/h) a layer for GPT.
///
/// Experts (GShard 2006.16668, DeepSeek-V3 2412.19437): the router is a linear h -> E, in 16 bits, and its scores,
/// top-k, auxiliary loss and map are 25 kernels over S·E scores in fp32; every rank's S·k routed tokens meet E/ep
/// experts as one grouped product of E/ep members with S·k·ep/E rows each, times Experts::fullest_rank. Each token's
/// k copies are written in the order of the experts (2e a row and feature), and of an all-to-all's again by local
/// expert behind it; the way back is the same, and sums. Weights are applied by the activation (Megatron Core 0.11,
/// torchtitan), so that the experts' results are not kept. Kernels by Megatron Core's dispatchers: 40 with an
/// all-to-all, 8 otherwise. Without sequence parallelism each tensor-parallel rank routes all tokens. Latent attention
/// (2405.04434): the two down projections and their norms are the same on every tensor-parallel rank. Windows: fused
/// kernels skip what lies outside, and what lies outside of a packed document (Training::document_length); a block
/// stands for the mean over the model's layers, exact where stages hold as many layers with a window as their share.
/// Kernels of scores and softmax compute all and mask. Context parallelism sends every key still; parts in order (no
/// zigzag) leave the last rank of a ring with 2 - 1/n times the mean of causal attention, and all wait for it. A
/// parallel block adds once, and has one norm where both read it; its two sums over tensor-parallel ranks are counted
/// as of a sequential one. Left out: the mask of padded tokens, dropped tokens.
///
/// Fine-tuning (finetuned() in finetune.cpp): a frozen linear has no weight gradient and keeps no input, a frozen norm
/// sums no gradients of its scales, biases none. LoRA (2106.09685 §4.1) puts behind each linear [k, n] named by the
/// targets the products S·k·r and S·r·n with their gradients, saves the linear's input and S·r, and adds both results:
/// 3e a feature (5e where the scaling is a kernel of its own). Of dense blocks each tensor-parallel rank has 1/t of A
/// and of B: S·r elements are exchanged between the two and back. (Megatron Bridge does so where outputs are cut; where
/// inputs are, it gathers the S·n results instead.) With dropout each adapter reads and keeps an input of its own and
/// its mask. Of weights stored in few bits each pass widens the whole weight first: what is stored is read, the
/// training format written. With 8-bit products frozen linears cast in one direction only: 3/4 of the bytes. Left out:
/// that the first layer's input needs no gradient, the outlier products of LLM.int8().
std::vector<Operator> block_operators(const Transformer& model, const Layout& layout, const Training& training,
                                      BlockKind kind, LayerState state = LayerState::kTrained);
std::vector<Operator> embedding_operators(const Transformer& model, const Layout& layout, const Training& training);
std::vector<Operator> head_operators(const Transformer& model, const Layout& layout, const Training& training);
/// What a module of multi-token prediction has beside its block: embedding, norms and product in front of it, norm,
/// logits and loss behind it. The parameters of embedding and head are not its own. Left out: the gather of the
/// product's columns over tensor-parallel ranks.
std::vector<Operator> mtp_operators(const Transformer& model, const Layout& layout, const Training& training);

/// The operators as fine-tuning changes them: Training::finetune, which must be there.
std::vector<Operator> finetuned(std::vector<Operator> operators, const Transformer& model, const Layout& layout,
                                const Training& training, LayerState state);

/// The share of the operator's forward pass that selective recomputation does again: that of the layout's modules, or
/// of the stack where it names none.
double redone_selectively(const Operator& op, const Layout& layout, const Stack& stack);

/// FLOPs of one forward pass of the operator on one rank: 2·m·n·k·batch; attention in full (not causal-halved), as MFU
/// counts it.
Flops forward_flops(const Operator& op);
/// Of all passes, in forward passes: 1, and 1 each for the gradients of input and weight where there are any.
double passes_of(const Operator& op);
/// The same with half of attention's products where the attention is causal, as papers count that leave out what a
/// causal kernel does not visit (PaLM 2204.02311 counts in full, FlashAttention-2 2307.08691 halves).
Flops causal_forward_flops(const Operator& op, const Transformer& model);

/// Bytes kept from forward until backward where nothing is recomputed.
Bytes saved_activation(const std::vector<Operator>& operators);
/// With selective recomputation; by operator a block's input, the outputs of every second product and those of fused
/// attention.
Bytes saved_selectively(const std::vector<Operator>& operators, const Layout& layout, const Stack& stack);
/// What selective recomputation does not keep: a block rebuilds it at once in its backward pass.
Bytes rebuilt_selectively(const std::vector<Operator>& operators, const Layout& layout);

/// The most that gradients of activations take at once in a backward pass.
Bytes gradient_buffer(const std::vector<Operator>& operators);
/// Gradients of linears that the stack hands over without filling them in: Stack::placeholder_gradients.
Bytes placeholder_gradients(const std::vector<Operator>& operators, const Training& training);

/// The shapes that a layout cuts every operator from, and the pieces that blocks are put together of. Used by the files
/// that list operators only.
struct OperatorShapes {
  OperatorShapes(const Transformer& model, const Layout& layout, const Training& training);

  double tokens;  ///< S, of this rank's context-parallel share
  double tp;
  double element;         ///< bytes
  double sharded_tokens;  ///< S where sequence parallelism splits it
  double scores;          ///< elements of this rank's score matrices
  double attended;        ///< share of them that fused kernels compute under windows
  bool single_pass_norm;
  bool fused_norm;
  bool compiled;
  int unsplit_copies;  ///< tensor-parallel ranks that do the same work on tokens that nothing splits
  int tensor_ranks;
};

inline constexpr double kMaskBytes = 1.0;  ///< dropout masks are stored as bytes
inline constexpr double kFp32Bytes = 4.0;

Operator memory_bound(std::string_view name, double elements, double forward, double input_gradient);
/// A norm over `width` features of the sharded tokens, or of `elements` in all.
Operator norm_operator(const Transformer& model, const OperatorShapes& shapes, std::string_view name);
Operator latent_norm(const Transformer& model, const OperatorShapes& shapes, std::string_view name, double width);
/// A weight of `inputs` x `outputs` on this rank, applied to all tokens. `saved_tokens` is what this rank keeps of its
/// input.
Operator linear_operator(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                         double saved_tokens, const Stack& stack);
/// A weight that every tensor-parallel rank holds whole, applied to the tokens that sequence parallelism leaves it.
Operator replicated_linear(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                           const Stack& stack);
/// A bias whose addition is part of the kernel that follows; its gradient is a reduction of its own.
void add_bias(Operator& op, const OperatorShapes& shapes, double outputs);

/// From the normed hidden states to the output projection, which is included.
void append_attention(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                      const Training& training);
/// Makes a linear of a block one of 8-bit operands where the training is in fp8. `normed`: its input comes out of a
/// norm.
///
/// Casts read and write, a element of the product's input and of its output's gradient: delayed 4 bytes (16 bits read,
/// rows and transposed columns written, amax inside); current and tensorwise 6 (an amax pass first); blockwise 6.5
/// (rows and columns each from 16 bits, fp32 scales); mxfp8 4.2 (both directions and scales in one kernel); nvfp4 7.1
/// (an amax pass, then rows, and columns behind a Hadamard transform, each from 16 bits, with their scales); rowwise 12
/// (each operand again for each of its products). A norm of TransformerEngine writes 8 bits itself under delayed
/// scaling, and with the stack's fused casts so do activations, attention and their gradients. Source:
/// NVIDIA/TransformerEngine 2.x, docs/features/low_precision_training, and common/cast; pytorch/ao float8. Of its input
/// TransformerEngine keeps the 8-bit copy until the backward pass, torchao's tensorwise and rowwise linears the 16
/// bits.
void quantise(Operator& op, const Training& training, bool normed);

/// Of an MLP. Eager: the gate's function and the product are kernels of their own, and so are their gradients.
Operator activation_operator(const Transformer& model, const OperatorShapes& shapes, const Stack& stack,
                             std::string_view name, double elements);
/// An MLP of `width` columns over all tensor-parallel ranks, without the residual.
void append_mlp(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                const Training& training, double width);
/// Router, routed and shared experts, without the residual and the exchanges between expert-parallel ranks.
void append_experts(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                    const Training& training);

/// The layout whose operators, cut by split_over_grid(), are those of `layout`.
Layout without_tensor_grid(const Layout& layout);

/// Operators of one device cut over a grid of tensor-parallel ranks (2d, 2.5d, 3d): all work and all activations in
/// tp parts, every parameter in grid.weight_parts. Linears become the products that a rank runs in all its steps
/// together: [S/token_parts, k] · [k, n/q] for SUMMA, [S/q, k/q] · [k/q, n/q] for 3d.
/// Norm scales and biases are cut like the weights (Optimus keeps them on one row of the grid); passing them around is
/// left out. 2.5d holds every parameter `depth` times, which parameter_copies says.
std::vector<Operator> split_over_grid(std::vector<Operator> operators, const Layout& layout);

}  // namespace flopcast
