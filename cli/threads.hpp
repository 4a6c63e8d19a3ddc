#pragma once

#include "planner/parallel_for.hpp"

namespace flopcast {

/// A loop over `threads` threads, which live until the loop is gone; serial for one. 0: one for each core.
ParallelFor threaded_for(int threads);

}  // namespace flopcast
