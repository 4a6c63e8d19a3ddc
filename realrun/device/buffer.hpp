#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

namespace flopcast::realrun {

/// Base of everything that is used through pointers to an abstract class: neither copied nor moved.
class Interface {
 public:
  Interface() = default;
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;
  virtual ~Interface() = default;
};

/// A handle on a piece of a device's memory, shared by whoever holds it. Only the device that allocated it and the
/// transport of its kind may dereference the address: executor and parallel strategies hand buffers on, and cut them.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<std::byte[]> memory, std::size_t bytes)
      : memory_(std::move(memory)), address_(memory_.get()), bytes_(bytes) {}

  bool empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }
  std::byte* address() const { return address_; }
  /// `bytes` from `offset` on, in the same memory.
  Buffer slice(std::size_t offset, std::size_t bytes) const {
    Buffer part = *this;
    part.address_ += offset;
    part.bytes_ = bytes;
    return part;
  }

 private:
  std::shared_ptr<std::byte[]> memory_;
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Between places that do not overlap. An empty buffer has no address, which std::memcpy does not take even for
/// nothing.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// In the process's own memory, filled with zeros.
Buffer allocate_host(std::size_t bytes);

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

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace flopcast::realrun
