#include "calibrate/device/fits.hpp"

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "base/text/error.hpp"

namespace flopcast {

double quantile_of(std::vector<double> values, double share) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const std::size_t below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (values[above] - values[below]) * (position - static_cast<double>(below));
}

double median_of(std::vector<double> values) {
  return quantile_of(std::move(values), 0.5);
}

RelativeErrors relative_errors(const std::vector<double>& fitted, const std::vector<double>& measured) {
  FLOPCAST_CHECK(fitted.size() == measured.size());
  std::vector<double> errors;
  for (std::size_t index = 0; index < fitted.size(); ++index) {
    errors.push_back(std::abs(fitted[index] / measured[index] - 1.0));
  }
  constexpr double kMost = 0.95;
  return {static_cast<int>(errors.size()), median_of(errors), quantile_of(errors, kMost), quantile_of(errors, 1.0)};
}

RelativeErrors relative_errors(const std::vector<ProfilePoint>& points) {
  std::vector<double> fitted;
  std::vector<double> measured;
  for (const ProfilePoint& point : points) {
    fitted.push_back(point.fitted_s);
    measured.push_back(point.measured_s);
  }
  return relative_errors(fitted, measured);
}

void refuse_fit(const std::string& what, const std::string& problem, const std::string& help) {
  throw ConfigError({what, problem, "", help});
}

std::string not_fitted(const ConfigError& refusal) {
  const Diagnostic& told = refusal.diagnostic();
  return fmt::format("not fitted: {}: {}{}{}", told.field, told.problem, told.help.empty() ? "" : "; ", told.help);
}

namespace {

Eigen::MatrixXd columns_of(const Eigen::MatrixXd& all, unsigned chosen) {
  Eigen::MatrixXd picked(all.rows(), all.cols());
  Eigen::Index count = 0;
  for (Eigen::Index column = 0; column < all.cols(); ++column) {
    if ((chosen >> column & 1U) != 0) picked.col(count++) = all.col(column);
  }
  picked.conservativeResize(Eigen::NoChange, count);
  return picked;
}

}  // namespace

std::vector<double> solve_non_negative(const std::vector<std::vector<double>>& rows, const std::vector<double>& right) {
  FLOPCAST_CHECK(!rows.empty() && rows.size() == right.size());
  constexpr std::size_t kMostUnknowns = 6;
  const std::size_t unknowns = rows.front().size();
  FLOPCAST_CHECK(unknowns >= 1 && unknowns <= kMostUnknowns);
  Eigen::MatrixXd matrix(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(unknowns));
  Eigen::VectorXd target(static_cast<Eigen::Index>(rows.size()));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    FLOPCAST_CHECK(rows[row].size() == unknowns);
    for (std::size_t column = 0; column < unknowns; ++column) {
      matrix(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(column)) = rows[row][column];
    }
    target(static_cast<Eigen::Index>(row)) = right[row];
  }
  Eigen::VectorXd scale = matrix.colwise().norm();
  for (double& length : scale) length = length > 0.0 ? length : 1.0;
  matrix = matrix * scale.cwiseInverse().asDiagonal();

  double least = target.squaredNorm();
  std::vector<double> best(unknowns, 0.0);
  for (unsigned chosen = 1; chosen < 1U << unknowns; ++chosen) {
    const Eigen::MatrixXd part = columns_of(matrix, chosen);
    const Eigen::VectorXd solution = part.colPivHouseholderQr().solve(target);
    if (!(solution.minCoeff() >= 0.0)) continue;
    const double residual = (part * solution - target).squaredNorm();
    if (!(residual < least)) continue;
    least = residual;
    Eigen::Index next = 0;
    for (std::size_t column = 0; column < unknowns; ++column) {
      const bool used = (chosen >> column & 1U) != 0;
      best[column] = used ? solution(next++) / scale(static_cast<Eigen::Index>(column)) : 0.0;
    }
  }
  return best;
}

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
