#include "reports/series/series_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/error/error.hpp"

namespace flopcast {

namespace {

constexpr double kMostMarks = 8.0;

double round_step(double range) {
  const double power = std::pow(10.0, std::floor(std::log10(range / kMostMarks)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * power * kMostMarks >= range) return factor * power;
  }
  return 10.0 * power;
}

}  // namespace

AxisScale::AxisScale(const std::vector<double>& values, bool logarithmic) : logarithmic_(logarithmic) {
  if (values.empty()) return;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (logarithmic) {
    FLOPCAST_CHECK(*least > 0.0);
    low_ = std::floor(std::log10(*least));
    high_ = std::max(low_ + 1.0, std::ceil(std::log10(*most)));
    step_ = std::max(1.0, std::ceil((high_ - low_) / kMostMarks));
    return;
  }
  const double range = *most > *least ? *most - *least : std::max(1.0, std::abs(*most));
  step_ = round_step(range);
  low_ = std::floor(*least / step_) * step_;
  high_ = std::max(low_ + step_, std::ceil(*most / step_) * step_);
}

double AxisScale::position(double value) const {
  return ((logarithmic_ ? std::log10(value) : value) - low_) / (high_ - low_);
}

std::vector<AxisMark> AxisScale::marks() const {
  std::vector<AxisMark> marks;
  const int count = static_cast<int>(std::floor((high_ - low_) / step_ + 1e-9));
  for (int index = 0; index <= count; ++index) {
    const double value = low_ + index * step_;
    marks.push_back({(value - low_) / (high_ - low_),
                     logarithmic_ ? fmt::format("1e{}", static_cast<int>(value)) : fmt::format("{:.6g}", value)});
  }
  return marks;
}

}  // namespace flopcast
