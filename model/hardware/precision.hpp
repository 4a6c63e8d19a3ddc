#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/units/quantity.hpp"

namespace flopcast {

/// The number format of matrix multiplications.
enum class Precision { kFp32, kTf32, kFp16, kBf16, kFp8 };

inline constexpr int kPrecisionCount = 5;

const std::vector<std::string>& precision_names();  ///< in the order of the enumerators
std::string_view name_of(Precision precision);
/// Bytes of a weight or activation element: 4 for fp32 and tf32, 2 for fp16 and bf16. fp8 keeps weights and activations
/// in two bytes and casts per GEMM, as Transformer Engine does.
Bytes element_size(Precision precision);

}  // namespace flopcast
