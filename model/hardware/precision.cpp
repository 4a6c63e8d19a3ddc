#include "model/hardware/precision.hpp"

namespace flopcast {

Bytes element_size(Precision precision) {
  return Bytes(precision == Precision::kFp32 || precision == Precision::kTf32 ? 4.0 : 2.0);
}

}  // namespace flopcast
