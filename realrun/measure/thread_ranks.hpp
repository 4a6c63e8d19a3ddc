#pragma once

#include <cstddef>
#include <functional>

#include "realrun/measure/measure_messages.hpp"

namespace flopcast {

/// Ranks that are threads of this process: a message is one copy from the sender's buffer into the receiver's, a
/// collective adds up and copies parts of the others' buffers between barriers. Waiting threads yield their core.
void run_thread_ranks(int ranks, std::size_t bytes, const std::function<void(MeasuredRank&)>& body);

}  // namespace flopcast
