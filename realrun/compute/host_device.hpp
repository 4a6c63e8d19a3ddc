#pragma once

#include <memory>

#include "model/layout/layout.hpp"
#include "realrun/device/device.hpp"

namespace flopcast::realrun {

/// The CPU: works at once.
class HostDevice : public ComputeDevice {
 public:
  Buffer allocate(std::size_t bytes) override { return allocate_host(bytes); }
  void zero(const Buffer& buffer) override {
    if (!buffer.empty()) std::memset(buffer.address(), 0, buffer.bytes());
  }
  void draw(const Draw& draw, const Buffer& to) override;
  void copy(const Buffer& from, const Buffer& to) override;
  void add(const Buffer& from, const Buffer& to) override;
  void optimize(const UpdateRule& rule, int step, const Buffer& weights, const Buffer& gradients,
                const std::vector<Buffer>& states, const Buffer& updated) override;
  void upload(const std::byte* from, const Buffer& to) override { copy_bytes(to.address(), from, to.bytes()); }
  void download(const Buffer& from, std::byte* to) override { copy_bytes(to, from.address(), from.bytes()); }
  Mark mark() override { return {host_clock()}; }
  Ticks time_of(const Mark& mark) override { return mark.moment == nullptr ? mark.ticks : mark.moment->time(); }
};

/// The floats of a buffer in host memory.
float* host_floats(const Buffer& buffer);

/// The codec that a job file's layout.compression names; null for none. What messages cost: model/cost/gradients.cpp.
///
///   8bit, 4bit  blocks of 512 values, the last one shorter: scale = largest magnitude / 127 (/ 7), codes = values /
///               scale, rounded to nearest, ties to even (QSGD, 1610.02132 §5, rounds by chance: equal runs would
///               differ). A message is all scales, then all codes; two 4-bit codes share a byte, the first in its low
///               half. Exchanged by parts, as 1-bit Adam does (Tang et al. 2102.02888 §4.2); no error feedback
///   topk:F      the ceil(F · count) largest magnitudes, the earlier of equals, in order of place: all values, then all
///               4-byte places (1704.05021 §3). Gathered. The rest is kept as residual (Stich et al. 1809.07599 §2)
/// Gradients that are not finite stay so in the blocks they lie in.
/// PowerSGD needs the shapes of matrices and is not among them: null too.
std::unique_ptr<GradientCodec> make_host_codec(const Compression& compression);

/// On the calling thread's CPU. It has no state: all ranks share it.
LowRankProducts& host_low_rank_products();

}  // namespace flopcast::realrun
