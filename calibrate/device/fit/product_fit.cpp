#include "calibrate/device/fit/product_fit.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "calibrate/device/fit/errors.hpp"
#include "calibrate/device/fit/relative_fit.hpp"

namespace flopcast {

namespace {

// 1, the logarithms, and their products.
std::vector<double> terms_of(const std::vector<double>& factors) {
  std::vector<double> terms = {1.0};
  for (std::size_t i = 0; i < factors.size(); ++i) terms.push_back(std::log(factors[i]));
  for (std::size_t i = 0; i < factors.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) terms.push_back(terms[i + 1] * terms[j + 1]);
  }
  return terms;
}

bool is_positive(double value) {
  return std::isfinite(value) && value > 0.0;
}

void check(const std::vector<ProductRow>& rows) {
  for (const ProductRow& row : rows) {
    const bool good = is_positive(row.measured) && std::all_of(row.factors.begin(), row.factors.end(), is_positive);
    if (!good) refuse_fit("a product form", "holds figures that are not above zero", "leave such rows out");
  }
  const std::size_t unknowns = rows.empty() ? 1 : terms_of(rows.front().factors).size();
  if (rows.size() < unknowns) {
    refuse_fit("a product form", fmt::format("{} rows are too few", rows.size()),
               fmt::format("measure at least {}", unknowns));
  }
}

}  // namespace

ProductFit::ProductFit(const std::vector<ProductRow>& rows) {
  check(rows);
  const auto count = static_cast<Eigen::Index>(rows.size());
  const auto unknowns = static_cast<Eigen::Index>(terms_of(rows.front().factors).size());
  Eigen::MatrixXd terms(count, unknowns);
  Eigen::VectorXd logs(count);
  for (Eigen::Index row = 0; row < count; ++row) {
    const std::vector<double> of_row = terms_of(rows[static_cast<std::size_t>(row)].factors);
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
    // Factors that do not vary leave columns that depend on each other: the smallest solution is taken.
    solution = (roots.asDiagonal() * terms).completeOrthogonalDecomposition().solve(roots.asDiagonal() * logs);
    const Eigen::VectorXd residuals = (terms * solution - logs).cwiseAbs();
    weights = residuals.unaryExpr(
        [](double residual) { return residual <= kHuberThreshold ? 1.0 : kHuberThreshold / residual; });
  }
  coefficients_.assign(solution.data(), solution.data() + solution.size());
}

double ProductFit::time(const std::vector<double>& factors) const {
  const std::vector<double> terms = terms_of(factors);
  double sum = 0.0;
  for (std::size_t index = 0; index < terms.size(); ++index) sum += terms[index] * coefficients_[index];
  return std::exp(sum);
}

}  // namespace flopcast
