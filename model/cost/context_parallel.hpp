#pragma once

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Communication of context-parallel ranks, per microbatch and layer.
///
/// Ring: K and V of every other rank pass by while the blocks at hand are worked on (Liu et al. 2310.01889), and come
/// round again with their gradients in the backward pass; what the attention kernels do not cover is exposed. Each rank
/// holds an early and a late part of the sequence (zigzag), so that causal masks leave all with as much work.
/// Ulysses: before attention an all-to-all turns the tokens of Q, K and V into heads, behind it another turns the
/// context back; the backward pass does the same with their gradients (2309.14509 §3.2). Nothing of it is hidden.
/// Left out: a ring inside Ulysses groups.
void add_context_exchange(const PricingContext& pricing, Section& block);

/// Of the traffic that add_context_exchange counts, what a forward pass alone sends.
double context_share_of_forward(const Layout& layout);

}  // namespace flopcast
