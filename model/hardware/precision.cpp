#include "model/hardware/precision.hpp"

#include <cstddef>

namespace flopcast {

const std::vector<std::string>& precision_names() {
  static const std::vector<std::string> names = {"fp32", "tf32", "fp16", "bf16", "fp8"};
  return names;
}

std::string_view name_of(Precision precision) {
  return precision_names()[static_cast<std::size_t>(precision)];
}

Bytes element_size(Precision precision) {
  return Bytes(precision == Precision::kFp32 || precision == Precision::kTf32 ? 4.0 : 2.0);
}

}  // namespace flopcast
