#include "model/workload/training.hpp"

namespace flopcast {

double optimizer_bytes_per_parameter(const Training& training) {
  const bool weights_are_fp32 = training.precision == Precision::kFp32 || training.precision == Precision::kTf32;
  const double weight_copy = weights_are_fp32 ? 0.0 : 4.0;
  const double moments = training.optimizer == Optimizer::kAdam ? 8.0 : 4.0;
  return weight_copy + moments;
}

}  // namespace flopcast
