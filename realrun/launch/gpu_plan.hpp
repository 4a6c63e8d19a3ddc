#pragma once

#include "realrun/compute/gemm_precision.hpp"
#include "realrun/launch/prepared_run.hpp"

namespace flopcast::realrun {

/// Throws ConfigError for what GPU ranks cannot do: compression, token slices, emulated compute, heads wider than 128,
/// fp16 and fp8. Returns how their products are computed.
GemmPrecision check_for_gpus(const PreparedRun& run);
std::string_view name_of(GemmPrecision precision);

}  // namespace flopcast::realrun
