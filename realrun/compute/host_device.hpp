#pragma once

#include <memory>

#include "model/layout/layout.hpp"
#include "realrun/device/device.hpp"

namespace flopcast::realrun {

/// The CPU: operations complete before the call returns.
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

/// The codec that a job file's layout.compression names; null for none. Message costs: model/cost/gradients.cpp.
///
///   8bit, 4bit  blocks of 512 values, the last one shorter: scale = largest magnitude / 127 (/ 7), codes = values /
///               scale, rounded to nearest, ties to even (QSGD, 1610.02132 §5, rounds randomly: equal runs would
///               differ). A message is all scales, then all codes; two 4-bit codes share a byte, the first in its low
///               half. Exchanged by parts, as in 1-bit Adam (Tang et al. 2102.02888 §4.2); no error feedback
///   topk:F      the ceil(F · count) largest magnitudes, of equals the earlier, in order of position: all values, then
///               all 4-byte positions (1704.05021 §3). Gathered. The rest is kept as residual (Stich et al. 1809.07599
///               §2)
///
/// Non-finite gradients make their whole block non-finite. PowerSGD needs the shapes of matrices and is not a codec:
/// null as well.
std::unique_ptr<GradientCodec> make_host_codec(const Compression& compression);

/// Computes on the calling thread's CPU. Stateless: all ranks share it.
LowRankProducts& host_low_rank_products();

}  // namespace flopcast::realrun
