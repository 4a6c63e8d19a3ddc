#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace flopcast {

/// Random multiples of a time with mean 1, the same for a seed on every machine: std::mt19937_64, whose output the
/// standard fixes, picks from a table that is computed with nothing but the operations that IEEE 754 fixes
/// (std::normal_distribution and the C library's exp and log differ between machines).
///
/// Lognormal with a standard deviation of `deviation`: exp(s·z - s²/2), s² = ln(1 + deviation²), z standard normal;
/// never negative. Cut at 4 standard deviations of z: the table holds the 16,384 equally likely quantiles, scaled
/// to a mean of exactly 1.
class RandomFactors {
 public:
  /// A deviation of 0 gives 1 throughout.
  RandomFactors(double deviation, std::uint64_t seed);

  double next();
  /// True with the given probability.
  bool chance(double probability);

 private:
  std::mt19937_64 generator_;
  std::vector<double> quantiles_;  // empty without deviation
  std::uint64_t bits_ = 0;
  int picks_left_ = 0;  // in bits_
};

/// The standard normal distribution's inverse, for 0 < probability < 1; relative error about 1e-15 (Wichura, Algorithm
/// AS 241, Applied Statistics 37(3), 1988, PPND16).
double normal_quantile(double probability);

}  // namespace flopcast
