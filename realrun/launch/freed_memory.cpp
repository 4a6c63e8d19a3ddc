#include "realrun/launch/freed_memory.hpp"

#include <cstdlib>
#include <limits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace flopcast::realrun {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kLargestAllowed = 32 * 1024 * 1024;
  mallopt(M_MMAP_THRESHOLD, kLargestAllowed);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

}  // namespace flopcast::realrun
