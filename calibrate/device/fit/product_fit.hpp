#pragma once

#include <vector>

namespace flopcast {

/// One sample of a product form: what its time may depend on, each above zero.
struct ProductRow {
  std::vector<double> factors;
  double measured = 0.0;
};

/// log t as a quadratic in the logarithms of the factors: powers of each, whose exponents may drift with size, as
/// caches and occupancy make them. For kernels whose time is no sum of parts, such as softmax over rows of changing
/// length. Left out: anything outside the measured range, where a quadratic means nothing.
class ProductFit {
 public:
  /// Least squares of log residuals, robust by Huber's weights. At least as many rows as coefficients, all factors and
  /// times finite and above zero (ConfigError).
  explicit ProductFit(const std::vector<ProductRow>& rows);

  double time(const std::vector<double>& factors) const;

 private:
  std::vector<double> coefficients_;
};

}  // namespace flopcast
