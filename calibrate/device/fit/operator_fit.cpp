#include "calibrate/device/fit/operator_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/device/fit/relative_fit.hpp"

namespace flopcast {

namespace {

using Points = std::vector<OperatorPoint>;

void check(const std::string& what, const Points& points) {
  std::set<double> amounts;
  for (const OperatorPoint& point : points) {
    if (!std::isfinite(point.seconds) || point.seconds <= 0.0 || !std::isfinite(point.amount) || point.amount <= 0.0) {
      refuse_fit(what, fmt::format("{} took {} s", point.label, point.seconds), "expected finite figures above zero");
    }
    amounts.insert(point.amount);
  }
  if (amounts.size() < kFewestAmounts) {
    refuse_fit(what, fmt::format("{} sizes are too few", amounts.size()),
               fmt::format("measure at least {}", kFewestAmounts));
  }
}

// Launch and seconds per amount. Amounts are scaled, so that both unknowns are of one magnitude.
std::vector<double> solve(const Points& points) {
  const double scale = std::max_element(points.begin(), points.end(), [](const auto& a, const auto& b) {
                         return a.amount < b.amount;
                       })->amount;
  std::vector<FitRow> rows;
  for (const OperatorPoint& point : points) rows.push_back({{1.0, point.amount / scale}, point.seconds});
  std::vector<double> unknowns = fit_relative(rows).unknowns;
  unknowns[1] /= scale;
  return unknowns;
}

double time_of(const std::vector<double>& unknowns, const OperatorPoint& point) {
  return unknowns[0] + unknowns[1] * point.amount;
}

RelativeErrors errors_left_out(const Points& points) {
  constexpr std::size_t kMost = 32;
  const std::size_t step = std::max<std::size_t>(1, points.size() / kMost);
  std::vector<double> fitted;
  std::vector<double> measured;
  for (std::size_t index = 0; index < points.size(); index += step) {
    Points others = points;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
    fitted.push_back(time_of(solve(others), points[index]));
    measured.push_back(points[index].seconds);
  }
  return relative_errors(fitted, measured);
}

}  // namespace

OperatorFit fit_operator(const std::string& what, const std::vector<OperatorPoint>& points) {
  check(what, points);
  const std::vector<double> unknowns = solve(points);
  if (unknowns[1] <= 0.0) {
    refuse_fit(what, "does not slow down with size", "measure sizes that differ more, larger than the caches");
  }
  OperatorFit fit;
  fit.launch = Seconds(unknowns[0]);
  fit.rate = 1.0 / unknowns[1];
  for (const OperatorPoint& point : points) {
    fit.points.push_back({point.label, point.amount, point.seconds, time_of(unknowns, point)});
  }
  fit.errors = relative_errors(fit.points);
  fit.left_out = errors_left_out(points);
  return fit;
}

}  // namespace flopcast
