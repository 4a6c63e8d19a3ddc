#include "calibrate/runs/fit_runs.hpp"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace flopcast {

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
