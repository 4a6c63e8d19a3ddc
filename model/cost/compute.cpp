#include "model/cost/compute.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace flopcast {

namespace {

// Tile shapes that a vendor library chooses from. Efficiency is relative to the best tile: smaller tiles reuse less of
// what they load from shared memory (fitted to the A100 GEMM tables of estimate-train-time, 2509.22832).
struct Tile {
  constexpr Tile(double rows, double columns, double efficiency)
      : per_row(1.0 / rows), per_column(1.0 / columns), work(2.0 * rows * columns / efficiency) {}

  double per_row;  ///< sides are powers of two, so multiplying by the inverse is exact
  double per_column;
  double work;  ///< FLOPs per step of k
};
constexpr std::array<Tile, 6> kTiles = {Tile(256, 128, 1.0), Tile(128, 256, 1.0), Tile(128, 128, 0.95),
                                        Tile(128, 64, 0.59), Tile(64, 128, 0.59), Tile(64, 64, 0.35)};

constexpr double kSplitDepth = 2048.0;  // libraries do not split a smaller k
constexpr double kMostSplits = 4.0;
constexpr double kSplitReduction = 1.1;  // for adding the partial products
// Fraction of the bytes of an element-wise kernel that go to memory if it reads what the previous kernel wrote; the
// rest is still in the L2 cache. Isolated kernels do not show this; fitted to the published A100 steps together.
constexpr double kFreshShare = 0.7;
// For batched GEMMs whose head width is not a multiple of eight 16-bit elements: rows do not start at multiples of 16
// bytes, as tensor cores require. Fitted to the published BLOOM steps with heads of 108, 150 and 450.
constexpr std::int64_t kAlignedElements = 8;
constexpr double kMisalignedSlowdown = 10.0;

// For positive counts. Planners call this millions of times, and std::ceil is a function call unless the compiler may
// assume newer processors.
double rounded_up(double count) {
  const double whole = static_cast<double>(static_cast<std::int64_t>(count));
  return whole < count ? whole + 1.0 : whole;
}

// FLOPs that one multiprocessor could have computed at the best tile's rate while it is busy with `tiles` tiles.
double waves_work(double tiles, double tile_work, double k, double multiprocessors, const GemmKernel& kernel) {
  const double filled = tiles / multiprocessors;
  // Even a single tile takes a full wave.
  const double waves = rounded_up(filled);
  const double empty = filled > 1.0 ? waves - filled : 0.0;
  double work = (waves - (1.0 - kernel.wave_share) * empty) * tile_work * (k + kernel.overhead_depth);
  if (filled < 0.5 && k > kSplitDepth) {
    const double splits = std::min(std::floor(1.0 / filled), kMostSplits);
    work = std::min(work, tile_work * (k / splits + kernel.overhead_depth) * kSplitReduction);
  }
  return work;
}

double busy_work(const GemmKernel& kernel, double multiprocessors, const GemmShape& shape) {
  const double m = static_cast<double>(shape.m);
  const double n = static_cast<double>(shape.n);
  const double k = static_cast<double>(shape.k);
  const double batch = static_cast<double>(shape.batch);
  if (kernel.tile > 0) {
    const double side = kernel.tile;
    return waves_work(rounded_up(m / side) * rounded_up(n / side) * batch, 2.0 * side * side, k, multiprocessors,
                      kernel);
  }
  double least = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles = rounded_up(m * tile.per_row) * rounded_up(n * tile.per_column) * batch;
    least = std::min(least, waves_work(tiles, tile.work, k, multiprocessors, kernel));
  }
  return least;
}

GemmWork work_of_kernel(const GemmKernel& kernel, double multiprocessors, Precision precision, const GemmShape& shape,
                        double output_bytes) {
  GemmWork work;
  work.busy = Flops(busy_work(kernel, multiprocessors, shape));
  const double element = precision == Precision::kFp8 ? 1.0 : element_size(precision).value();
  const double m = static_cast<double>(shape.m);
  const double n = static_cast<double>(shape.n);
  const double k = static_cast<double>(shape.k);
  work.moved = Bytes(static_cast<double>(shape.batch) * (element * (m * k + k * n) + output_bytes * m * n));
  return work;
}

// Factor on overhead_depth: filling a tile of 8-bit operands takes as long as this many more steps of k.
constexpr double kLowPrecisionDepth = 790.0 / 200.0;
constexpr double kScaledByBlocks = 0.88;
constexpr double kScaledByRows = 0.7;

GemmKernel in_precision(GemmKernel kernel, Precision precision) {
  if (precision == Precision::kFp8) kernel.overhead_depth *= kLowPrecisionDepth;
  return kernel;
}

// Efficiency of attention kernels written for Ampere, on Ampere and its successors. FlashAttention 1: from the
// published llm-foundry steps of 2023. FlashAttention 2: 35 % of an H100's peak (Shah et al. 2407.08608, abstract),
// whose own backward kernel is up to 1.75 times as fast.
FlashEfficiency flash_of(const Device& device, const Stack& stack) {
  const FlashEfficiency best{device.flash_forward_efficiency, device.flash_backward_efficiency};
  const auto own = stack.flash_efficiency.find(name_of(device.generation));
  if (own != stack.flash_efficiency.end()) return own->second;
  const FlashKernels kernels = stack.flash_kernels.value_or(FlashKernels::kCudnn);
  const bool follows = device.generation == GpuGeneration::kHopper || device.generation == GpuGeneration::kBlackwell;
  const auto at_most = [&best](FlashEfficiency kernel) {
    return FlashEfficiency{std::min(best.forward, kernel.forward), std::min(best.backward, kernel.backward)};
  };
  if (kernels == FlashKernels::k1) return follows ? at_most({0.27, 0.15}) : FlashEfficiency{0.57, 0.25};
  return kernels == FlashKernels::k2 && follows ? at_most({0.35, 0.3}) : best;
}

}  // namespace

ComputeModel::ComputeModel(const Device& device, Precision precision, const Stack& stack,
                           std::optional<Fp8Recipe> recipe, const CostOverrides* laws)
    : device_(device),
      precision_(precision),
      laws_(laws),
      clock_(device.clock_under_limit()),
      flash_(flash_of(device, stack)) {
  const bool hopper = device.generation != GpuGeneration::kBlackwell;
  if (recipe == Fp8Recipe::kBlockwise && hopper) scaled_share_ = kScaledByBlocks;
  if (recipe == Fp8Recipe::kRowwise) scaled_share_ = kScaledByRows;
  if (!hopper) scaled_share_ *= stack.fp8_on_blackwell;
  in_4_bits_ = recipe == Fp8Recipe::kNvfp4 && device.peak_fp4.value() > 0.0;
}

GemmWork gemm_work(const Device& device, Precision precision, const GemmShape& shape, double output_bytes) {
  return work_of_kernel(in_precision(device.gemm_kernel, precision), device.multiprocessors, precision, shape,
                        output_bytes);
}

Seconds ComputeModel::gemm(const GemmShape& shape, double output_bytes, bool low_precision) const {
  return multiply(shape, output_bytes, low_precision, device_.gemm_kernel);
}

Seconds ComputeModel::weight_gradient(const GemmShape& shape, double output_bytes, bool low_precision) const {
  GemmKernel kernel = device_.gemm_kernel;
  if (kernel.tile == 0 && !low_precision) kernel.overhead_depth = kernel.weight_gradient_depth;
  return multiply(shape, output_bytes, low_precision, kernel);
}

FlopsPerSecond product_peak(const Device& device, const Training& training) {
  const bool in_4_bits = training.precision == Precision::kFp8 && training.fp8_recipe == Fp8Recipe::kNvfp4 &&
                         device.peak_fp4 > FlopsPerSecond(0);
  return in_4_bits ? device.peak_fp4 : device.peak_of(training.precision);
}

FlopsPerSecond ComputeModel::peak_of(Precision precision) const {
  return precision == Precision::kFp8 && in_4_bits_ ? device_.peak_fp4 : device_.peak_of(precision);
}

bool ComputeModel::takes_one_layout_in_8_bits() const {
  return device_.generation == GpuGeneration::kHopper || device_.generation == GpuGeneration::kAda;
}

Seconds ComputeModel::multiply(const GemmShape& shape, double output_bytes, bool low_precision,
                               const GemmKernel& kernel) const {
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0 || shape.batch <= 0) return Seconds(0);
  const Precision precision = low_precision ? precision_ : wide_precision();
  const bool in_8_bits = precision == Precision::kFp8;
  const GemmKernel used = in_precision(kernel, precision);
  const bool in_4_bits = in_8_bits && in_4_bits_ && device_.gemm_efficiency_fp4 > 0.0;
  const double reached = in_4_bits ? device_.gemm_efficiency_fp4 : device_.gemm_efficiency_of(precision);
  const double share = reached * (in_8_bits ? scaled_share_ : 1.0) * clock_;
  const FlopsPerSecond per_multiprocessor = peak_of(precision) * (share / device_.multiprocessors);
  const GemmWork work = work_of_kernel(used, device_.multiprocessors, precision, shape, output_bytes);
  const Seconds multiplying = work.busy / per_multiprocessor;
  const Seconds streaming = work.moved / (device_.memory_bandwidth * used.memory_efficiency);
  const Seconds busy = used.overlapped ? std::max(multiplying, streaming) : multiplying + streaming;
  return device_.kernel_launch + busy;
}

Seconds ComputeModel::memory_bound(Bytes moved, int kernels) const {
  return moved / (device_.memory_bandwidth * device_.memory_efficiency) +
         device_.kernel_launch * static_cast<double>(kernels);
}

Seconds ComputeModel::adam_update(Bytes moved) const {
  if (device_.adam_efficiency <= 0.0) return memory_bound(moved, 1);
  return moved / (device_.memory_bandwidth * device_.adam_efficiency) + device_.kernel_launch;
}

// NVIDIA, "Accelerating Transformers with NVIDIA cuDNN 9" (2024), Table 1: a step of Llama 2 70B with LoRA on eight
// H200 speeds up by 1.15 / 1.11; according to this model, bf16 attention takes 18 % of its time.
constexpr double kFp8AttentionGain = 1.24;

Seconds ComputeModel::fused_attention(Flops flops, bool backward, bool low_precision) const {
  const double efficiency =
      (backward ? flash_.backward : flash_.forward) * clock_ * (low_precision ? kFp8AttentionGain : 1.0);
  const double work = backward ? kAttentionBackwardWork : 1.0;
  return flops * work / (device_.peak_of(wide_precision()) * efficiency);
}

double ComputeModel::share_from_memory(bool reads_fresh) const {
  return reads_fresh && device_.generation != GpuGeneration::kCpu ? kFreshShare : 1.0;
}

double ComputeModel::misalignment(const GemmShape& shape) const {
  const bool aligned = shape.n % kAlignedElements == 0 && shape.k % kAlignedElements == 0;
  return aligned || device_.generation == GpuGeneration::kCpu ? 1.0 : kMisalignedSlowdown;
}

namespace {

OperatorTimes modelled_times(const Operator& op, const ComputeModel& compute, const Training& training) {
  const double element = element_size(training.precision).value();
  const GemmShape& shape = op.shape;
  OperatorTimes times;
  switch (op.kind) {
    case OperatorKind::kLinear: {
      const double gradient_bytes =
          training.stack.fused_gradient_accumulation ? 2 * training.stack.gradient_bytes : element;
      const auto beside_product = [&compute](Bytes moved) {
        return moved > Bytes(0) ? compute.memory_bound(moved, 1) : Seconds(0);
      };
      const bool low = op.low_precision;
      const int more = op.cast_kernels / 2 + op.calls - 1;
      times.forward = compute.gemm(shape, element, low) + compute.memory_bound(op.forward_casts, more);
      times.input_gradient = compute.gemm({shape.m, shape.k, shape.n, shape.batch}, element, low) +
                             beside_product(op.input_gradient_bytes) + compute.memory_bound(op.backward_casts, more);
      times.weight_gradient = compute.weight_gradient({shape.k, shape.n, shape.m, shape.batch}, gradient_bytes, low) +
                              beside_product(op.weight_gradient_bytes) + compute.memory_bound(Bytes(0), op.calls - 1);
      if (op.widening_kernels > 0) {
        const Seconds widening = compute.memory_bound(op.widening, op.widening_kernels);
        times.forward += widening;
        times.input_gradient += widening;
      }
      if (op.transposed > Bytes(0) && compute.takes_one_layout_in_8_bits()) {
        times.input_gradient += compute.memory_bound(op.transposed, op.calls);
      }
      if (op.frozen) times.weight_gradient = Seconds(0);
      break;
    }
    case OperatorKind::kBatchedProduct: {
      const double slowdown = compute.misalignment(shape);
      times.forward = compute.gemm(shape, element) * slowdown;
      times.input_gradient = (compute.gemm({shape.m, shape.k, shape.n, shape.batch}, element) +
                              compute.gemm({shape.k, shape.n, shape.m, shape.batch}, element)) *
                             slowdown;
      break;
    }
    case OperatorKind::kFusedAttention:
      times.forward = compute.fused_attention(op.attention_flops * op.imbalance, false, op.low_precision) +
                      compute.memory_bound(Bytes(0), op.forward_kernels);
      times.input_gradient = compute.fused_attention(op.attention_flops * op.imbalance, true, op.low_precision) +
                             compute.memory_bound(Bytes(0), op.backward_kernels);
      break;
    case OperatorKind::kMemoryBound: {
      const double share = compute.share_from_memory(op.reads_fresh);
      times.forward = compute.memory_bound(op.forward_bytes * share, op.forward_kernels);
      const bool only_weight = op.input_gradient_bytes == Bytes(0);
      times.input_gradient =
          compute.memory_bound(op.input_gradient_bytes * share, only_weight ? 0 : op.backward_kernels);
      times.weight_gradient =
          compute.memory_bound(op.weight_gradient_bytes * share, only_weight ? op.backward_kernels : 0);
      break;
    }
  }
  if (op.still) times.input_gradient = times.weight_gradient = Seconds(0);
  return times;
}

}  // namespace

OperatorTimes operator_times(const Operator& op, const ComputeModel& compute, const Training& training) {
  OperatorTimes times = modelled_times(op, compute, training);
  const CostOverrides* laws = compute.laws();
  if (laws == nullptr || !laws->operator_time) return times;
  // Passes that an operator does not have always take zero time.
  const auto user_override = [&](std::string_view pass, Seconds& time) {
    if (time > Seconds(0)) time = laws->operator_time(op.name, pass, time);
  };
  user_override("forward", times.forward);
  user_override("input_gradient", times.input_gradient);
  user_override("weight_gradient", times.weight_gradient);
  return times;
}

}  // namespace flopcast
