#include "calibrate/device/fit/non_negative.hpp"

#include <Eigen/Dense>
#include <cstddef>
#include <limits>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Matrix columns_of(const Matrix& all, unsigned chosen) {
  Matrix picked(all.rows(), all.cols());
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
  Matrix matrix(static_cast<Eigen::Index>(rows.size()), static_cast<Eigen::Index>(unknowns));
  Vector target(static_cast<Eigen::Index>(rows.size()));
  for (std::size_t row = 0; row < rows.size(); ++row) {
    FLOPCAST_CHECK(rows[row].size() == unknowns);
    for (std::size_t column = 0; column < unknowns; ++column) {
      matrix(static_cast<Eigen::Index>(row), static_cast<Eigen::Index>(column)) = rows[row][column];
    }
    target(static_cast<Eigen::Index>(row)) = right[row];
  }
  Vector scale = matrix.colwise().norm();
  for (double& length : scale) length = length > 0.0 ? length : 1.0;
  matrix = matrix * scale.cwiseInverse().asDiagonal();

  double least = target.squaredNorm();
  std::vector<double> best(unknowns, 0.0);
  for (unsigned chosen = 1; chosen < 1U << unknowns; ++chosen) {
    const Matrix part = columns_of(matrix, chosen);
    const Vector solution = part.colPivHouseholderQr().solve(target);
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

}  // namespace flopcast
