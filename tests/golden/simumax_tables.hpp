#pragma once

#include <filesystem>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// Kernels of a system file of SimuMax (MooreThreads/SimuMax, configs/system), as samples of one device. The file holds
/// shares of a peak by shape; its scripts say of which FLOPs, so that a time follows:
///   matmul            2·m·n·k of products called one after another: forward (TN), input (NN) and weight gradient (NT).
///                     A device has one rate for the three, so they are one kind of sample
///   sdp_fwd, sdp_bwd  4·s²·heads·dimension a sequence, and 2.5 times that, though the causal half alone is computed
/// Left out: grouped products, heads whose widths of keys and values differ (a forecast has one width), bandwidths and
/// networks, which are single figures without points; one of them (p2p) is beyond its link. Throws where a share is
/// not above zero or a kernel is beyond the peak.
Measurement read_simumax_kernels(const std::filesystem::path& file);

}  // namespace flopcast
