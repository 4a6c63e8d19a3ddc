#include "sim/variation/random_factors.hpp"

#include <cmath>
#include <cstddef>

namespace flopcast {

namespace {

constexpr int kPickBits = 14;
constexpr std::size_t kQuantiles = std::size_t{1} << kPickBits;
constexpr int kPicksPerNumber = 4;
constexpr int kBitsPerPick = 16;
constexpr double kLn2 = 0.693147180559945309417;

template <std::size_t kCount>
double polynomial(const double (&coefficients)[kCount], double x) {
  double value = 0.0;
  for (std::size_t power = kCount; power-- > 0;) value = value * x + coefficients[power];
  return value;
}

// ln x = k ln 2 + 2 artanh((m - 1)/(m + 1)) with x = m 2^k and m around 1.
double natural_logarithm(double x) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr int kLastPower = 25;
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);
  if (mantissa < kSqrtHalf) {
    mantissa *= 2.0;
    --exponent;
  }
  const double ratio = (mantissa - 1.0) / (mantissa + 1.0);
  const double square = ratio * ratio;
  double series = 0.0;
  for (int power = kLastPower; power >= 1; power -= 2) series = series * square + 1.0 / power;
  return exponent * kLn2 + 2.0 * ratio * series;
}

// e^x = 2^k e^r with |r| at most ln 2 / 2.
double exponential(double x) {
  constexpr int kTerms = 16;
  const double whole = std::floor(x / kLn2 + 0.5);
  const double rest = x - whole * kLn2;
  double series = 1.0;
  for (int term = kTerms; term >= 1; --term) series = 1.0 + series * rest / term;
  return std::ldexp(series, static_cast<int>(whole));
}

}  // namespace

// The coefficients are those of the publication.
double normal_quantile(double probability) {
  static constexpr double kCentral[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                        1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                        3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double kCentralBelow[] = {1.0,
                                             4.2313330701600911252e+1,
                                             6.8718700749205790830e+2,
                                             5.3941960214247511077e+3,
                                             2.1213794301586595867e+4,
                                             3.9307895800092710610e+4,
                                             2.8729085735721942674e+4,
                                             5.2264952788528545610e+3};
  static constexpr double kMiddle[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                       3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double kMiddleBelow[] = {1.0,
                                            2.05319162663775882187e0,
                                            1.67638483018380384940e0,
                                            6.89767334985100004550e-1,
                                            1.48103976427480074590e-1,
                                            1.51986665636164571966e-2,
                                            5.47593808499534494600e-4,
                                            1.05075007164441684324e-9};
  static constexpr double kFar[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                    2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                    2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double kFarBelow[] = {1.0,
                                         5.99832206555887937690e-1,
                                         1.36929880922735805310e-1,
                                         1.48753612908506148525e-2,
                                         7.86869131145613259100e-4,
                                         1.84631831751005468180e-5,
                                         1.42151175831644588870e-7,
                                         2.04426310338993978564e-15};
  constexpr double kCentralHalfWidth = 0.425;
  constexpr double kCentralShift = 0.180625;
  constexpr double kMiddleEnd = 5.0;
  constexpr double kMiddleShift = 1.6;
  const double offset = probability - 0.5;
  if (std::fabs(offset) <= kCentralHalfWidth) {
    const double r = kCentralShift - offset * offset;
    return offset * polynomial(kCentral, r) / polynomial(kCentralBelow, r);
  }
  const double tail = offset < 0.0 ? probability : 1.0 - probability;
  const double root = std::sqrt(-natural_logarithm(tail));
  const double quantile = root <= kMiddleEnd
                              ? polynomial(kMiddle, root - kMiddleShift) / polynomial(kMiddleBelow, root - kMiddleShift)
                              : polynomial(kFar, root - kMiddleEnd) / polynomial(kFarBelow, root - kMiddleEnd);
  return offset < 0.0 ? -quantile : quantile;
}

RandomFactors::RandomFactors(double deviation, std::uint64_t seed) : generator_(seed) {
  if (deviation == 0.0) return;
  const double variance = natural_logarithm(1.0 + deviation * deviation);
  const double s = std::sqrt(variance);
  double sum = 0.0;
  quantiles_.reserve(kQuantiles);
  for (std::size_t index = 0; index < kQuantiles; ++index) {
    const double probability = (static_cast<double>(index) + 0.5) / static_cast<double>(kQuantiles);
    quantiles_.push_back(exponential(s * normal_quantile(probability) - variance / 2.0));
    sum += quantiles_.back();
  }
  const double mean = sum / static_cast<double>(kQuantiles);
  for (double& quantile : quantiles_) quantile /= mean;
}

double RandomFactors::next() {
  if (quantiles_.empty()) return 1.0;
  if (picks_left_ == 0) {
    bits_ = generator_();
    picks_left_ = kPicksPerNumber;
  }
  --picks_left_;
  const double factor = quantiles_[bits_ & (kQuantiles - 1)];
  bits_ >>= kBitsPerPick;
  return factor;
}

bool RandomFactors::chance(double probability) {
  constexpr double kTwoTo53 = 9007199254740992.0;
  constexpr int kShift = 11;
  return static_cast<double>(generator_() >> kShift) < probability * kTwoTo53;
}

}  // namespace flopcast
