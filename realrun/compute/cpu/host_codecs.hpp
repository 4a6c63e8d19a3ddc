#pragma once

#include <memory>

#include "model/layout/parallel_forms.hpp"
#include "realrun/compute/gradient_codec.hpp"

namespace flopcast::realrun {

/// The codec that a job file's layout.compression names; null for none. What messages cost: model/cost/reduction.hpp.
///
///   8bit, 4bit  blocks of 512 values, the last one shorter: scale = largest magnitude / 127 (/ 7), codes = values /
///               scale, rounded to nearest, ties to even (QSGD, 1610.02132 §5, rounds by chance: equal runs would
///               differ). A message is all scales, then all codes; two 4-bit codes share a byte, the first in its low
///               half. Exchanged by parts, as 1-bit Adam does (Tang et al. 2102.02888 §4.2); no error feedback
///   topk:F      the ceil(F · count) largest magnitudes, the earlier of equals, in order of place: all values, then all
///               4-byte places (1704.05021 §3). Gathered. The rest is kept as residual (Stich et al. 1809.07599 §2)
/// Gradients that are not finite stay so in the blocks they lie in.
/// PowerSGD needs the shapes of matrices and is not among them.
std::unique_ptr<GradientCodec> make_host_codec(const Compression& compression);

}  // namespace flopcast::realrun
