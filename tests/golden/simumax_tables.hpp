#pragma once

#include <filesystem>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// Kernels of a SimuMax system file (MooreThreads/SimuMax, configs/system) as samples of one device. The file has
/// fractions of a peak by shape; its scripts define the FLOPs, from which the times follow:
///   matmul            2·m·n·k for each GEMM: forward (TN), input (NN) and weight gradient (NT). A device has one rate
///                     for the three, so they are one kind of sample
///   sdp_fwd, sdp_bwd  4·s²·heads·dimension per sequence, and 2.5 times that, although only the causal half is computed
/// Left out: grouped GEMMs, heads with different widths of keys and values (a forecast has one width), and bandwidths
/// and networks, which are single figures without points; one of them (p2p) exceeds its link. Throws if a fraction is
/// not above zero or a kernel exceeds the peak.
Measurement read_simumax_kernels(const std::filesystem::path& file);

}  // namespace flopcast
