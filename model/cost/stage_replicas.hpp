#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// Completes stage `stage`, whose computation and other communication are known: what its replicas send inside the
/// passes or in buckets, and activations that go to the host and back. `runs` are in order of the forward pass.
///
/// Offloaded activations leave during the forward pass and return during the backward pass, each way activation bytes
/// over host_bandwidth; what the pass does not cover is exposed. Two layers' worth stays on the device.
void finish_stage(const PricingContext& pricing, int stage, const std::vector<UnitRun>& runs, StageCosts& costs);

/// The gradients of a run of operators, given each one's share of the time in the backward pass.
std::vector<GradientPiece> gradient_pieces(const std::vector<Operator>& operators, const std::vector<Seconds>& backward,
                                           const Layout& layout);

}  // namespace flopcast
