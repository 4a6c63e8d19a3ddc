#pragma once

#include <optional>
#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of tensor-parallel ranks, per microbatch (1d: Shoeybi et al. 1909.08053 §3).
///
/// Two all-reduces of the hidden states forward (after attention and MLP) and two backward (before them): 8bsh(t-1)/t
/// elements sent per rank and layer. Sequence parallelism makes each an all-gather and a reduce-scatter, and gathers
/// each column-parallel linear's input again for its weight gradient (Korthikanti et al. 2205.05198 §4.2), or that of
/// its adapters; a frozen one has none.
/// Where a stack overlaps them, the second gather runs beside the linear's input gradient, the sum of that beside its
/// weight gradient (Megatron Core, tensor_parallel/layers.py; nanotron, tensor_parallel/functional.py): each hides for
/// as long as its own product, not behind the block's other products.
/// Of a layer with experts those of attention and shared experts alone: the gathers of routed tokens are
/// add_expert_exchange's.
void add_block_collectives(const PricingContext& pricing, BlockKind kind, const std::vector<Operator>& operators,
                           Section& block);

/// The vocabulary is split over the ranks, so the looked-up rows are summed over them. A frozen table gets no gradient.
void add_embedding_collectives(const PricingContext& pricing, LayerState state, Section& embedding);

/// The logits' input and its gradient, and maximum, target logit and sum of exponentials of every token in fp32
/// (Megatron's vocabulary-parallel cross entropy).
void add_head_collectives(const PricingContext& pricing, Section& head);

/// Adapters of linears that tensor-parallel ranks share: x·A is gathered or summed over the ranks before B, S·r
/// elements in the forward pass and as many in the backward pass.
void add_adapter_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);
/// What of it a forward pass sends: all, or that of what the recomputation of modules redoes.
Traffic adapter_exchange(const PricingContext& pricing, const std::vector<Operator>& operators,
                         const std::optional<RecomputeModules>& of_modules);

/// What a block's forward pass sends again under full recomputation.
Traffic recomputed_collectives(const PricingContext& pricing, BlockKind kind, const Section& block);
/// The share of it that selective recomputation of Layout::recompute_modules sends again: of the MLP of a dense block,
/// of the shared experts of another. 2d, 2.5d and 3d: taken for half.
double share_redone_selectively(const Job& job, BlockKind kind);

/// What one linear of `inputs` x `outputs` over `tokens` tokens sends on a grid of ranks: panels in elements, each the
/// whole of what a line of q ranks gathers or reduces, so that a rank sends (q-1)/q of it.
///
/// 2d, SUMMA (Optimus, Xu et al. 2104.05343 §3; van de Geijn & Watts 1997) and 2.5d (Tesseract, Wang et al. 2105.14500
/// §3), q x q x d ranks, d = 1 for 2d; Y = X·A:
///   forward   X along rows, A along columns             (q-1)/q · (S·i/(q·d) + i·o/q)
///   dX        A along columns, dX reduced along rows    the same
///   dA        X along rows, dA reduced along columns    the same, and 2(d-1)/d · i·o/q² summed over the depth
///   2(q-1) steps each
/// 3d (Bian et al. 2105.14450 §3, Agarwal et al. 1995), q³ ranks:
///   forward   X, A gathered, Y reduced                  (q-1)/q³ · (S·i + i·o + S·o)
///   backward  dY gathered, dX, dA reduced               the same (X and A are kept from the forward pass)
///   3(q-1) steps each
/// The convention is that of bandwidth-optimal (pipelined or ring) broadcasts and reductions, as NCCL runs them:
/// volumes are what a rank receives. Tables that print 6(q-1)/q for 2d and 3(q-1)(d+1)/(dq) for 2.5d count every step
/// of a store-and-forward broadcast instead and leave out the sum over the depth.
struct GridPanels {
  double gathered_input = 0.0;     ///< X
  double gathered_weight = 0.0;    ///< A
  double reduced_output = 0.0;     ///< Y of 3d
  double summed_over_depth = 0.0;  ///< dA of 2.5d, elements of one rank's part
};
GridPanels grid_panels(TensorParallel form, const TensorGrid& grid, double tokens, double inputs, double outputs);

/// Adds the traffic of the linears among `operators` (of one rank), and of the statistics of the norms, over each line
/// of q ranks. Nothing of it is hidden behind computation. Left out: overlapping a SUMMA step with the next panel.
void add_grid_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& section);
/// Of the embedding: rows looked up in a table that is cut both ways are summed over a line of q ranks. 3d gathers the
/// table's rows before and reduces their gradient along another; 2.5d sums the gradient over the depth.
void add_grid_embedding(const PricingContext& pricing, Section& embedding);
/// Of the loss: maximum, target logit and sum of exponentials over the vocabulary's q parts, in fp32.
void add_grid_loss(const PricingContext& pricing, Section& head);

/// Communication of context-parallel ranks, per microbatch and layer.
///
/// Ring: K and V of every other rank pass by while the blocks at hand are worked on (Liu et al. 2310.01889), and come
/// round again with their gradients in the backward pass; what the attention kernels do not cover is exposed. Each rank
/// holds an early and a late part of the sequence (Layout::zigzag), so that causal masks leave all with as much work.
/// Where a stack's kernels attend to one part at a time, results are merged after each step, forward and backward
/// (Stack::ring_merge_forward_bytes): computation, of the context's features on one rank.
/// Ulysses: before attention an all-to-all turns the tokens of Q, K and V into heads, behind it another turns the
/// context back; the backward pass does the same with their gradients (2309.14509 §3.2). Nothing of it is hidden.
/// Allgather: K and V of the whole sequence are gathered before attention, gathered again in the backward pass, and
/// their gradients summed and scattered (2407.21783 §3.3.2). Nothing of it is hidden.
/// Hierarchical: all-to-alls among `context_inner` neighbours as Ulysses, then a ring over cp/context_inner of them,
/// whose messages are as long as a plain ring's: as many times the tokens of as many times fewer heads (2405.07719 §3).
void add_context_exchange(const PricingContext& pricing, Section& block);

/// Behind each pass of a stage in 8 bits with delayed scaling: the largest magnitudes of its tensors, a few KB, are
/// agreed on by an all-reduce that the next kernels wait for (TransformerEngine, reduce_and_update_fp8_tensors), over
/// the ranks of Stack::amax_reduction. Left out: waiting for the slowest of these ranks.
void add_amax_reductions(const PricingContext& pricing, StageCosts& costs);

/// The ranks that hold different experts: tokens are exchanged among them.
GroupPlacement expert_ranks(const PricingContext& pricing);
/// The ranks that hold the same experts, tp·dp·cp/(etp·ep) of them: expert gradients are summed over these.
GroupPlacement expert_replicas(const PricingContext& pricing);

}  // namespace flopcast
