#pragma once

#include <functional>
#include <set>
#include <string>

#include "model/hardware/device.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace flopcast {

/// A GPU of known figures whose clock only moves when work is queued: an H200 by the catalogue with efficiencies of its
/// own. Its products follow the forecast's own model, its kernels bytes over a rate; what runs beside something else is
/// slowed by so much a channel.
class FakeGpu : public MeasuredGpu {
 public:
  static constexpr double kGemmEfficiency = 0.55;
  static constexpr double kFp8Efficiency = 0.45;
  static constexpr double kTf32Efficiency = 0.62;
  static constexpr double kMemory = 4.2e12;         ///< bytes a second of a copy
  static constexpr double kMemoryEfficiency = 0.5;  ///< of that, norms and element-wise kernels
  static constexpr double kLaunch = 2.2e-6;
  static constexpr double kDispatch = 3.1e-6;
  static constexpr double kHostRate = 52e9;
  static constexpr double kAlpha = 9e-6;  ///< of messages
  static constexpr double kLink = 300e9;
  static constexpr double kComputeSlowdown = 0.011;  ///< of a product, for each channel beside it
  static constexpr double kCopySlowdown = 0.35;      ///< of a channel copy beside a product, whatever its channels
  static constexpr double kChannelRate = 40e9;       ///< bytes a second of one channel

  explicit FakeGpu(int gpus = 1);

  const GpuFacts& facts() const override { return facts_; }
  PreparedWork prepare(const SampleKey& key) override;

  double now() const { return now_; }
  std::function<double()> clock() const {
    return [this] { return now_; };
  }
  /// The device that a forecast of this GPU would have to assume.
  Device truth() const;

  GpuFacts facts_;
  double slowdown = 1.0;
  int hiccup_every = 0;            ///< every so many batches one takes ten times as long
  double costs_to_prepare = 1e-3;  ///< seconds
  std::set<std::string> refuses;   ///< samples, without their pass
  bool uncovered = false;          ///< what runs beside something is always gone first
  int prepared = 0;

 private:
  class Work;
  double seconds_of(const SampleKey& key) const;

  double now_ = 0.0;
  int batches_ = 0;
};

}  // namespace flopcast
