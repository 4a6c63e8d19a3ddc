#pragma once

#include <string>
#include <vector>

#include "calibrate/device/measurement.hpp"

namespace flopcast {

/// Adds the samples of `more`, read from `file`; what is there already becomes a further pass. Throws ConfigError when
/// both name a device and it is not the same.
void add_samples(Measurement& all, const Measurement& more, const std::string& file);

/// Takes out what cannot be fitted: products of a precision that no forecast uses or with too few shapes, kernels,
/// copies and messages of a group with too few sizes. One sentence for each, for the user. For files that hold what
/// happened to run, or what the time sufficed for.
std::vector<std::string> leave_out_small_groups(Measurement& measurement);

}  // namespace flopcast
