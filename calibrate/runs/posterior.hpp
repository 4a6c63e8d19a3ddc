#pragma once

#include <cstddef>
#include <vector>

namespace flopcast {

/// What rows of measurements tell of a few unknowns: normal, about `at`.
struct Posterior {
  std::vector<double> at;
  std::vector<double> covariance;  ///< row by row, as wide as `at`
  std::vector<double> weights;     ///< of the rows: what an outlier counts
  double noise = 0.0;              ///< of a row whose distance is 1, one standard deviation

  double spread(std::size_t unknown) const;
  /// The covariance times a vector.
  std::vector<double> times(const std::vector<double>& slopes) const;
  /// One standard deviation of slopes · unknowns.
  double spread_along(const std::vector<double>& slopes) const;
};

/// Rows left ≈ slopes · unknowns, each off by distance · noise.
struct RobustRows {
  std::vector<std::vector<double>> slopes;  ///< by row
  std::vector<double> left;
  std::vector<double> distances;
  std::vector<double> prior_spreads;  ///< of the unknowns about 0
  double usual_noise = 0.0;
  double prior_rows = 0.0;  ///< residuals of the usual noise that it counts as
};

/// Gaussian priors, and rows of Student's t with four degrees of freedom, by weighing them anew (Lange, Little &
/// Taylor, Robust statistical modeling using the t distribution, 1989).
Posterior robust_posterior(const RobustRows& rows);

double dot_product(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace flopcast
