#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

using __nv_fp8_storage_t = std::uint8_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

// To nearest, ties to even; overflow becomes the largest number, and NaN the one without a sign.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float value, __nv_saturation_t /*saturates*/,
                                                __nv_fp8_interpretation_t format) {
  if (std::isnan(value)) return 0x7f;
  const int digits = format == __NV_E5M2 ? 2 : 3;
  const int bias = format == __NV_E5M2 ? 15 : 7;
  const float size = std::fmin(std::fabs(value), format == __NV_E5M2 ? 57344.0F : 448.0F);
  const int exponent = size == 0.0F ? 1 - bias : std::max(std::ilogb(size), 1 - bias);
  // In units of the last place for that exponent; a carry gives the first number of the next.
  const auto places = static_cast<int>(std::nearbyint(std::ldexp(size, digits - exponent)));
  const int bits = ((exponent + bias - 1) << digits) + places;
  return static_cast<__nv_fp8_storage_t>(bits | (std::signbit(value) ? 0x80 : 0));
}
