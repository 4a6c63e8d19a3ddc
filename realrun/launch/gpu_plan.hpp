#pragma once

#include "realrun/compute/gemm_precision.hpp"
#include "realrun/launch/command_line.hpp"
#include "realrun/launch/prepared_run.hpp"

namespace flopcast::realrun {

/// Throws ConfigError for what GPU ranks cannot do: compression, token slices, emulated compute, heads wider than 128,
/// fp16 and fp8; and for another number of ranks than --one-gpu says. Returns how their products are computed.
GemmPrecision check_for_gpus(const LaunchOptions& options, const PreparedRun& run);
std::string_view name_of(GemmPrecision precision);

}  // namespace flopcast::realrun
