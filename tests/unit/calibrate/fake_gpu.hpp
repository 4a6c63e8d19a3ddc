#pragma once

#include <functional>
#include <set>
#include <string>

#include "model/hardware/device.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace flopcast {

/// A GPU with known figures whose clock only advances when work is queued: the catalogue's H200 with its own
/// efficiencies. Its GEMMs follow the forecast's model, its other kernels take bytes over a rate, and overlapped
/// samples slow down in proportion to the channels.
class FakeGpu : public MeasuredGpu {
 public:
  static constexpr double kGemmEfficiency = 0.55;
  static constexpr double kFp8Efficiency = 0.45;
  static constexpr double kTf32Efficiency = 0.62;
  static constexpr double kMemory = 4.2e12;         ///< bytes per second of a copy
  static constexpr double kMemoryEfficiency = 0.5;  ///< share of it for norms and element-wise kernels
  static constexpr double kLaunch = 2.2e-6;
  static constexpr double kDispatch = 3.1e-6;
  static constexpr double kHostRate = 52e9;
  static constexpr double kAlpha = 9e-6;  ///< latency of messages
  static constexpr double kLink = 300e9;
  static constexpr double kComputeSlowdown = 0.011;  ///< of a GEMM, per overlapped channel
  static constexpr double kCopySlowdown = 0.35;      ///< of a channel copy overlapped with a GEMM
  static constexpr double kChannelRate = 40e9;       ///< bytes per second and channel

  explicit FakeGpu(int gpus = 1);

  const GpuFacts& facts() const override { return facts_; }
  PreparedWork prepare(const SampleKey& key) override;

  double now() const { return now_; }
  std::function<double()> clock() const {
    return [this] { return now_; };
  }
  /// Device that a forecast of this GPU would have to assume.
  Device truth() const;

  GpuFacts facts_;
  double slowdown = 1.0;
  int hiccup_every = 0;            ///< one in this many batches takes ten times as long
  double costs_to_prepare = 1e-3;  ///< seconds
  std::set<std::string> refuses;   ///< samples, without their pass
  bool uncovered = false;          ///< overlapped work always ends too early
  int prepared = 0;

 private:
  class Work;
  double seconds_of(const SampleKey& key) const;

  double now_ = 0.0;
  int batches_ = 0;
};

}  // namespace flopcast
