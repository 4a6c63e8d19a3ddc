#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/enum_names.hpp"
#include "model/units/quantity.hpp"

namespace flopcast {

/// The number format of matrix multiplications.
enum class Precision { kFp32, kTf32, kFp16, kBf16, kFp8 };
template <>
struct EnumNames<Precision> {
  static constexpr std::string_view kNames[] = {"fp32", "tf32", "fp16", "bf16", "fp8"};
};

inline constexpr int kPrecisionCount = 5;
/// Beside them in a device's figures: what recipe nvfp4 of fp8 training multiplies in.
inline constexpr std::string_view kFp4 = "fp4";

/// Bytes of a weight or activation element: 4 for fp32 and tf32, 2 for fp16 and bf16. fp8 keeps weights and activations
/// in two bytes and casts per GEMM, as Transformer Engine does.
inline Bytes element_size(Precision precision) {
  return Bytes(precision == Precision::kFp32 || precision == Precision::kTf32 ? 4.0 : 2.0);
}

}  // namespace flopcast
