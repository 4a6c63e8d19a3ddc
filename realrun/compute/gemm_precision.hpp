#pragma once

#include <cstdint>

namespace flopcast::realrun {

/// How a GPU multiplies matrices. Sums have 32 bits, and so has everything between the products.
enum class GemmPrecision : std::uint8_t {
  kFp32,
  kTf32,  ///< factors rounded to 10 bits behind the point
  kBf16,  ///< factors rounded to bfloat16
};

}  // namespace flopcast::realrun
