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

/// The collective that gathers a linear's input: before attention or before the MLP.
enum class GatheredInput { kNone, kAttention, kMlp };

/// One operator of one microbatch on one rank, with its shape under the layout.
struct Operator {
  std::string_view name;
  OperatorKind kind = OperatorKind::kMemoryBound;
  GemmShape shape;             ///< of the forward GEMM (kLinear, kBatchedProduct)
  double filled = 1.0;         ///< fraction of the shape's rows that hold tokens
  Flops attention_flops;       ///< forward, half for causal masks (kFusedAttention)
  Flops full_attention_flops;  ///< forward, all scores (kFusedAttention)
  double imbalance = 1.0;      ///< attention work of the slowest context-parallel rank relative to the mean
  Bytes forward_bytes;         ///< read and written by its kernels (kMemoryBound)
  /// Likewise for the gradients. For kLinear, these are bytes in addition to the GEMMs: the reduction of the bias
  /// gradient, which runs with the input gradient, and the accumulation of the weight gradient if a separate kernel
  /// does it.
  Bytes input_gradient_bytes;
  Bytes weight_gradient_bytes;
  int forward_kernels = 0;
  int backward_kernels = 0;
  int calls = 1;  ///< consecutive launches for each of its GEMMs (kLinear): one per local expert
  double parameters = 0.0;
  double frozen_parameters = 0.0;  ///< part of the parameters that is not trained
  Bytes frozen_bytes;              ///< their storage
  bool frozen = false;             ///< no weight gradient (kLinear)
  bool still = false;              ///< no backward pass
  Bytes dequantised;               ///< the weight in the training format, while it is multiplied
  Bytes widening;                  ///< bytes read and written to create it, in each pass
  int widening_kernels = 0;        ///< included in the kernel counts
  Bytes exchanged;  ///< for an adapter: bytes of its inner result that tensor-parallel ranks gather in each pass
  /// Runs in 8 bits if the training is in fp8; never the head or the router (TransformerEngine, Megatron Core,
  /// torchtitan).
  bool low_precision = false;
  /// For a frozen linear whose weight is stored in 8 bits once: bytes to transpose it before each input gradient, if
  /// tensor cores accept only one layout of 8-bit operands.
  Bytes transposed;
  Bytes forward_casts;      ///< bytes moved to cast its input: Fp8Casts
  Bytes backward_casts;     ///< bytes moved to cast its output's gradient
  int cast_kernels = 0;     ///< total of both casts
  bool of_experts = false;  ///< its parameters are split over the expert-parallel ranks
  bool routed = false;      ///< works on routed rows, whose number is known only at run time
  /// Replication: number of tensor-parallel ranks that do the same work, or hold the same parameters.
  int work_copies = 1;
  int parameter_copies = 1;
  Bytes saved;       ///< kept from the forward to the backward pass
  Bytes saved_core;  ///< likewise, but dropped by selective recomputation
  /// Reads the previous kernel's output, part of which is still in the L2 cache. False for matrices as large as the
  /// scores and the logits.
  bool reads_fresh = false;
  Bytes gradient_buffer;        ///< gradients of its outputs and inputs, which are alive together in its backward pass
  Bytes output;                 ///< of linears, norms and fused attention
  bool attention_core = false;  ///< repeated by selective recomputation (Korthikanti et al. 2205.05198 §5)
  GatheredInput gathered_input = GatheredInput::kNone;
  RecomputeModules redone_with;   ///< modules that contain it; it is repeated if any of them is recomputed
  RecomputeModules dropped_with;  ///< modules whose recomputation rebuilds what it saves
};

/// The operators of one transformer block, of the embedding (first stage), or of final norm, logits and loss (last
/// stage).
///
/// S = b·s/cp tokens, e bytes per element. Tensor parallelism splits heads, MLP columns and vocabulary; sequence
/// parallelism also splits norms, dropouts and residuals. Memory-bound kernels count each tensor that they must read or
/// write once: norm 2e forward and 5e backward (gradient and reduction of the scales), bias-dropout-add 3e + mask, GELU
/// 2e and 3e, softmax 2e and 3e, dropout 2e + mask in each direction. Saved activations follow Korthikanti et al.
/// 2205.05198 §4.1: sbh(34 + 5as/h) per layer for GPT.
///
/// Experts (GShard 2006.16668, DeepSeek-V3 2412.19437): the router is a linear h -> E in 16 bits; its scores, top-k,
/// auxiliary loss and map are 25 kernels over S·E scores in fp32. Each rank's S·k routed tokens are processed by E/ep
/// experts as one grouped GEMM of E/ep members with S·k·ep/E rows each, times Experts::fullest_rank. Each token's k
/// copies are written in expert order (2e per row and feature), and after an all-to-all again by local expert; the way
/// back mirrors this and sums the copies. The activation applies the routing weights (Megatron Core 0.11, torchtitan),
/// so that the experts' results are not kept. Kernels of Megatron Core's dispatchers: 40 with an all-to-all, 8
/// otherwise. Without sequence parallelism, each tensor-parallel rank routes all tokens.
/// Latent attention (2405.04434): the two down projections and their norms are replicated on every tensor-parallel
/// rank.
/// Windows: fused kernels skip scores outside the window, and outside a packed document (Training::document_length). A
/// block represents the mean over the model's layers, which is exact if stages hold windowed layers in proportion.
/// Unfused score and softmax kernels compute everything and mask it. Context parallelism still sends every key. Parts
/// in order (no zigzag) leave the last rank of a ring with 2 - 1/n times the mean of causal attention, and all ranks
/// wait for it.
/// A parallel block has one residual sum, and a single norm if attention and MLP share it; its two tensor-parallel sums
/// are counted as in a sequential block.
/// Not modelled: the mask of padded tokens, dropped tokens.
///
/// Fine-tuning (finetuned() in finetune.cpp): a frozen linear has no weight gradient and keeps no input, a frozen norm
/// reduces no gradients of its scales, and frozen biases have none. LoRA (2106.09685 §4.1) adds to each linear [k, n]
/// named by the targets the GEMMs S·k·r and S·r·n with their gradients, saves the linear's input and S·r elements, and
/// adds both results: 3e per feature (5e if a separate kernel scales). In dense blocks each tensor-parallel rank has
/// 1/t of A and of B: S·r elements are exchanged between the two GEMMs and in the backward pass. (Megatron Bridge does
/// so if outputs are split; if inputs are split, it gathers the S·n results instead.) With dropout, each adapter reads
/// and keeps a separate input and its mask. Weights stored in few bits are first widened as a whole in each pass: read
/// in storage format, written in the training format. With 8-bit GEMMs, frozen linears cast in one direction only: 3/4
/// of the bytes. Not modelled: the first layer's input needs no gradient; the outlier products of LLM.int8().
std::vector<Operator> block_operators(const Transformer& model, const Layout& layout, const Training& training,
                                      BlockKind kind, LayerState state = LayerState::kTrained);
std::vector<Operator> embedding_operators(const Transformer& model, const Layout& layout, const Training& training);
std::vector<Operator> head_operators(const Transformer& model, const Layout& layout, const Training& training);
/// The operators of a multi-token prediction module besides its block: embedding, norms and GEMM before it; norm,
/// logits and loss after it. Embedding and head share the model's parameters. Not modelled: the gather of the GEMM's
/// columns over tensor-parallel ranks.
std::vector<Operator> mtp_operators(const Transformer& model, const Layout& layout, const Training& training);

/// Adapts the operators to Training::finetune, which must be set.
std::vector<Operator> finetuned(std::vector<Operator> operators, const Transformer& model, const Layout& layout,
                                const Training& training, LayerState state);

/// Fraction of the operator's forward pass that selective recomputation repeats: according to the layout's modules, or
/// to the stack if the layout names none.
double redone_selectively(const Operator& op, const Layout& layout, const Stack& stack);

/// FLOPs of one forward pass of the operator on one rank: 2·m·n·k·batch; attention counts in full (not halved for
/// causal masks), as for MFU.
Flops forward_flops(const Operator& op);
/// FLOPs of all passes in units of the forward pass: 1, plus 1 each for the gradients of input and weight if they are
/// computed.
double passes_of(const Operator& op);
/// Like forward_flops, but counts causal attention by half, as in papers that exclude the scores a causal kernel skips
/// (PaLM 2204.02311 counts them in full, FlashAttention-2 2307.08691 by half).
Flops causal_forward_flops(const Operator& op, const Transformer& model);

/// Bytes kept from the forward to the backward pass without recomputation.
Bytes saved_activation(const std::vector<Operator>& operators);
/// Bytes kept with selective recomputation; for recomputation by operator these are a block's input, the outputs of
/// every second GEMM and of fused attention.
Bytes saved_selectively(const std::vector<Operator>& operators, const Layout& layout, const Stack& stack);
/// Bytes that selective recomputation does not keep; a block rebuilds all of them at once in its backward pass.
Bytes rebuilt_selectively(const std::vector<Operator>& operators, const Layout& layout);

/// Largest size of activation gradients alive at the same time in a backward pass.
Bytes gradient_buffer(const std::vector<Operator>& operators);
/// Gradients of linears that the stack returns without filling them: Stack::placeholder_gradients.
Bytes placeholder_gradients(const std::vector<Operator>& operators, const Training& training);

/// Sizes from which a layout's operators are derived, followed by the building blocks of the operator lists. Used only
/// by the files that list operators.
struct OperatorShapes {
  OperatorShapes(const Transformer& model, const Layout& layout, const Training& training);

  double tokens;  ///< S: tokens of this rank's context-parallel share
  double tp;
  double element;         ///< bytes
  double sharded_tokens;  ///< S, divided by tp with sequence parallelism
  double scores;          ///< elements of this rank's score matrices
  double attended;        ///< fraction of the scores that fused kernels compute with windows
  bool single_pass_norm;
  bool fused_norm;
  bool compiled;
  int unsplit_copies;  ///< tensor-parallel ranks that repeat the work on unsplit tokens
  int tensor_ranks;
};

inline constexpr double kMaskBytes = 1.0;  ///< dropout masks are stored as bytes
inline constexpr double kFp32Bytes = 4.0;

Operator memory_bound(std::string_view name, double elements, double forward, double input_gradient);
/// A norm over the model's hidden features of the sharded tokens; latent_norm over `width` features.
Operator norm_operator(const Transformer& model, const OperatorShapes& shapes, std::string_view name);
Operator latent_norm(const Transformer& model, const OperatorShapes& shapes, std::string_view name, double width);
/// A weight of `inputs` x `outputs` on this rank, applied to all tokens. `saved_tokens` is the number of tokens whose
/// input this rank keeps.
Operator linear_operator(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                         double saved_tokens, const Stack& stack);
/// A weight that every tensor-parallel rank holds whole, applied to the tokens that sequence parallelism assigns to it.
Operator replicated_linear(std::string_view name, const OperatorShapes& shapes, double inputs, double outputs,
                           const Stack& stack);
/// A bias that the following kernel adds; its gradient is a separate reduction.
void add_bias(Operator& op, const OperatorShapes& shapes, double outputs);

/// Operators from the normed hidden states up to and including the output projection.
void append_attention(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                      const Training& training);
/// Switches a linear of a block to 8-bit operands if the training is in fp8. `normed`: its input is the output of a
/// norm.
///
/// Casts move per element of the GEMM's input and of its output's gradient: delayed 4 bytes (16 bits read, rows and
/// transposed columns written, amax included); current and tensorwise 6 (an amax pass first); blockwise 6.5 (rows and
/// columns each from 16 bits, fp32 scales); mxfp8 4.2 (both directions and scales in one kernel); nvfp4 7.1 (an amax
/// pass, then rows, and columns after a Hadamard transform, each from 16 bits, with their scales); rowwise 12 (each
/// operand again for each of its GEMMs). With delayed scaling, TransformerEngine's norms write 8 bits directly; with
/// the stack's fused casts, so do activations, attention and their gradients. Source: NVIDIA/TransformerEngine 2.x,
/// docs/features/low_precision_training, and common/cast; pytorch/ao float8. TransformerEngine keeps the 8-bit copy of
/// the input until the backward pass, torchao's tensorwise and rowwise linears the 16-bit one.
void quantise(Operator& op, const Training& training, bool normed);

/// The activation function of an MLP. Eager: the gate's function and the product are separate kernels, as are their
/// gradients.
Operator activation_operator(const Transformer& model, const OperatorShapes& shapes, const Stack& stack,
                             std::string_view name, double elements);
/// An MLP of `width` columns over all tensor-parallel ranks, without the residual.
void append_mlp(std::vector<Operator>& operators, const Transformer& model, const OperatorShapes& shapes,
                const Training& training, double width);
/// Router, routed and shared experts, without the residual and the exchanges between expert-parallel ranks.
void append_experts(std::vector<Operator>& operators, const Transformer& model, const Layout& layout,
                    const Training& training);

/// The layout whose operators become those of `layout` when divided by split_over_grid().
Layout without_tensor_grid(const Layout& layout);

/// Divides the operators of one device over a grid of tensor-parallel ranks (2d, 2.5d, 3d): all work and activations
/// into tp parts, every parameter into grid.weight_parts. A linear becomes the GEMM that a rank runs in all its steps
/// combined: [S/token_parts, k] · [k, n/q] for SUMMA, [S/q, k/q] · [k/q, n/q] for 3d. Norm scales and biases are split
/// like the weights (Optimus keeps them on one row of the grid); distributing them is not modelled. 2.5d holds every
/// parameter `depth` times, as given by parameter_copies.
std::vector<Operator> split_over_grid(std::vector<Operator> operators, const Layout& layout);

}  // namespace flopcast
