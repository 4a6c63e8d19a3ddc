#pragma once

#include <optional>
#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of tensor-parallel ranks per microbatch (1d: Shoeybi et al. 1909.08053 §3).
///
/// Two all-reduces of the hidden states in the forward pass (after attention and MLP) and two in the backward pass
/// (before them): 8bsh(t-1)/t elements sent per rank and layer. Sequence parallelism replaces each with an all-gather
/// and a reduce-scatter, and gathers the input of each column-parallel linear again for its weight gradient
/// (Korthikanti et al. 2205.05198 §4.2) or that of its adapters; frozen linears need none.
/// Where a stack overlaps them, the second gather runs during the linear's input-gradient GEMM, and the reduction of
/// the input gradient during its weight-gradient GEMM (Megatron Core, tensor_parallel/layers.py; nanotron,
/// tensor_parallel/functional.py): each is hidden for as long as its own GEMM lasts, not by the block's other GEMMs.
/// For a layer with experts this covers only attention and shared experts; add_expert_exchange gathers the routed
/// tokens.
void add_block_collectives(const PricingContext& pricing, BlockKind kind, const std::vector<Operator>& operators,
                           Section& block);

/// The vocabulary is split over the ranks, so the looked-up rows are summed over them. A frozen table has no gradient.
void add_embedding_collectives(const PricingContext& pricing, LayerState state, Section& embedding);

/// Communicates the logits' input and its gradient, and for each token the maximum, target logit and sum of
/// exponentials in fp32 (Megatron's vocabulary-parallel cross entropy).
void add_head_collectives(const PricingContext& pricing, Section& head);

/// Adapters of linears split over tensor-parallel ranks: x·A is gathered or summed over the ranks before B, S·r
/// elements each in the forward and backward pass.
void add_adapter_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& block);
/// Adapter traffic of one forward pass: all of it, or the part that recomputing `of_modules` repeats.
Traffic adapter_exchange(const PricingContext& pricing, const std::vector<Operator>& operators,
                         const std::optional<RecomputeModules>& of_modules);

/// Collectives of a block's forward pass that full recomputation repeats.
Traffic recomputed_collectives(const PricingContext& pricing, BlockKind kind, const Section& block);
/// Fraction of these that selective recomputation (Layout::recompute_modules) repeats: those of the MLP in a dense
/// block, of the shared experts otherwise. Assumed to be one half for 2d, 2.5d and 3d.
double share_redone_selectively(const Job& job, BlockKind kind);

/// Traffic of one linear of `inputs` x `outputs` over `tokens` tokens on a grid of ranks. Panels are in elements; each
/// is the total that a line of q ranks gathers or reduces, so each rank sends (q-1)/q of it.
///
/// 2d, SUMMA (Optimus, Xu et al. 2104.05343 §3; van de Geijn & Watts 1997) and 2.5d (Tesseract, Wang et al. 2105.14500
/// §3), q x q x d ranks, d = 1 for 2d; Y = X·A:
///   forward   X along rows, A along columns             (q-1)/q · (S·i/(q·d) + i·o/q)
///   dX        A along columns, dX reduced along rows    as forward
///   dA        X along rows, dA reduced along columns    as forward, plus 2(d-1)/d · i·o/q² summed over the depth
///   2(q-1) steps each
/// 3d (Bian et al. 2105.14450 §3, Agarwal et al. 1995), q³ ranks:
///   forward   X, A gathered, Y reduced                  (q-1)/q³ · (S·i + i·o + S·o)
///   backward  dY gathered, dX, dA reduced               as forward (X and A are kept from the forward pass)
///   3(q-1) steps each
/// Assumes bandwidth-optimal (pipelined or ring) broadcasts and reductions, as NCCL runs them: volumes are what a rank
/// receives. Tables that give 6(q-1)/q for 2d and 3(q-1)(d+1)/(dq) for 2.5d instead count every step of a
/// store-and-forward broadcast and omit the sum over the depth.
struct GridPanels {
  double gathered_input = 0.0;     ///< X
  double gathered_weight = 0.0;    ///< A
  double reduced_output = 0.0;     ///< Y, 3d only
  double summed_over_depth = 0.0;  ///< dA, 2.5d only; elements of one rank's part
};
GridPanels grid_panels(TensorParallel form, const TensorGrid& grid, double tokens, double inputs, double outputs);

/// Adds the traffic of the linears among the operators of one rank, and of the norms' statistics, over each line of q
/// ranks. All of it is exposed. Not modelled: overlapping a SUMMA step with the transfer of the next panel.
void add_grid_collectives(const PricingContext& pricing, const std::vector<Operator>& operators, Section& section);
/// Embedding traffic: rows looked up in a table split in both dimensions are summed over a line of q ranks. 3d first
/// gathers the table's rows and reduces their gradient along another line; 2.5d sums the gradient over the depth.
void add_grid_embedding(const PricingContext& pricing, Section& embedding);
/// Loss traffic: maximum, target logit and sum of exponentials over the vocabulary's q parts, in fp32.
void add_grid_loss(const PricingContext& pricing, Section& head);

/// Communication of context-parallel ranks per microbatch and layer.
///
/// Ring: K and V of every other rank arrive while the previous blocks are processed (Liu et al. 2310.01889), and
/// circulate again with their gradients in the backward pass; time not covered by the attention kernels is exposed.
/// Each rank holds an early and a late part of the sequence (Layout::zigzag), so that causal masks leave equal work on
/// all ranks. Where a stack's kernels process one part at a time, results are merged after each step, forward and
/// backward (Stack::ring_merge_forward_bytes), which costs computation on the context features of one rank.
/// Ulysses: an all-to-all before attention exchanges tokens of Q, K and V for heads, another after it restores the
/// context; the backward pass does the same with their gradients (2309.14509 §3.2). All of it is exposed.
/// Allgather: K and V of the whole sequence are gathered before attention and again in the backward pass, where their
/// gradients are reduce-scattered (2407.21783 §3.3.2). All of it is exposed.
/// Hierarchical: all-to-alls among `context_inner` neighbours as in Ulysses, then a ring over cp/context_inner of them.
/// Its messages are as large as a plain ring's: `context_inner` times the tokens of 1/`context_inner` of the heads
/// (2405.07719 §3).
void add_context_exchange(const PricingContext& pricing, Section& block);

/// Fp8 with delayed scaling: after each pass of a stage, an all-reduce agrees on the largest magnitudes of its tensors,
/// a few KB, and the next kernels wait for it (TransformerEngine, reduce_and_update_fp8_tensors). It runs over the
/// ranks of Stack::amax_reduction. Not modelled: waiting for the slowest of them.
void add_amax_reductions(const PricingContext& pricing, StageCosts& costs);

/// The ranks that hold different experts and exchange tokens.
GroupPlacement expert_ranks(const PricingContext& pricing);
/// The tp·dp·cp/(etp·ep) ranks that hold the same experts, over which expert gradients are summed.
GroupPlacement expert_replicas(const PricingContext& pricing);

}  // namespace flopcast
