#include "model/cost/compute.hpp"

#include <gtest/gtest.h>

#include <array>

namespace flopcast {
namespace {

// A device with 1 FLOP/s per multiprocessor and 1 B/s, so that results can be worked out by hand.
Device unit_device() {
  Device device;
  device.multiprocessors = 4;
  device.peak.fill(FlopsPerSecond(4.0));
  device.memory_bandwidth = BytesPerSecond(1e12);
  device.gemm_efficiency = 1.0;
  device.memory_efficiency = 0.5;
  device.flash_forward_efficiency = 0.5;
  device.flash_backward_efficiency = 0.25;
  device.kernel_launch = Seconds(0.0);
  return device;
}

TEST(Compute, AFullWaveCostsItsTilesOverTheMultiprocessors) {
  const Device device = unit_device();
  const ComputeModel compute(device, Precision::kFp16);
  // 512 x 256 in tiles of 256 x 128: 4 tiles on 4 multiprocessors, each 2·256·128·(1000 + 200) FLOPs.
  EXPECT_NEAR(compute.gemm({512, 256, 1000, 1}, 2).value(), 2.0 * 256 * 128 * 1200, 1.0);
}

TEST(Compute, WeightGradientsHideMostOfATilesPrologue) {
  Device device = unit_device();
  EXPECT_NEAR(ComputeModel(device, Precision::kFp16).weight_gradient({512, 256, 1000, 1}, 2).value(),
              2.0 * 256 * 128 * 1060, 1.0);
  // A CPU library has one kernel for all GEMMs.
  device.gemm_kernel.tile = 128;
  const ComputeModel cpu(device, Precision::kFp16);
  EXPECT_EQ(cpu.weight_gradient({512, 256, 1000, 1}, 2), cpu.gemm({512, 256, 1000, 1}, 2));
}

TEST(Compute, FourBitsHaveTheirOwnPeak) {
  Device device = unit_device();
  Training training;
  training.precision = Precision::kFp8;
  training.fp8_recipe = Fp8Recipe::kNvfp4;
  EXPECT_EQ(product_peak(device, training), device.peak_of(Precision::kFp8));
  device.peak_fp4 = FlopsPerSecond(8.0);
  EXPECT_EQ(product_peak(device, training), FlopsPerSecond(8.0));
  training.fp8_recipe = Fp8Recipe::kMxfp8;
  EXPECT_EQ(product_peak(device, training), device.peak_of(Precision::kFp8));
}

TEST(Compute, AdamMayHaveAShareOfItsOwn) {
  Device device = unit_device();
  device.kernel_launch = Seconds(1.0);
  EXPECT_EQ(ComputeModel(device, Precision::kFp32).adam_update(Bytes(1e12)).value(), 1.0 / 0.5 + 1.0);
  device.adam_efficiency = 0.1;
  EXPECT_NEAR(ComputeModel(device, Precision::kFp32).adam_update(Bytes(1e12)).value(), 1.0 / 0.1 + 1.0, 1e-12);
}

TEST(Compute, BiasGradientsBelongToTheInputGradientAndAccumulationToTheWeightGradient) {
  Device device = unit_device();
  device.memory_bandwidth = BytesPerSecond(1e3);
  device.kernel_launch = Seconds(1.0);
  const ComputeModel compute(device, Precision::kFp16);
  Training training;
  training.precision = Precision::kFp16;
  Operator linear;
  linear.kind = OperatorKind::kLinear;
  linear.shape = {256, 128, 512, 1};
  const OperatorTimes bare = operator_times(linear, compute, training);
  linear.input_gradient_bytes = Bytes(1000.0);
  const OperatorTimes biased = operator_times(linear, compute, training);
  EXPECT_NEAR((biased.input_gradient - bare.input_gradient).value(), 1000 / 500.0 + 1.0, 1e-6);
  EXPECT_EQ(biased.weight_gradient, bare.weight_gradient);
  linear.weight_gradient_bytes = Bytes(2000.0);
  const OperatorTimes accumulated = operator_times(linear, compute, training);
  EXPECT_EQ(accumulated.input_gradient, biased.input_gradient);
  EXPECT_NEAR((accumulated.weight_gradient - bare.weight_gradient).value(), 2000 / 500.0 + 1.0, 1e-6);
}

TEST(Compute, AStartedWaveCostsAWholeOne) {
  const Device device = unit_device();
  const ComputeModel compute(device, Precision::kFp16);
  const double one_wave = compute.gemm({512, 256, 1000, 1}, 2).value();
  // One more row of tiles starts a second wave. Smaller tiles soften the step without removing it.
  const double started = compute.gemm({513, 256, 1000, 1}, 2).value();
  EXPECT_GT(started, 1.4 * one_wave);
  EXPECT_NEAR(compute.gemm({1024, 256, 1000, 1}, 2).value(), 2 * one_wave, 1.0);
}

TEST(Compute, AMeasuredShareOfTheEmptyPlacesIsPaid) {
  Device device = unit_device();
  const double one_wave = ComputeModel(device, Precision::kFp16).gemm({512, 256, 1000, 1}, 2).value();
  device.gemm_kernel.tile = 256;
  const ComputeModel in_step(device, Precision::kFp16);
  const double two_waves = in_step.gemm({1280, 256, 1000, 1}, 2).value();
  EXPECT_DOUBLE_EQ(two_waves, 4 * one_wave);
  // Five tiles on four multiprocessors: one full wave and a quarter of the next, so three quarters are empty.
  device.gemm_kernel.wave_share = 0.2;
  const ComputeModel measured(device, Precision::kFp16);
  EXPECT_DOUBLE_EQ(measured.gemm({1280, 256, 1000, 1}, 2).value(), (2.0 - 0.8 * 0.75) / 2.0 * two_waves);
  EXPECT_DOUBLE_EQ(measured.gemm({2048, 256, 1000, 1}, 2).value(), two_waves);
  // Fewer tiles than multiprocessors take the time of one tile.
  EXPECT_DOUBLE_EQ(measured.gemm({256, 256, 1000, 1}, 2).value(), 0.5 * two_waves);
}

TEST(Compute, ThinProductsAreBoundByTheirBytes) {
  Device device = unit_device();
  device.peak.fill(FlopsPerSecond(1e18));
  device.memory_bandwidth = BytesPerSecond(100.0);
  const ComputeModel compute(device, Precision::kFp16);
  // 2 bytes for A (8 x 4), B (4 x 16) and C (8 x 16) at 0.85 of 100 B/s.
  EXPECT_NEAR(compute.gemm({8, 16, 4, 1}, 2).value(), 2.0 * (32 + 64 + 128) / 85.0, 1e-6);
}

TEST(Compute, MemoryBoundKernelsPayBytesAndLaunches) {
  Device device = unit_device();
  device.memory_bandwidth = BytesPerSecond(10.0);
  device.kernel_launch = Seconds(3.0);
  const ComputeModel compute(device, Precision::kFp16);
  EXPECT_DOUBLE_EQ(compute.memory_bound(Bytes(20), 2).value(), 20 / 5.0 + 6.0);
}

TEST(Compute, AttentionBackwardIsTwoAndAHalfForwards) {
  const Device device = unit_device();
  const ComputeModel compute(device, Precision::kFp16);
  EXPECT_DOUBLE_EQ(compute.fused_attention(Flops(8), false).value(), 4.0);
  EXPECT_DOUBLE_EQ(compute.fused_attention(Flops(8), true).value(), 20.0);
}

TEST(Compute, LargeProductsApproachTheSustainedPeak) {
  Device device = unit_device();
  device.multiprocessors = 108;
  device.peak.fill(FlopsPerSecond(312e12));
  device.memory_bandwidth = BytesPerSecond(2e12);
  device.gemm_efficiency = 0.8;
  const ComputeModel compute(device, Precision::kFp16);
  const double size = 16'384;
  const double rate = 2 * size * size * size / compute.gemm({16'384, 16'384, 16'384, 1}, 2).value();
  EXPECT_LT(rate, 0.8 * 312e12);
  EXPECT_GT(rate, 0.95 * 0.8 * 312e12);
}

// Without operand streams and launches, the time of a GEMM is inversely proportional to its precision's share. At 3/4
// of the clock, GEMMs and attention take 4/3 of the time, and element-wise kernels take the same time; a power limit
// below that applies alone.
TEST(Compute, ALockedClockSlowsProductsAlone) {
  Device device = unit_device();
  const auto times = [&device] {
    const ComputeModel compute(device, Precision::kBf16);
    return std::array<double, 3>{compute.gemm({4096, 4096, 4096, 1}, 0.0).value(),
                                 compute.fused_attention(Flops(1e12), true).value(),
                                 compute.memory_bound(Bytes(1e12), 1).value()};
  };
  const auto free = times();
  device.boost_clock_hz = 2e9;
  EXPECT_EQ(times(), free);
  device.clock_hz = 1.5e9;
  const auto locked = times();
  EXPECT_NEAR(locked[0] / free[0], 4.0 / 3.0, 1e-9);
  EXPECT_NEAR(locked[1] / free[1], 4.0 / 3.0, 1e-9);
  EXPECT_EQ(locked[2], free[2]);
  device.tdp_w = 400.0;
  device.power_limit_w = 380.0;
  EXPECT_EQ(times(), locked);
  device.power_limit_w = 100.0;
  EXPECT_GT(times()[0], locked[0]);
  device.clock_hz = 3e9;
  device.power_limit_w = 0.0;
  EXPECT_EQ(times(), free);
}

TEST(Compute, APrecisionMayHaveAShareOfItsOwn) {
  Device device = unit_device();
  device.peak.fill(FlopsPerSecond(1e12));
  device.memory_bandwidth = BytesPerSecond(1e18);
  device.kernel_launch = Seconds(0);
  device.gemm_efficiency = 0.8;
  device.gemm_efficiency_by_precision[static_cast<std::size_t>(Precision::kFp8)] = 0.4;
  const GemmShape shape{4096, 4096, 4096, 1};
  const double usual = ComputeModel(device, Precision::kBf16).gemm(shape, 2).value();
  // 8-bit operands have 790 steps of overhead instead of 200; the other GEMMs of such a training use 16 bits.
  const double deeper = (4096.0 + 790.0) / (4096.0 + 200.0);
  EXPECT_NEAR(ComputeModel(device, Precision::kFp8).gemm(shape, 2, true).value(), 2.0 * usual * deeper, 1e-12);
  EXPECT_DOUBLE_EQ(ComputeModel(device, Precision::kFp8).gemm(shape, 2).value(), usual);
  EXPECT_DOUBLE_EQ(ComputeModel(device, Precision::kFp16).gemm(shape, 2).value(), usual);
}

}  // namespace
}  // namespace flopcast
