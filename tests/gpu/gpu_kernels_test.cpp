// The kernels on a GPU, each compared with the host's on random inputs, and trainings of the loss matrix on virtual
// devices. Skipped without a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/gpu.hpp"
#include "realrun/transport/threads/thread_transport.hpp"
#include "tests/realrun/cuda/kernel_cases.hpp"
#include "tests/realrun/loss_matrix.hpp"

namespace flopcast::realrun {
namespace {

// Kernels and steps here take milliseconds: a GPU that needs longer hangs.
constexpr std::chrono::seconds kPatience{10};

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      cuda::count_gpus();
    } catch (const EnvironmentError& error) {
      const std::string reason = error.what();
      GTEST_SKIP() << reason.substr(0, reason.find('\n'));
    }
  }

  // `least`: see KernelsUnderTest::least_product_error.
  static void check(void (*check_kernel)(const KernelsUnderTest&), GemmPrecision precision, double tolerance,
                    double least = 0) {
    const auto gpu = cuda::share_gpu(0, 1, cuda::Partition::kWhole, precision, kPatience);
    const auto rank = gpu->make_rank(0);
    check_kernel({.device = rank->device(),
                  .kernels = rank->kernels(),
                  .tolerance = 1e-5,
                  .product_tolerance = tolerance,
                  .largest = 1000,
                  .least_product_error = least,
                  .stream = rank->stream(Queue::kCompute)});
  }
};

TEST_F(OnGpu, Products) {
  check(check_products, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, ProductsInTf32) {
  check(check_products, GemmPrecision::kTf32, 2e-3);
}

TEST_F(OnGpu, ProductsInBf16) {
  check(check_products, GemmPrecision::kBf16, 1e-2, 1e-5);
}

// Falls back to bf16 below compute capability 8.9.
TEST_F(OnGpu, ProductsIn8Bits) {
  const bool has_fp8 = cuda::precision_on(cuda::open_gpu(0), GemmPrecision::kFp8) == GemmPrecision::kFp8;
  check(has_fp8 ? check_float8_products : check_products, GemmPrecision::kFp8, 1e-2);
}

// Conversion to 8 bits needs no tensor cores that support them.
TEST_F(OnGpu, NumbersOf8BitsAreThoseOfTheSpecification) {
  check(check_float8_numbers, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, Elementwise) {
  check(check_elementwise, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, RowSums) {
  check(check_row_sums, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, LayerNorm) {
  check(check_layer_norm, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, RmsNorm) {
  check(check_rms_norm, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, GatedSilu) {
  check(check_gated_silu, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, Heads) {
  check(check_heads, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, Attention) {
  check(check_attention, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, AttentionOnTensorCores) {
  check(check_attention, GemmPrecision::kBf16, 1e-2, 1e-5);
}

TEST_F(OnGpu, Embedding) {
  check(check_embedding, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, CrossEntropy) {
  check(check_cross_entropy, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, Draws) {
  check(check_draws, GemmPrecision::kFp32, 1e-5);
}

TEST_F(OnGpu, Optimizers) {
  check(check_optimizers, GemmPrecision::kFp32, 1e-5);
}

std::vector<RankResult> on_virtual_gpus(const TrainingPlan& plan, cuda::Partition partition, GemmPrecision precision) {
  std::vector<RankResult> results(static_cast<std::size_t>(plan.ranks()));
  const auto gpu = cuda::share_gpu(0, plan.ranks(), partition, precision, kPatience);
  std::vector<std::unique_ptr<cuda::GpuRank>> ranks(results.size());
  run_threads(
      plan.ranks(), {},
      [&](ThreadHub& hub, int rank) {
        auto& machine = ranks[static_cast<std::size_t>(rank)];
        machine = gpu->make_rank(rank);
        return std::make_unique<ThreadTransport>(hub, rank, machine->queues());
      },
      [&](RankTransport& transport) {
        const auto rank = static_cast<std::size_t>(transport.rank());
        train_rank(plan, {ranks[rank]->device(), ranks[rank]->kernels()}, transport, results[rank]);
      });
  return results;
}

void expect_losses(const TrainingPlan& plan, const std::string& what, GemmPrecision precision, double tolerance) {
  const std::vector<double> expected = mean_losses(train_on_threads(plan, {}));
  const std::vector<double> actual = mean_losses(on_virtual_gpus(plan, cuda::Partition::kStreams, precision));
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    record_error(std::abs(actual[step] / expected[step] - 1), tolerance);
    EXPECT_TRUE(std::abs(actual[step] - expected[step]) <= tolerance * expected[step])
        << what << ", step " << step << ": " << actual[step] << " for " << expected[step];
  }
}

TEST_F(OnGpu, LossesInTf32) {
  const MatrixCase one = schedules_by_layouts().front();
  expect_losses(one.plan, one.name, GemmPrecision::kTf32, 2e-3);
}

// The matrix's usual sizes are not multiples of 16: uses wider heads and longer sequences.
TEST_F(OnGpu, LossesIn8Bits) {
  const bool has_fp8 = cuda::precision_on(cuda::open_gpu(0), GemmPrecision::kFp8) == GemmPrecision::kFp8;
  if (!has_fp8) GTEST_SKIP() << "this GPU does not support 8-bit products";
  MatrixCase one = schedules_by_layouts().front();
  one.plan.network.hidden *= 16;
  one.plan.network.ffn *= 16;
  one.plan.network.sequence = 16;
  one.plan.network.position_rows = 16;
  expect_losses(one.plan, one.name, GemmPrecision::kFp8, 5e-2);
}

TEST_F(OnGpu, PartsOfTheirOwnTrainAlike) {
  const MatrixCase one = schedules_by_layouts().at(9);
  const std::vector<double> expected = mean_losses(train_on_threads(one.plan, {}));
  const std::vector<double> actual =
      mean_losses(on_virtual_gpus(one.plan, cuda::Partition::kGreen, GemmPrecision::kFp32));
  for (std::size_t step = 0; step < expected.size(); ++step) EXPECT_NEAR(actual[step], expected[step], 1e-3);
}

// Last, because it takes longest.
TEST_F(OnGpu, LossesOfTheMatrixInFp32) {
  for (const MatrixCase& one : schedules_by_layouts()) {
    expect_losses(one.plan, one.name, GemmPrecision::kFp32, 1e-4);
  }
}

TEST_F(OnGpu, LossesOfTheMatrixInBf16) {
  constexpr std::size_t kEvery = 4;
  const std::vector<MatrixCase> all = schedules_by_layouts();
  for (std::size_t index = 0; index < all.size(); index += kEvery) {
    expect_losses(all[index].plan, all[index].name, GemmPrecision::kBf16, 2e-2);
  }
}

}  // namespace
}  // namespace flopcast::realrun
