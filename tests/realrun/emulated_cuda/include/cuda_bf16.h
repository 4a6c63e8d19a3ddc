#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;
};

// For finite numbers, to nearest, ties to even.
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}
