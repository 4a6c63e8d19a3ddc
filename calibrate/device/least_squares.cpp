#include "calibrate/device/fits.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <Eigen/Cholesky>
#include <Eigen/Dense>

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

// Reduces the rows to as many as there are numbers in one row, with the same sum of squares: R of the QR decomposition
// of the rows and their right sides.
void compress(Eigen::MatrixXd& matrix, Eigen::VectorXd& target) {
  const Eigen::Index width = matrix.cols() + 1;
  if (matrix.rows() <= width) return;
  Eigen::MatrixXd all(matrix.rows(), width);
  all << matrix, target;
  const Eigen::HouseholderQR<Eigen::MatrixXd> factors(all);
  const Eigen::MatrixXd upper = factors.matrixQR().topRows(width).triangularView<Eigen::Upper>();
  matrix = upper.leftCols(width - 1);
  target = upper.col(width - 1);
}

Eigen::VectorXd solve_non_negative(Eigen::MatrixXd matrix, Eigen::VectorXd target) {
  const Eigen::Index unknowns = matrix.cols();
  Eigen::VectorXd scale = matrix.colwise().norm();
  for (double& length : scale) length = length > 0.0 ? length : 1.0;
  matrix = matrix * scale.cwiseInverse().asDiagonal();
  compress(matrix, target);

  // If the unconstrained solution has no negative unknown, it is the best one. A term that is zero everywhere has no
  // solution.
  const Eigen::VectorXd free = matrix.colPivHouseholderQr().solve(target);
  if (free.allFinite() && free.minCoeff() >= 0.0) return free.cwiseQuotient(scale);
  double least = target.squaredNorm();
  Eigen::VectorXd best = Eigen::VectorXd::Zero(unknowns);
  for (unsigned chosen = 1; chosen + 1 < 1U << unknowns; ++chosen) {
    std::vector<Eigen::Index> used;
    for (Eigen::Index column = 0; column < unknowns; ++column) {
      if ((chosen >> column & 1U) != 0) used.push_back(column);
    }
    const Eigen::MatrixXd part = matrix(Eigen::all, used);
    const Eigen::VectorXd solution = part.colPivHouseholderQr().solve(target);
    if (!solution.allFinite() || !(solution.minCoeff() >= 0.0)) continue;
    const double residual = (part * solution - target).squaredNorm();
    if (!(residual < least)) continue;
    least = residual;
    best.setZero();
    best(used) = solution.cwiseQuotient(scale(used));
  }
  return best;
}

Eigen::MatrixXd matrix_of(const std::vector<std::vector<double>>& rows) {
  constexpr std::size_t kMostUnknowns = 6;
  FLOPCAST_CHECK(!rows.empty());
  const std::size_t unknowns = rows.front().size();
  FLOPCAST_CHECK(unknowns >= 1 && unknowns <= kMostUnknowns);
  Eigen::MatrixXd matrix(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(unknowns));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    FLOPCAST_CHECK(rows[row].size() == unknowns);
    for (std::size_t column = 0; column < unknowns; ++column) {
      matrix(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(column)) = rows[row][column];
    }
  }
  return matrix;
}

}  // namespace

std::vector<double> solve_non_negative(const std::vector<std::vector<double>>& rows, const std::vector<double>& right) {
  FLOPCAST_CHECK(rows.size() == right.size());
  const Eigen::VectorXd target =
      Eigen::Map<const Eigen::VectorXd>(right.data(), static_cast<Eigen::Index>(right.size()));
  const Eigen::VectorXd solution = solve_non_negative(matrix_of(rows), target);
  return {solution.begin(), solution.end()};
}

double huber_loss(double residual, double threshold) {
  const double size = std::abs(residual);
  return size <= threshold ? 0.5 * size * size : threshold * (size - 0.5 * threshold);
}

RelativeFit fit_relative(const std::vector<FitRow>& rows, double threshold) {
  constexpr int kMostRounds = 100;
  constexpr double kSettled = 1e-10;
  std::vector<std::vector<double>> terms;
  for (const FitRow& row : rows) {
    FLOPCAST_CHECK(row.measured > 0.0);
    terms.push_back(row.terms);
    for (double& term : terms.back()) term /= row.measured;
  }
  const Eigen::MatrixXd matrix = matrix_of(terms);
  Eigen::VectorXd weights = Eigen::VectorXd::Ones(matrix.rows());
  RelativeFit best;
  for (int round = 0; round < kMostRounds; ++round) {
    const Eigen::VectorXd solution = solve_non_negative(weights.asDiagonal() * matrix, weights);
    const Eigen::VectorXd residuals = (matrix * solution).array() - 1.0;
    RelativeFit fit;
    fit.unknowns.assign(solution.begin(), solution.end());
    for (Eigen::Index row = 0; row < residuals.size(); ++row) {
      fit.loss += huber_loss(residuals(row), threshold);
      const double size = std::abs(residuals(row));
      // Least squares applies the weight twice.
      weights(row) = size <= threshold ? 1.0 : std::sqrt(threshold / size);
    }
    const bool settled = round > 0 && !(fit.loss < best.loss * (1.0 - kSettled));
    if (round == 0 || fit.loss < best.loss) best = std::move(fit);
    if (settled) break;
  }
  return best;
}

namespace {

using Vector = Eigen::VectorXd;
using Matrix = Eigen::MatrixXd;

Eigen::Map<const Vector> vector_of(const std::vector<double>& values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}

}  // namespace

double dot_product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Posterior::spread(std::size_t unknown) const {
  return std::sqrt(covariance[unknown * at.size() + unknown]);
}

std::vector<double> Posterior::times(const std::vector<double>& slopes) const {
  std::vector<double> product(at.size());
  for (std::size_t row = 0; row < at.size(); ++row) {
    product[row] = std::inner_product(slopes.begin(), slopes.end(),
                                      covariance.begin() + static_cast<std::ptrdiff_t>(row * at.size()), 0.0);
  }
  return product;
}

double Posterior::spread_along(const std::vector<double>& slopes) const {
  return std::sqrt(std::max(0.0, dot_product(slopes, times(slopes))));
}

Posterior robust_posterior(const RobustRows& rows) {
  constexpr int kReweighings = 12;
  constexpr double kFreedom = 4.0;
  const auto count = static_cast<Eigen::Index>(rows.left.size());
  const auto unknowns = static_cast<Eigen::Index>(rows.prior_spreads.size());
  Matrix design(count, unknowns);
  for (Eigen::Index row = 0; row < count; ++row) {
    design.row(row) = vector_of(rows.slopes[static_cast<std::size_t>(row)]).transpose();
  }
  const auto left = vector_of(rows.left);
  const auto distances = vector_of(rows.distances);
  const Vector prior = vector_of(rows.prior_spreads).cwiseAbs2().cwiseInverse();
  Vector weights = Vector::Ones(count);
  Vector at;
  Matrix covariance;
  double noise = rows.usual_noise;
  for (int round = 0; round < kReweighings; ++round) {
    Vector precision(count);
    for (Eigen::Index row = 0; row < count; ++row) {
      const double scale = distances(row) * noise;
      precision(row) = weights(row) / (scale * scale);
    }
    Matrix information = design.transpose() * precision.asDiagonal() * design;
    information.diagonal() += prior;
    const Eigen::LDLT<Matrix> factors(information);
    at = factors.solve(design.transpose() * precision.cwiseProduct(left));
    covariance = factors.solve(Matrix::Identity(unknowns, unknowns));
    const Vector off = left - design * at;
    double squares = rows.prior_rows * rows.usual_noise * rows.usual_noise;
    for (Eigen::Index row = 0; row < count; ++row) {
      const double scaled = off(row) / distances(row);
      squares += weights(row) * scaled * scaled;
      const double standard = scaled / noise;
      weights(row) = (kFreedom + 1.0) / (kFreedom + standard * standard);
    }
    noise = std::sqrt(squares / (rows.prior_rows + static_cast<double>(count)));
  }
  Posterior posterior;
  posterior.at.assign(at.begin(), at.end());
  for (Eigen::Index row = 0; row < unknowns; ++row) {
    for (Eigen::Index column = 0; column < unknowns; ++column) posterior.covariance.push_back(covariance(row, column));
  }
  posterior.weights.assign(weights.begin(), weights.end());
  posterior.noise = noise;
  return posterior;
}

}  // namespace flopcast
