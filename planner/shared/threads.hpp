#pragma once

#include <cstddef>
#include <optional>

#include "planner/parallel_for.hpp"

namespace flopcast {

/// A loop over `threads` threads, which live until the loop is gone; serial for one. 0: one for each core.
ParallelFor threaded_for(int threads);

/// What --threads says, no more than `tasks` need; 0 where it is not given. Throws ConfigError.
int thread_count(const std::optional<int>& threads, std::size_t tasks);

}  // namespace flopcast
