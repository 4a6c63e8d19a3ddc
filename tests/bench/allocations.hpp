#pragma once

#include <cstddef>

namespace flopcast {

/// Number of allocations by this program so far: allocations.cpp replaces operator new to count them.
std::size_t allocation_count();

}  // namespace flopcast
