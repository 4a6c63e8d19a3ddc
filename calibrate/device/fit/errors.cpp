#include "calibrate/device/fit/errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "model/error/error.hpp"

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

RelativeErrors relative_errors(const std::vector<FittedPoint>& points) {
  std::vector<double> fitted;
  std::vector<double> measured;
  for (const FittedPoint& point : points) {
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

}  // namespace flopcast
