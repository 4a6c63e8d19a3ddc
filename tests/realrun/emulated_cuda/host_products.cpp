#include "tests/realrun/emulated_cuda/host_products.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/text/error.hpp"
#include "realrun/network/kernels.hpp"

namespace flopcast::realrun::cuda {

namespace {

std::vector<float> values_of(const void* matrix, std::size_t count, bool bfloat16) {
  if (!bfloat16) return {static_cast<const float*>(matrix), static_cast<const float*>(matrix) + count};
  std::vector<float> values;
  const auto* rounded = static_cast<const std::uint16_t*>(matrix);
  for (std::size_t index = 0; index < count; ++index) {
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(rounded[index]) << 16U));
  }
  return values;
}

std::vector<float> values_of_float8(const void* matrix, std::size_t count, bool wide) {
  const int digits = wide ? 2 : 3;
  const int bias = wide ? 15 : 7;
  std::vector<float> values;
  for (std::size_t index = 0; index < count; ++index) {
    const int bits = static_cast<const std::uint8_t*>(matrix)[index];
    // At the largest exponent, e4m3 has numbers up to 448, e5m2 only infinity.
    if (bits % 128 > (wide ? 0x7c : 0x7e)) {
      values.push_back(std::nanf(""));
      continue;
    }
    const int exponent = bits % 128 >> digits;
    const int places = bits % (1 << digits) + (exponent == 0 ? 0 : 1 << digits);
    const float size = wide && bits % 128 == 0x7c
                           ? std::numeric_limits<float>::infinity()
                           : std::ldexp(static_cast<float>(places), std::max(exponent, 1) - bias - digits);
    values.push_back(bits >= 128 ? -size : size);
  }
  return values;
}

MatrixView<const float> view(const std::vector<float>& values, std::size_t rows, std::size_t columns, bool transposed) {
  if (!transposed) return {values.data(), rows, columns, columns};
  return {values.data(), columns, rows, rows, Transposed::kYes};
}

}  // namespace

void HostProducts::multiply(const Product& product, const void* a, const void* b, void* result, float factor) {
  FLOPCAST_CHECK(!product.narrow && product.factors != Factors::kFloat16);
  // Unaligned products would not run on tensor cores (cuBLAS, Tensor Core Usage).
  for (const void* matrix : {a, b, static_cast<const void*>(result)}) {
    constexpr std::uintptr_t kAlignment = 16;
    FLOPCAST_CHECK(reinterpret_cast<std::uintptr_t>(matrix) % kAlignment == 0);
  }
  const std::size_t m = product.m;
  const std::size_t n = product.n;
  const std::size_t k = product.k;
  const bool bfloat16 = product.factors == Factors::kBfloat16;
  if (product.factors == Factors::kFloat8) {
    FLOPCAST_CHECK(product.b_transposed && !product.a_transposed);
    FLOPCAST_CHECK(m % 16 == 0 && n % 16 == 0 && k % 16 == 0);
    for (const float* scale : {product.a_scale, product.b_scale}) factor *= scale == nullptr ? 1.0F : *scale;
    const std::vector<float> left = values_of_float8(a, m * k, product.a_wide);
    const std::vector<float> right = values_of_float8(b, k * n, false);
    return realrun::multiply(view(left, m, k, false), view(right, k, n, true), {static_cast<float*>(result), m, n, n},
                             factor, product.accumulate);
  }
  const std::vector<float> left = values_of(a, m * k, bfloat16);
  const std::vector<float> right = values_of(b, k * n, bfloat16);
  realrun::multiply(view(left, m, k, product.a_transposed), view(right, k, n, product.b_transposed),
                    {static_cast<float*>(result), m, n, n}, factor, product.accumulate);
}

}  // namespace flopcast::realrun::cuda
