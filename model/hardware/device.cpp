#include "model/hardware/device.hpp"

#include <algorithm>
#include <cmath>

namespace flopcast {

namespace {

constexpr double kLaunch = 3e-6;

DeviceDefaults defaults(double gemm, double memory, double flash_forward, double flash_backward, const char* source) {
  return {gemm, memory, flash_forward, flash_backward, Seconds(kLaunch), source};
}

}  // namespace

double Device::clock_under_limit() const {
  const double locked = clock_hz > 0.0 && boost_clock_hz > 0.0 ? std::min(1.0, clock_hz / boost_clock_hz) : 1.0;
  if (power_limit_w <= 0.0 || tdp_w <= 0.0) return locked;
  constexpr double kStatic = 0.15;
  constexpr double kLeast = 0.01;
  const double left = std::max(kLeast, (std::min(1.0, power_limit_w / tdp_w) - kStatic) / (1.0 - kStatic));
  return std::min(locked, std::cbrt(left));
}

const DeviceDefaults& device_defaults(GpuGeneration generation) {
  static const DeviceDefaults ampere = defaults(
      0.8, 0.69, 0.55, 0.5, "fitted to published A100 training steps; FlashAttention-2 as Dao 2307.08691 measured");
  static const DeviceDefaults like_ampere = defaults(0.8, 0.69, 0.55, 0.5, "assumed like A100, which is measured");
  static const DeviceDefaults hopper =
      defaults(0.65, 0.53, 0.57, 0.52,
               "fitted to published H100 training steps; FlashAttention-3 forward as measured, backward assumed");
  static const DeviceDefaults blackwell = defaults(0.45, 0.46, 0.43, 0.39, "fitted to published B200 training steps");
  static const DeviceDefaults cdna2 = defaults(0.51, 0.8, 0.3, 0.25, "assumed like MI300X, which is measured");
  static const DeviceDefaults cdna3 =
      defaults(0.51, 0.8, 0.3, 0.25, "best isolated GEMM of MI300X (mamf-finder); flash attention assumed, unmeasured");
  static const DeviceDefaults cpu =
      defaults(0.8, 0.8, 0.4, 0.4, "chosen for a CPU, unmeasured: calibrate --cpu measures");
  switch (generation) {
    case GpuGeneration::kVolta:
    case GpuGeneration::kTuring:
    case GpuGeneration::kAda:
      return like_ampere;
    case GpuGeneration::kAmpere:
      return ampere;
    case GpuGeneration::kHopper:
      return hopper;
    case GpuGeneration::kBlackwell:
      return blackwell;
    case GpuGeneration::kCdna2:
      return cdna2;
    case GpuGeneration::kCdna3:
      return cdna3;
    case GpuGeneration::kCpu:
      return cpu;
  }
  return ampere;
}

}  // namespace flopcast
