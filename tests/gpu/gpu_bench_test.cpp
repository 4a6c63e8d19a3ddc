// The basis of calibrate --cuda, on a GPU: products of every number format are correct, every sample of the set can be
// taken, and its time is plausible for a GPU. Skipped without a GPU.
#include <gtest/gtest.h>

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/compute/cuda/matrix_products.hpp"
#include "realrun/compute/cuda/runtime.hpp"
#include "realrun/measure/cuda/bench_kernels.hpp"
#include "realrun/measure/measure_gpu.hpp"

namespace flopcast::realrun {
namespace {

using cuda::Factors;

class BenchOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    try {
      gpu_ = open_measured_gpu();
    } catch (const EnvironmentError& error) {
      const std::string reason = error.what();
      GTEST_SKIP() << reason.substr(0, reason.find('\n'));
    }
  }
  std::unique_ptr<MeasuredGpu> gpu_;
};

// IEEE 754, and e4m3 of OCP's specification of 8-bit floats; normal numbers only.
double decoded(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int width = 1 + exponent_bits + mantissa_bits;
  const double mantissa = (bits & ((1U << mantissa_bits) - 1U)) / std::exp2(mantissa_bits);
  const auto exponent = static_cast<int>((bits >> mantissa_bits) & ((1U << exponent_bits) - 1U));
  const double value = (1.0 + mantissa) * std::exp2(exponent - ((1 << (exponent_bits - 1)) - 1));
  return ((bits >> (width - 1)) & 1U) != 0 ? -value : value;
}

double value_at(const std::vector<std::byte>& bytes, std::size_t index, Factors factors) {
  std::uint32_t bits = 0;
  const std::size_t size = size_of(factors);
  std::memcpy(&bits, bytes.data() + index * size, size);
  if ((bits & ~(1U << (8 * size - 1))) == 0) return 0.0;
  switch (factors) {
    case Factors::kFloat32:
      return decoded(bits, 8, 23);
    case Factors::kBfloat16:
      return decoded(bits, 8, 7);
    case Factors::kFloat16:
      return decoded(bits, 5, 10);
    case Factors::kFloat8:
      break;
  }
  return decoded(bits, 4, 3);
}

/// GPU memory filled with random numbers, and their values.
class RandomMatrix {
 public:
  RandomMatrix(std::size_t count, Factors factors, std::uint64_t seed, cudaStream_t stream)
      : bytes_(count * size_of(factors)), factors_(factors) {
    cuda::check(cudaMalloc(&address_, bytes_.size()), "cudaMalloc");
    cuda::fill_random(address_, bytes_.size(), factors, false, seed, stream);
    fetch(stream);
  }
  RandomMatrix(const RandomMatrix&) = delete;
  RandomMatrix& operator=(const RandomMatrix&) = delete;
  RandomMatrix(RandomMatrix&&) = delete;
  RandomMatrix& operator=(RandomMatrix&&) = delete;
  ~RandomMatrix() { cudaFree(address_); }

  void fetch(cudaStream_t stream) {
    cuda::check(cudaMemcpyAsync(bytes_.data(), address_, bytes_.size(), cudaMemcpyDeviceToHost, stream),
                "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  void* address() const { return address_; }
  double at(std::size_t index) const { return value_at(bytes_, index, factors_); }

 private:
  std::vector<std::byte> bytes_;
  Factors factors_;
  void* address_ = nullptr;
};

void check_product(const cuda::Product& product, cuda::MatrixProducts& products, cudaStream_t stream) {
  const bool wide = !product.narrow || product.factors == Factors::kFloat32;
  const Factors result_type = wide                                   ? Factors::kFloat32
                              : product.factors == Factors::kFloat16 ? Factors::kFloat16
                                                                     : Factors::kBfloat16;
  const RandomMatrix a(product.m * product.k, product.factors, 11, stream);
  const RandomMatrix b(product.k * product.n, product.factors, 1'000'003, stream);
  RandomMatrix result(product.m * product.n, result_type, 2'000'003, stream);
  std::vector<double> before;
  for (std::size_t index = 0; index < product.m * product.n; ++index) before.push_back(result.at(index));
  products.multiply(product, a.address(), b.address(), result.address(), 1.0F);
  result.fetch(stream);
  for (std::size_t row = 0; row < product.m; row += 7) {
    for (std::size_t column = 0; column < product.n; column += 5) {
      double sum = product.accumulate ? before[row * product.n + column] : 0.0;
      double size = 0.0;
      for (std::size_t depth = 0; depth < product.k; ++depth) {
        const double left = a.at(product.a_transposed ? depth * product.m + row : row * product.k + depth);
        const double right = b.at(product.b_transposed ? column * product.k + depth : depth * product.n + column);
        sum += left * right;
        size += std::abs(left * right);
      }
      // Tolerates the last bits of tf32 and bf16 results, and for fp8 the sums that tensor cores truncate.
      ASSERT_NEAR(result.at(row * product.n + column), sum, 1e-2 * size) << row << ", " << column;
    }
  }
}

TEST_F(BenchOnGpu, ProductsOfEveryFormatAndLayoutAreRight) {
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  {
    cuda::ProductSettings settings;
    settings.tf32 = true;
    const auto products = cuda::make_cublaslt_products(cuda::load_cublaslt(), stream, settings);
    constexpr std::size_t kM = 48;
    constexpr std::size_t kN = 80;
    constexpr std::size_t kK = 256;
    for (const Factors factors : {Factors::kBfloat16, Factors::kFloat16, Factors::kFloat32, Factors::kFloat8}) {
      const bool float8 = factors == Factors::kFloat8;
      constexpr int kFirstWithFp8 = 89;
      if (float8 && gpu_->facts().compute_capability < kFirstWithFp8) continue;
      SCOPED_TRACE(static_cast<int>(factors));
      check_product({.m = kM, .n = kN, .k = kK, .b_transposed = true, .factors = factors, .narrow = true}, *products,
                    stream);
      if (float8) continue;
      check_product({.m = kM, .n = kN, .k = kK, .factors = factors, .narrow = true}, *products, stream);
      check_product({.m = kM, .n = kN, .k = kK, .a_transposed = true, .accumulate = true, .factors = factors},
                    *products, stream);
    }
  }
  cudaStreamDestroy(stream);
}

// One sample of every kind, operator and type, small enough for all of them to take seconds.
TEST_F(BenchOnGpu, EverySampleCanBeTaken) {
  GpuSet set;
  set.quick = true;
  std::set<std::string> seen;
  for (const SampleKey& key : gpu_samples(set, gpu_->facts())) {
    const std::string kind = std::string(name_of(key.kind)) + key.op + key.dtype + (key.beside ? "beside" : "");
    if (!seen.insert(kind).second) continue;
    PreparedWork prepared = gpu_->prepare(key);
    ASSERT_NE(prepared.work, nullptr) << key.text() << ": " << prepared.refusal;
    const Sample sample = measure_work(
        key, true, [] { return 0.0; }, *prepared.work);
    const double seconds = sample.median();
    EXPECT_GT(seconds, 1e-7) << key.text();
    EXPECT_LT(seconds, 1.0) << key.text();
    constexpr double kFastestMemory = 2e13;
    constexpr double kFastestProducts = 2e16;
    if (is_memory_bound(key.kind)) {
      EXPECT_LT(*key.bytes / seconds, kFastestMemory) << key.text();
    }
    if (key.shape) {
      EXPECT_LT(2.0 * key.shape->m * key.shape->n * key.shape->k / seconds, kFastestProducts) << key.text();
    }
  }
  EXPECT_GT(seen.size(), 25u);
}

// Twice the channels copy faster, and an overlapped product is not faster than alone.
TEST_F(BenchOnGpu, ChannelsTakeMultiprocessors) {
  const auto median = [this](const SampleKey& key) {
    PreparedWork prepared = gpu_->prepare(key);
    if (prepared.work == nullptr) throw EnvironmentError(prepared.refusal);
    return measure_work(
               key, true, [] { return 0.0; }, *prepared.work)
        .median();
  };
  SampleKey copy;
  copy.kind = SampleKind::kChannelCopy;
  copy.bytes = 1 << 28;
  copy.channels = 2;
  const double two = median(copy);
  copy.channels = 8;
  EXPECT_LT(median(copy), 0.5 * two);
  SampleKey product;
  product.shape = SampleShape{4096, 4096, 4096};
  product.dtype = "bf16";
  const double alone = median(product);
  product.beside = SampleKind::kChannelCopy;
  product.channels = 24;
  EXPECT_GT(median(product), 0.97 * alone);
}

}  // namespace
}  // namespace flopcast::realrun
