#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

namespace flopcast::realrun {

/// Base of every class used through pointers to an abstract base: neither copyable nor movable.
class Interface {
 public:
  Interface() = default;
  Interface(const Interface&) = delete;
  Interface& operator=(const Interface&) = delete;
  virtual ~Interface() = default;
};

/// A handle on a piece of a device's memory with shared ownership. Only the device that allocated it and the matching
/// transport may dereference the address; the executor and parallel strategies only pass buffers on and slice them.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::shared_ptr<std::byte[]> memory, std::size_t bytes)
      : memory_(std::move(memory)), address_(memory_.get()), bytes_(bytes) {}

  bool empty() const { return bytes_ == 0; }
  std::size_t bytes() const { return bytes_; }
  std::byte* address() const { return address_; }
  /// `bytes` starting at `offset`, in the same memory.
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

/// Copies between ranges that do not overlap. An empty buffer has a null address, which std::memcpy does not accept
/// even for zero bytes.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// Allocates zeroed host memory.
Buffer allocate_host(std::size_t bytes);

/// Memory of a device that runs asynchronously. A buffer is reused as soon as its last holder releases it, although the
/// device may not have reached its last use: new holders queue to the same queue, so their first use comes later. Real
/// allocation and deallocation would stall the device. Sizes are rounded up to classes of an eighth of a power of two.
/// Thread-safe; the memory is freed once the pool and all its buffers are gone.
class MemoryPool {
 public:
  /// Throws EnvironmentError if out of memory.
  using Allocate = std::function<std::byte*(std::size_t bytes)>;
  using Free = std::function<void(std::byte*)>;

  MemoryPool(Allocate allocate, Free free);
  Buffer take(std::size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace flopcast::realrun
