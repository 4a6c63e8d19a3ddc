#pragma once

#include "realrun/compute/device.hpp"

namespace flopcast::realrun {

/// The CPU: works at once.
class HostDevice : public Device {
 public:
  Buffer allocate(std::size_t bytes) override;
  void zero(const Buffer& buffer) override;
  void copy(const Buffer& from, const Buffer& to) override;
  void add(const Buffer& from, const Buffer& to) override;
  void optimize(const Optimizer& rule, int step, const Buffer& weights, const Buffer& gradients,
                const std::vector<Buffer>& states, const Buffer& updated) override;
  void upload(const std::byte* from, const Buffer& to) override;
  void download(const Buffer& from, std::byte* to) override;
  Mark mark() override;
  Ticks time_of(const Mark& mark) override;
};

/// The floats of a buffer in host memory.
float* host_floats(const Buffer& buffer);

}  // namespace flopcast::realrun
