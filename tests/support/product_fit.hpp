#pragma once

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "calibrate/device/fits.hpp"

namespace flopcast {

/// One sample of a product form: the factors that its time may depend on, each above zero.
struct ProductRow {
  std::vector<double> factors;
  double measured = 0.0;
};

/// An alternative to the form that profiles use, for comparison: log t as a quadratic in the logarithms of the factors,
/// that is, powers whose exponents may drift with size because of caches and occupancy. For kernels whose time is not a
/// sum of parts, such as softmax over rows of varying length. Not modelled: anything outside the measured range, where
/// a quadratic is meaningless.
class ProductFit {
 public:
  /// Least squares of log residuals, robust through Huber's weights. Needs at least as many rows as coefficients, and
  /// finite factors and times above zero (ConfigError).
  explicit ProductFit(const std::vector<ProductRow>& rows);

  double time(const std::vector<double>& factors) const;

 private:
  std::vector<double> coefficients_;
};

// 1, the logarithms, and their pairwise products.
inline std::vector<double> product_terms(const std::vector<double>& factors) {
  std::vector<double> terms = {1.0};
  for (std::size_t i = 0; i < factors.size(); ++i) terms.push_back(std::log(factors[i]));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) terms.push_back(terms[i + 1] * terms[j + 1]);
  }
  return terms;
}

inline bool is_positive_factor(double value) {
  return std::isfinite(value) && value > 0.0;
}

inline void check_product_rows(const std::vector<ProductRow>& rows) {
  for (const ProductRow& row : rows) {
    const bool good =
        is_positive_factor(row.measured) && std::all_of(row.factors.begin(), row.factors.end(), is_positive_factor);
    if (!good) refuse_fit("a product form", "contains figures that are not above zero", "leave out such rows");
  }
  const std::size_t unknowns = rows.empty() ? 1 : product_terms(rows.front().factors).size();
  if (rows.size() < unknowns) {
    refuse_fit("a product form", fmt::format("{} rows are too few", rows.size()),
               fmt::format("measure at least {}", unknowns));
  }
}

inline ProductFit::ProductFit(const std::vector<ProductRow>& rows) {
  check_product_rows(rows);
  const auto count = static_cast<Eigen::Index>(rows.size());
  const auto unknowns = static_cast<Eigen::Index>(product_terms(rows.front().factors).size());
  Eigen::MatrixXd terms(count, unknowns);
  Eigen::VectorXd logs(count);
  for (Eigen::Index row = 0; row < count; ++row) {
    const std::vector<double> of_row = product_terms(rows[static_cast<std::size_t>(row)].factors);
    for (Eigen::Index column = 0; column < unknowns; ++column) {
      terms(row, column) = of_row[static_cast<std::size_t>(column)];
    }
    logs(row) = std::log(rows[static_cast<std::size_t>(row)].measured);
  }
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(count);
  Eigen::VectorXd solution;
  constexpr int kRounds = 20;
  for (int round = 0; round < kRounds; ++round) {
    const Eigen::VectorXd roots = weights.cwiseSqrt();
    // Constant factors lead to linearly dependent columns: the smallest solution is used.
    solution = (roots.asDiagonal() * terms).completeOrthogonalDecomposition().solve(roots.asDiagonal() * logs);
    const Eigen::VectorXd residuals = (terms * solution - logs).cwiseAbs();
    weights = residuals.unaryExpr(
        [](double residual) { return residual <= kHuberThreshold ? 1.0 : kHuberThreshold / residual; });
  }
  coefficients_.assign(solution.data(), solution.data() + solution.size());
}

inline double ProductFit::time(const std::vector<double>& factors) const {
  const std::vector<double> terms = product_terms(factors);
  double sum = 0.0;
  for (std::size_t index = 0; index < terms.size(); ++index) sum += terms[index] * coefficients_[index];
  return std::exp(sum);
}

}  // namespace flopcast
