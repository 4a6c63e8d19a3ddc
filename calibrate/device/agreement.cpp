#include "calibrate/device/agreement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "calibrate/device/fit/errors.hpp"
#include "model/error/error.hpp"

namespace flopcast {

Agreement compare_passes(const Measurement& measurement) {
  std::map<std::string, std::vector<double>> medians;
  for (const Sample& sample : measurement.samples) {
    medians[sample.key.text_without_pass()].push_back(sample.median());
  }
  Agreement agreement;
  std::vector<double> differences;
  for (const auto& [name, times] : medians) {
    if (times.size() < 2) continue;
    const auto [least, most] = std::minmax_element(times.begin(), times.end());
    const double difference = *most / *least - 1.0;
    differences.push_back(difference);
    if (difference < agreement.largest) continue;
    agreement.largest = difference;
    agreement.worst = name;
  }
  agreement.compared = static_cast<int>(differences.size());
  agreement.median = median_of(differences);
  return agreement;
}

void require_agreement(const Measurement& measurement, const std::string& file) {
  const Agreement agreement = compare_passes(measurement);
  if (agreement.median <= kAgreementTolerance) return;
  throw EnvironmentError(fmt::format(
      "the two passes of the calibration disagree by {:.1f} % in the median of {} samples (tolerance {:.1f} "
      "%), most on {} ({:.1f} %): no profile is written. Something else used this machine; calibrate again "
      "when it is quiet{}",
      1e2 * agreement.median, agreement.compared, 1e2 * kAgreementTolerance, agreement.worst, 1e2 * agreement.largest,
      file.empty() ? "" : fmt::format(" (the measurements are in {})", file)));
}

std::optional<double> disturbance(const Measurement& measurement) {
  std::vector<double> ratios;
  for (const Sample& sample : measurement.samples) {
    if (!sample.processor_seconds) continue;
    ratios.push_back(std::accumulate(sample.seconds.begin(), sample.seconds.end(), 0.0) / *sample.processor_seconds);
  }
  if (ratios.empty()) return std::nullopt;
  return median_of(ratios);
}

}  // namespace flopcast
