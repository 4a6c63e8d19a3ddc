#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "realrun/buffer.hpp"

namespace flopcast::realrun {

/// Memory of a device that works behind the host's back. A buffer that its last holder has let go is handed out again
/// at once, although the device may not have come to its last use: what is handed out is for the same queue, which
/// comes to the next use later still. Allocating and freeing for real would stop the device. Sizes are rounded up to
/// classes of an eighth of a power of two. Any thread may call; the memory is freed when pool and buffers are gone.
class MemoryPool {
 public:
  /// Throws EnvironmentError when there is none.
  using Allocate = std::function<std::byte*(std::size_t bytes)>;
  using Free = std::function<void(std::byte*)>;

  MemoryPool(Allocate allocate, Free free);
  Buffer take(std::size_t bytes);
  std::size_t allocated_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace flopcast::realrun
