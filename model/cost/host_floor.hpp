#pragma once

#include <vector>

#include "model/cost/pricing.hpp"

namespace flopcast {

/// A pass takes no less than the host needs to launch its kernels and collectives, and somewhat more where both take
/// about as long, because now one and now the other waits: (device^6 + host^6)^(1/6). What that adds counts as
/// computation, half and half in the two parts of the backward pass. Nothing for a stack without host times.
void add_host_floor(const Job& job, const std::vector<Operator>& operators, Section& block);

}  // namespace flopcast
