#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace flopcast::realrun {

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

}  // namespace flopcast::realrun
