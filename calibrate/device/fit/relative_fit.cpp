#include "calibrate/device/fit/relative_fit.hpp"

#include <cmath>
#include <cstddef>
#include <numeric>

#include "calibrate/device/fit/non_negative.hpp"
#include "model/error/error.hpp"

namespace flopcast {

namespace {

double residual_of(const FitRow& row, const std::vector<double>& unknowns) {
  return std::inner_product(row.terms.begin(), row.terms.end(), unknowns.begin(), 0.0) / row.measured - 1.0;
}

}  // namespace

double huber_loss(double residual, double threshold) {
  const double size = std::abs(residual);
  return size <= threshold ? 0.5 * size * size : threshold * (size - 0.5 * threshold);
}

RelativeFit fit_relative(const std::vector<FitRow>& rows, double threshold) {
  constexpr int kMostRounds = 100;
  constexpr double kSettled = 1e-10;
  std::vector<double> weights(rows.size(), 1.0);
  RelativeFit best;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<std::vector<double>> scaled;
    std::vector<double> right;
    for (std::size_t index = 0; index < rows.size(); ++index) {
      FLOPCAST_CHECK(rows[index].measured > 0.0);
      std::vector<double> terms = rows[index].terms;
      for (double& term : terms) term *= weights[index] / rows[index].measured;
      scaled.push_back(std::move(terms));
      right.push_back(weights[index]);
    }
    RelativeFit fit;
    fit.unknowns = solve_non_negative(scaled, right);
    for (std::size_t index = 0; index < rows.size(); ++index) {
      const double residual = residual_of(rows[index], fit.unknowns);
      fit.loss += huber_loss(residual, threshold);
      // Least squares multiplies by the weight twice.
      weights[index] = std::abs(residual) <= threshold ? 1.0 : std::sqrt(threshold / std::abs(residual));
    }
    const bool settled = round > 0 && !(fit.loss < best.loss * (1.0 - kSettled));
    if (round == 0 || fit.loss < best.loss) best = std::move(fit);
    if (settled) break;
  }
  return best;
}

}  // namespace flopcast
